"""The measured cost of a trial of one kind on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.trial.image_hyperparameters import CHANGES_IMAGES, is_on

MATTERS = ("model", "finetune", "image_size", "precision")  # for how long images take
SWITCHES = (*CHANGES_IMAGES, "freeze_batch_norm", "test_time_flip", "ema_decay", "clip_norm")


@dataclass(frozen=True)
class Speed:
    """What a trial costs on a worker, while as many others work as a search lets.

    Attributes:
        start_seconds: of each start on a worker: network, weights, data
        once_seconds: what the first trial does for all of its model and image size: features of a frozen backbone
        once_for: what these trials have in common
        epoch_seconds: of the first epochs; those after take as long as the last
        score_seconds: the winner's answers for the test split
        look_seconds: all images decoded, by one thread
        cache_bytes: of the decoded images
        memory_bytes: of the worker's process at most
        images: for training, validation and test
        images_per_second: through the network, without learning
        busy: CPU time as a share of the time that passed: well below 1 where others used the machine
    """

    start_seconds: float
    once_seconds: float
    once_for: str
    epoch_seconds: tuple[float, ...]
    score_seconds: float
    look_seconds: float
    cache_bytes: int
    memory_bytes: int
    images: tuple[int, int, int]
    images_per_second: float
    busy: float

    def epoch(self, number: int) -> float:
        """Seconds of an epoch, the first of which is 1."""
        return self.epoch_seconds[min(number, len(self.epoch_seconds)) - 1]


def kind_of(chosen: Mapping[str, Any]) -> str:
    """What hyperparameters have in common whose images take as long; a batch's size matters little on a CPU."""
    told = [f"{name}={chosen[name]}" for name in MATTERS if chosen.get(name) is not None]
    return " ".join([*told, *(_switch(chosen, name) for name in SWITCHES if is_on(chosen, name))])


def _switch(chosen: Mapping[str, Any], name: str) -> str:
    """A word is written with its name, a number is not."""
    return f"{name}={chosen[name]}" if isinstance(chosen[name], str) else name
