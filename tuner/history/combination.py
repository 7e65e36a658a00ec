"""Which trials may be averaged in `best/`, and whether that was asked for (`Study.combine`, `tuner combine`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.study.declaration import COMBINATIONS, OF_FORWARD

if TYPE_CHECKING:
    from tuner.history.records import RunRecord
    from tuner.history.trial_record import TrialRecord

LOSS = "val_loss"  # by which an average is chosen
STUDENT_LENGTH = 3  # times the winner's epochs, in which a network learns from the average of others
POOL = 10  # configurations, of those that were trained to their end, whose networks may be averaged
AUTO, ENSEMBLE, SOUP, DISTILLED = COMBINATIONS  # for packages that may not import studies


@dataclass(frozen=True)
class Candidate:
    """A trial whose network may be averaged: its name, epoch and configuration, and the folder of its checkpoint."""

    trial: str
    epoch: int
    config: dict[str, Any]
    checkpoint: Path


def wanted(record: RunRecord) -> str | None:
    """How the best trials are to be combined, one of `COMBINATIONS`; None if they aren't."""
    return record.confirming.combine


def learns(record: RunRecord) -> bool:
    """Whether a network is to learn from several of these trials."""
    return wanted(record) == DISTILLED and len(pool(record)) > 1


def kind_of(config: Mapping[str, Any]) -> str:
    """What configurations share whose networks compute the same but for their weights."""
    return repr([config.get(name) for name in ("model", *OF_FORWARD)])


def pool(record: RunRecord) -> list[tuple[TrialRecord, int]]:
    """Good trials that were trained to their end and differ, and the epoch whose network is kept.

    The winner is the first; the others follow by their validation loss, by which an average is chosen, as far as they
    report one. Answers of heads on the same features hardly differ, and an average of them gains little. So of each
    `kind_of` only as many count as of the others, as long as there are others.
    """
    kept: list[tuple[TrialRecord, int]] = []
    for standing in record.completed(len(record.trials)):
        trial, epoch = standing.trial, standing.worth.epoch
        if trial.checkpoints:
            kept.append((trial, epoch if epoch in trial.checkpoints else trial.last_checkpoint))
    kept[1:] = sorted(kept[1:], key=_loss)
    kinds = [kind_of(trial.config) for trial, _ in kept]
    most = math.ceil(POOL / max(1, len(set(kinds))))
    first = [place for place, kind in enumerate(kinds) if kinds[:place].count(kind) < most][:POOL]
    others = [place for place in range(len(kept)) if place not in first]
    return [kept[place] for place in sorted([*first, *others[: POOL - len(first)]])]


def _loss(kept: tuple[TrialRecord, int]) -> float:
    trial, epoch = kept
    value = trial.epochs[epoch].metrics.get(LOSS)
    return value if isinstance(value, float) and math.isfinite(value) else math.inf
