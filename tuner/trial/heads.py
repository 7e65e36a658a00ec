"""Trials whose heads can be trained as one: on the same features, of a backbone that never learns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuner.trial.classifier import ImageClassifier
from tuner.trial.image_hyperparameters import CHANGES_IMAGES, is_on
from tuner.trial.tasks import ONE_LABEL

OF_A_HEAD = frozenset(  # each trial has its own
    (
        *("epochs", "lr", "batch_size", "optimizer", "momentum", "nesterov", "weight_decay", "clip_norm", "schedule"),
        *("warmup_epochs", "step_epochs", "step_factor", "ema_decay", "label_smoothing", "class_weights", "dropout"),
    )
)
OF_A_BACKBONE = frozenset(  # that learns, or for images that change: without effect here
    (
        *("unfreeze_every", "probe_epochs", "probe_lr", "backbone_lr_scale", "layer_decay", "freeze_batch_norm"),
        *("loss", "rand_augment_operations", "rand_augment_magnitude", *CHANGES_IMAGES),
    )
)
SINGLE = ("fp32", "tf32")  # precisions that are the same for a small matrix


def shared_key(trial: ImageClassifier, config: Mapping[str, Any]) -> str | None:
    """What trials have in common that can be trained together; None for one that has to be trained alone.

    Nothing is read for this: data or model may still turn out not to allow it.
    """
    of_one = trial.of(dict(config))
    if not isinstance(of_one.model, str) or of_one.weights_file is None or trial.task not in (None, ONE_LABEL.name):
        return None
    chosen = trial.hyperparameters(dict(config))
    changes = any(is_on(chosen, name) for name in CHANGES_IMAGES)
    if chosen["finetune"] != "head" or changes or chosen["precision"] not in SINGLE or chosen["strategy"] is not None:
        return None
    return json.dumps({name: chosen[name] for name in chosen.keys() - OF_A_HEAD - OF_A_BACKBONE}, sort_keys=True)
