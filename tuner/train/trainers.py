"""A trial's trainer: for one network, for each part of its cross-validation, or for a head as `heads` trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.errors import TrialError
from tuner.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tuner.train.cross_validation import CrossValidated, CrossValidation
from tuner.train.epoch_result import EpochResult
from tuner.train.heads import HeadBatch, HeadTrial, NotTogether
from tuner.train.parallel.group import Group
from tuner.train.parallel.strategy import Strategy
from tuner.train.randomness import PARTS, derive_seed
from tuner.train.trainer import Trainer
from tuner.trial import ImageClassifier
from tuner.trial.only_the_head import hindrance, needing, unusable


class LoneHead:
    """Trains the head of one trial by `tuner.train.heads`, like a `Trainer`; `trainer_of` creates it."""

    group = Group()
    broken: str | None = None  # see `Trainer.broken`

    def __init__(
        self,
        trial: ImageClassifier,
        config: dict[str, Any],
        *,
        seed: int = 0,
        strategy: Strategy | None = None,
        step_path: str | None = None,
        **how: Any,
    ) -> None:
        """Load data, features and head; arguments and exceptions are those of `Trainer`, two of which don't matter."""
        try:
            self._batch = HeadBatch(trial, [HeadTrial(config, seed)], **how)
        except NotTogether as error:
            needs = needing(trial.hyperparameters(config))
            raise TrialError(f"{needs} needs features that are computed once, got a trial in which {error}") from error

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self._batch.epoch[0]

    @property
    def total_epochs(self) -> int:
        """Length of the trial."""
        return self._batch.total_epochs[0]

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.total_epochs

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Trainer.notes`."""
        return self._batch.notes

    def run_epoch(self) -> EpochResult | CrossValidated:
        """See `Trainer.run_epoch`."""
        (result,) = self._batch.run_epoch([0])
        if isinstance(result, TrialError):
            raise result
        return result

    def halve_micro_batch(self, times: int) -> None:
        """See `Trainer.halve_micro_batch`; there is none."""

    def close(self) -> None:
        """See `Trainer.close`."""
        self._batch.close()

    def snapshot(self) -> Checkpoint:
        """See `Trainer.snapshot`."""
        return self._batch.snapshot(0)

    def save(self, folder: Path) -> None:
        """See `Trainer.save`."""
        write_checkpoint(folder, self.snapshot())

    def load(self, folder: Path) -> None:
        """See `Trainer.load`."""
        self.restore(read_checkpoint(folder), str(folder))

    def restore(self, checkpoint: Checkpoint, source: str = "another trial's") -> None:
        """See `Trainer.restore`."""
        self._batch.restore(0, checkpoint, source)


def trainer_of(
    trial: ImageClassifier, config: dict[str, Any], *, seed: int = 0, **how: Any
) -> Trainer | CrossValidation | LoneHead:
    """A trial's trainer: of one network, or one per part of its cross-validation; arguments are those of `Trainer`.

    What only `tuner.train.heads` can do, lbfgs and views, is trained there.

    The networks start from the same weights if these are given. Each has its own seed, from the trial's and its part.
    """
    chosen = trial.hyperparameters(config)
    if (needs := needing(chosen)) is not None:
        if (found := hindrance(trial.of(config), chosen)) is not None:
            raise unusable(needs, found)
        return LoneHead(trial, config, seed=seed, **how)
    if not trial.folds:
        return Trainer(trial, config, seed=seed, **how)
    return CrossValidation(
        [Trainer(trial.fold(part), config, seed=derive_seed(seed, PARTS, part), **how) for part in range(trial.folds)]
    )
