"""Declarations of trials: an image classifier to fine-tune, or a user's function. Imports no torch."""

from tuner.errors import StudyError, shown
from tuner.trial.base import MemoryEstimate, Trial
from tuner.trial.classifier import ImageClassifier
from tuner.trial.external import External
from tuner.trial.function import FunctionTrial
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.hyperparameters import HYPERPARAMETERS
from tuner.trial.inference_cost import Latency
from tuner.trial.metrics import RecallAtPrecision
from tuner.trial.splitting import Folds
from tuner.trial.strategies import STRATEGIES
from tuner.trial.table import Table

__all__ = [
    "HYPERPARAMETERS",
    "STRATEGIES",
    "External",
    "Folds",
    "FunctionTrial",
    "Hyperparameter",
    "ImageClassifier",
    "Latency",
    "MemoryEstimate",
    "RecallAtPrecision",
    "Table",
    "Trial",
    "as_trial",
]


def as_trial(trial: object) -> Trial:
    """The trial of a study file: a `Trial` as it is, a function wrapped.

    Raises:
        StudyError: it is neither a `Trial` nor a function.
    """
    if isinstance(trial, Trial):
        return trial
    if callable(trial) and not isinstance(trial, type):
        return FunctionTrial(trial)
    if isinstance(trial, type) and any(one.__module__.startswith("ray.") for one in trial.__mro__):
        raise StudyError(
            f"trial must be a function of config, got the Ray Trainable {trial.__name__}; write a function "
            f"train(config) with trainable = {trial.__name__}(config), which calls tuner.report(trainable.step()) once "
            "per epoch"
        )
    kind = trial.__name__ if isinstance(trial, type) and issubclass(trial, Trial) else "ImageClassifier"
    raise StudyError(f"trial must be an ImageClassifier or a function of config, got {shown(trial)}; write {kind}(...)")
