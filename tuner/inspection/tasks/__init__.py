"""What a winner's outputs mean, task by task: predictions, the files of `best/`, and the texts of an export."""

from pkgutil import resolve_name
from typing import Any

from tuner.inspection.tasks.answers import Answers, Prediction
from tuner.train.tasks import Targets

__all__ = ["Answers", "Prediction", "answers_of"]


def answers_of(targets: Targets) -> Answers[Any]:
    """The meaning of outputs for these targets."""
    found: Answers[Any] = resolve_name(targets.task.inspection)(targets)
    return found
