"""Which trials train the winner again on all images except the test split, and whose network `best/` has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.study.declaration import REFIT

if TYPE_CHECKING:
    from tuner.history.records import RunRecord
    from tuner.history.trial_record import TrialRecord

TRAINED_ON = REFIT  # what a refitted winner is said to be trained on
SUPERSEDED = "superseded"  # ends a refit whose configuration is no longer the winner's


@dataclass(frozen=True)
class Refit:
    """The refit of a winner.

    Attributes:
        winner: the trial that won
        epochs: how many epochs the refit has: up to the winner's epoch whose network stands for it
        trials: those that have refitted its configuration for so many epochs, in their order
    """

    winner: TrialRecord
    epochs: int
    trials: tuple[TrialRecord, ...]

    @property
    def done(self) -> TrialRecord | None:
        """The trial whose network is in `best/` in place of the winner's."""
        return next((t for t in self.trials if t.status == "completed" and self.epochs in t.saved), None)

    @property
    def going_on(self) -> TrialRecord | None:
        """The refit that can still report."""
        return next((trial for trial in self.trials if trial.live), None)

    @property
    def last(self) -> TrialRecord | None:
        """The newest refit."""
        return self.trials[-1] if self.trials else None


def refit_of(record: RunRecord) -> Refit | None:
    """The refit of the run's winner as it is now; None while there is no winner."""
    winner = record.best_trial()
    worth = winner and record.worth_of(winner.trial)
    if winner is None or worth is None:
        return None
    made = (trial for trial in record.trials.values() if trial.refits is not None)
    of_it = (t for t in made if t.configuration == winner.configuration and t.refit_epochs == worth.epoch)
    return Refit(winner, worth.epoch, tuple(of_it))


def shipped_refit(record: RunRecord) -> TrialRecord | None:
    """The trial whose network is in `best/` in place of the winner's; None if that is the winner's own."""
    return None if record.confirming.own else trained_refit(record)


def trained_refit(record: RunRecord) -> TrialRecord | None:
    """The trial that `shipped_refit` gives, also if a user has chosen the winner's own network."""
    found = refit_of(record) if record.refits else None
    return found.done if found else None
