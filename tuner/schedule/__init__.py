"""Early stopping: declarations for the study file, and the rules that they build. Knows no executor."""

from tuner.schedule.asha import ASHA
from tuner.schedule.base import Decision, EarlyStopper, NoEarlyStopping, Scheduler
from tuner.schedule.hyperband import HyperBand
from tuner.schedule.median import MedianStopping

__all__ = [
    "ASHA",
    "Decision",
    "EarlyStopper",
    "HyperBand",
    "MedianStopping",
    "NoEarlyStopping",
    "Scheduler",
]
