"""The result of a replay: each epoch's recorded and replayed metrics, and whether they are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.results.wording import plural
from tuner.trial.tasks.one_label import TOP5


@dataclass(frozen=True)
class ReplayedEpoch:
    """One epoch of a replay.

    Attributes:
        epoch: its number, from 1
        recorded: the study's metric as the run has it; None if the run has no such epoch, or no number
        replayed: the study's metric as it is now
        known: whether the run has the epoch
        differing: the compared metrics that are not the same, by name: recorded and replayed
        metrics: all that the replay reported
    """

    epoch: int
    recorded: Any
    replayed: Any
    known: bool
    differing: Mapping[str, tuple[Any, Any]]
    metrics: Mapping[str, Any]

    @property
    def equal(self) -> bool | None:
        """Whether all compared metrics are the same; None if there is nothing to compare with."""
        return not self.differing if self.known else None


def compared(
    epoch: int, recorded: Mapping[str, Any] | None, replayed: Mapping[str, Any], metric: str, names: Sequence[str]
) -> ReplayedEpoch:
    """An epoch of the replay compared with the run's, by the metrics `names`; `metric` is shown."""
    before = recorded or {}
    told = [name for name in names if name in before and (name in replayed or name != f"val_{TOP5}")]  # of old runs
    pairs = {name: (before.get(name), replayed.get(name)) for name in told}
    return ReplayedEpoch(
        epoch,
        before.get(metric),
        replayed.get(metric),
        recorded is not None,
        {name: pair for name, pair in pairs.items() if pair[0] != pair[1]} if recorded is not None else {},
        replayed,
    )


@dataclass(frozen=True)
class Replayed:
    """A trial that was trained once more.

    Attributes:
        run: path of the run
        trial: its id
        metric: the study's
        start: epoch of the checkpoint from which training went on, 0 for none
        wanted: epoch after which it should end
        differences: what has changed since the run, in sentences
        notes: what happened during the replay, in sentences
        epochs: those that were trained
        recorded_failure: why the trial failed in the run, within these epochs
        failure: why it failed now
        promised: whether equal curves are promised: for an image classifier on the CPU, if nothing differs
    """

    run: str
    trial: str
    metric: str
    start: int
    wanted: int
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    epochs: tuple[ReplayedEpoch, ...]
    recorded_failure: str | None
    failure: str | None
    promised: bool

    @property
    def equal(self) -> bool:
        """Whether nothing that could be compared is different."""
        if self.failure != self.recorded_failure:
            return False
        complete = self.failure is not None or self._last == self.wanted
        return complete and all(epoch.equal is not False for epoch in self.epochs)

    @property
    def sentence(self) -> str:
        """The outcome in a sentence."""
        if self.failure != self.recorded_failure:
            return self._of_failures()
        if self.failure is None and self._last != self.wanted:
            return f"the trial ended after epoch {self._last}, {self.wanted} were expected: the curve is different"
        known = [epoch for epoch in self.epochs if epoch.known]
        other = next((epoch for epoch in known if not epoch.equal), None)
        if other is not None:
            return f"the curve differs from epoch {other.epoch} on, in {', '.join(other.differing)}{self._why()}"
        failed = ", and it fails again with the same message" if self.failure is not None else ""
        if not known:
            return f"there was no epoch to compare{failed or f': training went on after epoch {self.start}'}"
        return f"the curve is the same in {plural(len(known), 'epoch')}{failed}"

    @property
    def _last(self) -> int:
        return self.epochs[-1].epoch if self.epochs else self.start

    def _of_failures(self) -> str:
        if self.failure is None:
            return f"the trial does not fail any more; it had failed with: {self.recorded_failure}"
        before = "" if self.recorded_failure is None else f"; before it was: {self.recorded_failure}"
        return f"the trial failed after epoch {self._last}: {self.failure}{before}"

    def _why(self) -> str:
        if self.promised:
            return "; it should not, as nothing that is known to matter has changed"
        return "; see the differences above" if self.differences else "; equal curves are not promised here"

    def summary(self) -> dict[str, Any]:
        """What `--json` prints."""
        fields = asdict(self) | {"equal": self.equal, "sentence": self.sentence}
        for row, epoch in zip(fields["epochs"], self.epochs, strict=True):
            row["equal"] = epoch.equal
        return fields
