"""Whether only the last layer learns, on features that stay the same: then it can be trained with others, or solved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.errors import StudyError
from tuner.trial.image_hyperparameters import CHANGES_IMAGES, is_on
from tuner.trial.model_and_data import ModelAndData
from tuner.trial.tasks import ONE_LABEL

FLOAT32 = ("tf32", "fp32")
LBFGS = "lbfgs"  # the optimizer that solves a last layer


def unsolvable(found: str) -> StudyError:
    """The error of a configuration with lbfgs that has this hindrance."""
    return StudyError(
        "optimizer='lbfgs' solves the last layer of a library's model with weights, whose other layers and whose "
        f"images stay as they are, with one class for each image; got {found}; choose another optimizer, or change that"
    )


def hindrance(trial: ModelAndData, chosen: Mapping[str, Any]) -> str | None:
    """What keeps more than the head of a library's model with weights from staying the same, in float32, in words."""
    if not trial.starts_from_weights:
        return f"weights={trial.weights!r}"
    if trial.task not in (None, ONE_LABEL.name):
        return f"task={trial.task!r}"
    if chosen["finetune"] != "head":
        return f"finetune={chosen['finetune']!r}"
    if chosen["precision"] not in FLOAT32:
        return f"precision={chosen['precision']!r}"
    if chosen["strategy"] is not None:
        return f"strategy={chosen['strategy']!r}"
    return next((f"{name}={chosen[name]!r}" for name in CHANGES_IMAGES if is_on(chosen, name)), None)
