"""`tuner labels`: images whose label is probably wrong, by answers of networks that didn't learn from them."""

from tuner.label_errors.correcting import write_corrected
from tuner.label_errors.judgement import Judgement, study_of
from tuner.label_errors.suspect_list import LabelErrors, Suspect, find, suspects

__all__ = ["Judgement", "LabelErrors", "Suspect", "find", "study_of", "suspects", "write_corrected"]
