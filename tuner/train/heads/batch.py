"""Trials that are trained at once, of one network each or of several that are cross-validated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import TrialError
from tuner.train.checkpoint import Checkpoint
from tuner.train.cross_validation import CrossValidated, joint_snapshot, restore_jointly
from tuner.train.epoch_result import EpochResult, Notes
from tuner.train.heads.heads import Heads, HeadTrial
from tuner.train.randomness import PARTS, derive_seed
from tuner.train.step import collect_garbage
from tuner.trial import ImageClassifier


class HeadBatch:
    """Trains the heads of trials with the same `batch_key`, each as `trainer_of` trains it alone.

    The results are the same but for the rounding of float32, since products are those of several heads at once.
    """

    def __init__(
        self,
        trial: ImageClassifier,
        members: Sequence[HeadTrial],
        *,
        epochs: int,
        split_seed: int = 0,
        device: str = "cpu",
    ) -> None:
        """Load data, features and heads.

        Args:
            trial: data, model, weights
            members: of the same key
            epochs: the budget's length of a trial, which the hyperparameter `epochs` may shorten
            split_seed: of the study, decides which images are held out
            device: "cpu", "cuda", "cuda:1"

        Raises:
            NotTogether: data or model turn out not to allow it.
            StudyError, TrialError: as `Trainer` does.
        """
        self._folds = trial.folds
        parts = [(trial.fold(part), _of_part(members, part)) for part in range(trial.folds)] or [(trial, list(members))]
        self._each: list[Heads] = []
        for one, heads in parts:
            beside = self._each[0] if self._each else None
            self._each.append(Heads(one, heads, epochs=epochs, split_seed=split_seed, device=device, beside=beside))

    @property
    def total_epochs(self) -> list[int]:
        """Length of each trial."""
        return self._each[0].total_epochs

    @property
    def epoch(self) -> list[int]:
        """Finished epochs of each member."""
        return self._each[-1].epoch

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Trainer.notes`."""
        found = Notes()
        for note in (note for heads in self._each for note in heads.notes):
            found.add(note)
        return tuple(found)

    def run_epoch(self, members: Sequence[int]) -> list[EpochResult | CrossValidated | TrialError]:
        """The next epoch of each of these members, in their order.

        The result of a member whose loss isn't finite is the TrialDiverged that `Trainer` would raise.
        """
        results: dict[int, list[EpochResult]] = {member: [] for member in members}
        failed: dict[int, TrialError] = {}
        for heads in self._each:
            well = [member for member in members if member not in failed]
            for member, result in zip(well, heads.run_epoch(well), strict=True):
                if isinstance(result, TrialError):
                    failed[member] = result
                else:
                    results[member].append(result)
        return [failed.get(member) or self._together(results[member]) for member in members]

    def snapshot(self, member: int) -> Checkpoint:
        """What the snapshot of the member's trainer would be after its epochs."""
        each = self._of(member)
        return joint_snapshot(each) if self._folds else each[0].snapshot()

    def restore(self, member: int, checkpoint: Checkpoint, source: str) -> None:
        """Go on from a checkpoint of whole epochs, this class's or a trainer's; `source` is for the message.

        Raises:
            TrialError: it doesn't fit; the member is unchanged.
        """
        each = self._of(member)
        if self._folds:
            restore_jointly(each, checkpoint, source)
        else:
            each[0].restore(checkpoint, source)

    def close(self) -> None:
        """See `Trainer.close`."""
        for heads in self._each:
            heads.release()
        collect_garbage()

    def _together(self, results: Sequence[EpochResult]) -> EpochResult | CrossValidated:
        return CrossValidated(tuple(results)) if self._folds else results[0]

    def _of(self, member: int) -> list[MemberHead]:
        return [MemberHead(heads, member) for heads in self._each]


@dataclass(frozen=True)
class MemberHead:
    """A member's head on one cut of the data, to save and restore it as a trainer."""

    heads: Heads
    member: int

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self.heads.epoch[self.member]

    def snapshot(self) -> Checkpoint:
        """See `HeadBatch.snapshot`."""
        return self.heads.snapshot(self.member)

    def restore(self, checkpoint: Checkpoint, source: str = "the one before") -> None:
        """See `HeadBatch.restore`."""
        self.heads.restore(self.member, checkpoint, source)


def _of_part(members: Sequence[HeadTrial], part: int) -> list[HeadTrial]:
    """The trials with the seeds of their networks for this part."""
    return [HeadTrial(member.config, derive_seed(member.seed, PARTS, part)) for member in members]
