"""A trial that a search hands out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Answer = Literal["continue", "stop", "pause"]


@dataclass(frozen=True)
class AskedTrial:
    """One trial to run now: a new one, or one that goes on.

    Attributes:
        id: its name in the run, and in all calls about it
        number: counted from 0
        config: the hyperparameters
        seed: of its random numbers, 32 bits
        epochs: up to which it is trained, unless the search stops or pauses it before
        from_epoch: the last epoch that is done, from which it goes on; 0 for a trial that begins
        checkpoint: the folder that was reported with that epoch; None if there is none. Read it, don't change it
        rungs: epochs after which it may be paused, if its checkpoint of that epoch was reported
        metrics: the metrics reported so far, by epoch
        attempt: how many times it was handed out, including this time
    """

    id: str
    number: int
    config: dict[str, Any]
    seed: int
    epochs: int
    from_epoch: int = 0
    checkpoint: Path | None = None
    rungs: tuple[int, ...] = ()
    metrics: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    attempt: int = 1

    @property
    def epochs_left(self) -> range:
        """The epochs to train and report, in order."""
        return range(self.from_epoch + 1, self.epochs + 1)
