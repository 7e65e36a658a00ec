"""Whether only the last layer learns, on features that are computed once: it can be trained with others, or solved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.errors import StudyError
from tuner.trial.image_hyperparameters import CHANGES_IMAGES, MIXES_IMAGES, is_on
from tuner.trial.model_and_data import ModelAndData
from tuner.trial.tasks import ONE_LABEL

FLOAT32 = ("tf32", "fp32")
LBFGS = "lbfgs"  # the optimizer that solves a last layer
IGNORED = (  # by it
    *("lr", "batch_size", "momentum", "nesterov", "clip_norm", "ema_decay", "dropout"),
    *("schedule", "warmup_epochs", "step_epochs", "step_factor"),
)


def needing(chosen: Mapping[str, Any]) -> str | None:
    """The hyperparameter that only works on features that stay the same, as text; None if there is none."""
    if chosen.get("optimizer") == LBFGS:
        return f"optimizer={LBFGS!r}"
    return f"views={chosen['views']}" if chosen.get("views") else None


def unusable(needs: str, found: str) -> StudyError:
    """The error of what needs features that stay the same, and has this hindrance."""
    return StudyError(
        f"{needs} needs a library's model with weights, of which only the last layer learns, and one class for each "
        f"image, got {found}; leave out either"
    )


def hindrance(trial: ModelAndData, chosen: Mapping[str, Any]) -> str | None:
    """What keeps a head from being trained on features that stay the same, in float32, in words; None if nothing."""
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
    changing = MIXES_IMAGES if chosen["views"] else CHANGES_IMAGES
    return next((f"{name}={chosen[name]!r}" for name in changing if is_on(chosen, name)), None)
