"""The measured cost of a trial of one kind on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.trial.image_hyperparameters import CHANGES_IMAGES, is_on
from tuner.trial.only_the_head import LBFGS

FURTHER = 0.1  # of the time of a trial alone: that of a further one, by benchmarks/heads.py
MATTERS = ("model", "finetune", "image_size", "precision")  # for the time per image
SWITCHES = (*CHANGES_IMAGES, "freeze_batch_norm", "test_time_flip", "ema_decay", "clip_norm", "quantization")


@dataclass(frozen=True)
class Speed:
    """What a trial costs on a worker, while as many others run as in the search.

    Attributes:
        start_seconds: of each start on a worker: network, weights, data
        once_seconds: of what the first trial does for all with its model and image size: a frozen backbone's features
        once_for: what these trials share
        epoch_seconds: of the first epochs; later ones take as long as the last
        score_seconds: of the winner's predictions for validation and test images
        look_seconds: of decoding all images by one thread
        cache_bytes: of the decoded images
        memory_bytes: the most of the worker's process
        images: for training, validation and test
        images_per_second: through the network, without training
        features_per_second: images through a frozen backbone, whose outputs are stored
        busy: CPU time as a share of elapsed time: well below 1 if others used the machine
        views_seconds: of what the first trial with its views or mirror images does for all of these in addition
        views_for: what these share
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
    features_per_second: float
    busy: float
    views_seconds: float = 0.0
    views_for: str = ""

    @property
    def once(self) -> list[tuple[str, float]]:
        """What is computed once for several trials, and its seconds."""
        each = (self.once_for, self.once_seconds), (self.views_for, self.views_seconds)
        return [(name, seconds) for name, seconds in each if seconds]

    def together(self, trials: int) -> Speed:
        """The cost of a trial that is trained as one with others: each further one takes a share of the first."""
        share = (1 + FURTHER * (trials - 1)) / trials
        lengths = tuple(share * each for each in self.epoch_seconds)
        return replace(self, start_seconds=share * self.start_seconds, epoch_seconds=lengths)

    def epoch(self, number: int) -> float:
        """Seconds of an epoch, the first of which is 1."""
        return self.epoch_seconds[min(number, len(self.epoch_seconds)) - 1]


def kind_of(chosen: Mapping[str, Any]) -> str:
    """A key that hyperparameters share if images take as long; on a CPU the batch size matters little."""
    told = [f"{name}={chosen[name]}" for name in MATTERS if chosen.get(name) is not None]
    told += [LBFGS] * (chosen.get("optimizer") == LBFGS)
    told += [f"views={views}" for views in [chosen.get("views")] if views]
    return " ".join([*told, *(_switch(chosen, name) for name in SWITCHES if is_on(chosen, name))])


def _switch(chosen: Mapping[str, Any], name: str) -> str:
    """The value as text; a word is written with the hyperparameter's name, a number without."""
    return f"{name}={chosen[name]}" if isinstance(chosen[name], str) else name
