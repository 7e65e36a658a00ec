"""Which trials' heads can be trained as one: those on the same features of a backbone that never learns."""

from __future__ import annotations

import json
from typing import Any

from tuner.errors import StudyError
from tuner.trial.classifier import ImageClassifier
from tuner.trial.only_the_head import hindrance

OF_A_HEAD = (  # in which trials that are trained together may differ
    *("lr", "batch_size", "optimizer", "momentum", "nesterov", "weight_decay", "clip_norm", "ema_decay"),
    *("epochs", "schedule", "warmup_epochs", "step_epochs", "step_factor"),
    *("label_smoothing", "class_weights", "dropout"),
)
OF_OTHER_LAYERS = ("unfreeze_every", "probe_epochs", "probe_lr", "backbone_lr_scale", "layer_decay")  # that learn


def batch_key(trial: ImageClassifier, config: dict[str, Any]) -> str | None:
    """Trials of the same key can be trained together; None if this one has to be trained alone.

    It is a canonical text of the hyperparameters in which they must not differ. Nothing is read or loaded, so it may
    turn out later that they can't, see `tuner.train.heads.NotTogether`.
    """
    try:
        chosen = trial.hyperparameters(config)
        if hindrance(trial.of(config), chosen) is not None:
            return None
        size = trial.asked_size(config)  # weights may crop images otherwise than if the same size is asked for
    except StudyError:  # training it says what is wrong
        return None
    shared = {name: value for name, value in chosen.items() if name not in (*OF_A_HEAD, *OF_OTHER_LAYERS)}
    return json.dumps(shared | {"image_size": size}, sort_keys=True)
