"""`tuner labels`: images whose label is probably wrong, by answers of networks that didn't learn from them."""

from tuner.label_errors.correcting import write_corrected
from tuner.label_errors.judging import Judgement, judge, study_of
from tuner.label_errors.writing import LabelErrors, Suspect, check_unwritten, suspects, write

__all__ = [
    "Judgement",
    "LabelErrors",
    "Suspect",
    "check_unwritten",
    "judge",
    "study_of",
    "suspects",
    "write",
    "write_corrected",
]
