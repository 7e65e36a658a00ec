"""Which trials may be averaged in `best/`, and whether that was asked for (`Study.combine`, `tuner combine`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.study.declaration import AUTO

if TYPE_CHECKING:
    from tuner.history.records import RunRecord
    from tuner.history.trial_record import TrialRecord

POOL = 10  # configurations, of those that were trained to their end, whose networks are kept for it


@dataclass(frozen=True)
class Candidate:
    """A trial whose network may be averaged: its name, epoch and configuration, and the folder of its checkpoint."""

    trial: str
    epoch: int
    config: dict[str, Any]
    checkpoint: Path


def must_pay(how: str) -> bool:
    """Whether an average that was asked for like this ships only if it pays."""
    return how == AUTO


def wanted(record: RunRecord) -> str | None:
    """How the best trials are to be combined, "auto" or "ensemble"; None if they aren't."""
    return record.confirming.combine


def pool(record: RunRecord) -> list[tuple[TrialRecord, int]]:
    """The best trials that were trained to their end, and the epoch whose network is kept; the winner first."""
    found = []
    for standing in record.completed(POOL)[:POOL]:
        trial, epoch = standing.trial, standing.worth.epoch
        if trial.checkpoints:
            found.append((trial, epoch if epoch in trial.checkpoints else trial.last_checkpoint))
    return found


def combined_in(scored: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What `best/metrics.json` says of an average of several trials; None if none was tried."""
    return scored.get("combined")
