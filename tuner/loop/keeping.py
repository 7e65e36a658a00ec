"""Which checkpoints of a run are kept: only those that may still be needed.

Kept are: the newest of each trial that can go on; that of each failed trial, which `tuner retry` may run again; the
best epoch of the best ended trial, and of the best completed trial (mostly the same one); and the best epoch of each
running trial that may become the best (its last epoch follows when it ends). Of a configuration with several seeds the
best seed's is kept, because one more seed may make it the winner, and so are those of refits; if a study races
configurations (`Study.repeats`), also those of the best three full-length ones, and of the best ten if they may be
averaged (`Study.combine`), or where only heads learn, which are small, of the best ten on each kind of features (also
for `tuner combine`); of a search for the front of two metrics those of the configurations on the front. (30 trials of 9
epochs of ResNet18 with Adam would be 36 GB.) Only this module decides it; if a disk limit needs more deleted,
`tuner.loop.room` chooses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from tuner.history.checkpoints import CheckpointStore, Reports
from tuner.history.combination import POOL, kind_of, wanted
from tuner.history.records import RunRecord, TrialRecord
from tuner.results.front import on_front
from tuner.study.declaration import Study

RACED = 3  # configurations whose network is kept if a study races them


@dataclass(frozen=True)
class Leading:
    """How many of the best configurations that were trained to their end keep their network.

    Attributes:
        count: that many
        of_each: of each `kind_of`, and not of all
        front: gives others that keep theirs, those on the front of two metrics; None if there is one metric
        beaten: the value that a trial of a configuration must pass to come among these; None if any may
    """

    count: int = 1
    of_each: bool = False
    front: Callable[[], list[TrialRecord]] | None = None
    beaten: Callable[[Mapping[str, Any]], float | None] = lambda config: None

    @classmethod
    def of(cls, study: Study, record: RunRecord) -> Leading:
        """That of a search."""
        of_two: dict[str, Any] = {}
        if study.second is not None:
            of_two = {"front": partial(on_front, study, record), "beaten": partial(_to_be_on_front, study, record)}
        if study.search_space.constants.get("finetune") == "head":
            return cls(POOL, of_each=True, **of_two)
        averaged = wanted(record) is not None or study.combine is not None
        return cls(max(POOL if averaged else 1, RACED if study.repeats > 1 else 1), **of_two)


def _to_be_on_front(study: Study, record: RunRecord, config: Mapping[str, Any]) -> float | None:
    """The value that a trial of this configuration must pass to be on the front, as far as it is known before it."""
    price = study.price(config, {})
    if price is None:
        return None
    prices = ((trial, study.price(trial.config, {})) for trial in record.by_worth())
    first = next((trial for trial, other in prices if other is not None and other >= price), None)
    worth = first and record.worth_of(first.trial)
    return worth.value if worth else None


class Keeper:
    """Deletes a run's checkpoints when they are no longer needed, and finds those that came or went without a driver.

    `emit` writes an event and applies it to the record.
    """

    def __init__(
        self, record: RunRecord, store: CheckpointStore, *, emit: Callable[..., None], leading: Leading = Leading()
    ) -> None:
        self._record, self._store, self._emit, self._leading = record, store, emit, leading
        self._ahead: list[TrialRecord] = []  # when checkpoints were last looked at
        self._kinds: dict[str, str] = {}  # by trial
        self._front: list[TrialRecord] = []  # of two metrics, when a trial last ended

    @property
    def copies(self) -> int:
        """How many networks beside the winner's are copied once the search has ended."""
        return max(0, len(self._front) - 1)

    def prune(self, changed: str | None = None) -> None:
        """Delete checkpoints that are no longer needed after a change of this trial; None: check all trials."""
        ahead = _ahead(self._record, self._leading.count)
        if self._leading.of_each:
            ahead += [trial for trial in self._best_of_each() if not any(trial is one for one in ahead)]
        if self._leading.front is not None:
            if changed is None or not self._record.trials[changed].live:  # as long as it is, it has no place there
                self._front = self._leading.front()
            ahead += [trial for trial in self._front if not any(trial is one for one in ahead)]
        among = None if changed is None or ahead != self._ahead else [self._record.trials[changed]]
        self._ahead = ahead
        for trial, epoch in not_needed(self._record, among, ahead, self._leading):
            self.drop(trial, epoch)

    def to_beat(self, config: Mapping[str, Any]) -> float | None:
        """The value that a trial must reach for its network to be kept at the end; None if any is."""
        if self._leading.front is not None:
            return self._leading.beaten(config)
        if not self._leading.of_each:
            return self._record.to_beat(self._leading.count)
        kind = kind_of(config)
        alike = (trial for trial in self._record.by_worth() if self._kind(trial) == kind)
        last = next(islice(alike, self._leading.count - 1, None), None)
        worth = last and self._record.worth_of(last.trial)
        return worth.value if worth else None

    def _best_of_each(self) -> Iterator[TrialRecord]:
        seen: Counter[str] = Counter()
        for trial in self._record.by_worth():
            seen[kind := self._kind(trial)] += 1
            if seen[kind] <= self._leading.count:
                yield trial

    def _kind(self, trial: TrialRecord) -> str:
        if trial.trial not in self._kinds:
            self._kinds[trial.trial] = kind_of(trial.config)
        return self._kinds[trial.trial]

    def drop(self, trial: str, epoch: int) -> None:
        """Delete a checkpoint, needed or not."""
        self._emit("checkpoint_deleted", trial=trial, epoch=epoch)
        self._store.delete(trial, epoch)

    def drop_unreported(self, trial: str) -> None:
        """Delete a checkpoint whose epoch the trial could not report, because it failed or its worker died."""
        for epoch in set(self._store.epochs(trial)) - self._record.trials[trial].epochs.keys():
            self._store.delete(trial, epoch)

    def ahead_of_events(self) -> Iterator[tuple[TrialRecord, int, Reports]]:
        """Trials that can go on from no complete checkpoint of a known epoch, but from one of a later epoch.

        Each with the newest such epoch, and the reports that its checkpoint has.
        """
        for record in self._record.trials.values():
            epochs = self._store.epochs(record.trial) if record.live else []
            if epochs and epochs[-1] > record.epoch:
                told = ((epoch, self._store.reports(record.trial, epoch)) for epoch in epochs)
                whole = [(epoch, reports) for epoch, reports in told if reports is not None]
                if whole and whole[0][0] > record.epoch:
                    yield record, *whole[-1]

    def compare_with_the_disk(self) -> None:
        """Note checkpoints that came or went without an event; delete those that belong to no known epoch."""
        present = {trial: set(self._store.epochs(trial)) for trial in self._store.trials()}
        for trial, epochs in present.items():
            self._store.sweep(trial)
            record = self._record.trials.get(trial)
            known = set(record.epochs) if record else set()
            for epoch in sorted(epochs - known):
                self._store.delete(trial, epoch)
            for epoch in sorted((epochs & known) - (record.checkpoints if record else set())):
                self._emit("checkpoint_saved", trial=trial, epoch=epoch)
        for record in self._record.trials.values():
            for epoch in sorted(record.checkpoints - present.get(record.trial, set())):
                self._emit("checkpoint_deleted", trial=record.trial, epoch=epoch)
        self.prune()


def not_needed(
    record: RunRecord,
    among: Iterable[TrialRecord] | None = None,
    ahead: Sequence[TrialRecord] | None = None,
    leading: Leading = Leading(),
) -> list[tuple[str, int]]:
    """(trial, epoch) of each checkpoint that is no longer needed, among these trials, by default all.

    As long as `ahead`, by default the record's best trials, are the same, all checkpoints of other trials are needed.
    """
    trials = list(record.trials.values() if among is None else among)
    first = _ahead(record) if ahead is None else ahead
    return [(t.trial, epoch) for t in trials for epoch in sorted(t.checkpoints - _needed(record, t, first, leading))]


def _ahead(record: RunRecord, leading: int = 1) -> list[TrialRecord]:
    """The trials whose network is the winner's or may become it."""
    refits = [trial for trial in record.trials.values() if trial.refits is not None] if record.refits else []
    found = [record.best_ended_trial, *(trial for trial in refits if trial.status == "completed")]
    full = [one.trial for one in record.completed(leading)]
    found += [t for place, t in enumerate(full) if place < leading or len(record.same_configuration(t)) > 1]
    return list({trial.trial: trial for trial in found if trial is not None}.values())


def _needed(record: RunRecord, trial: TrialRecord, ahead: Sequence[TrialRecord], leading: Leading) -> set[int]:
    needed = {trial.last_checkpoint} if trial.live or _may_run_again(trial) else set()
    if any(trial is one for one in ahead):
        needed.add(_kept(trial, record.best_of(trial.trial)))
    elif trial.live and (leading.of_each or leading.front is not None or record.may_be_kept(trial, leading.count)):
        needed.add(_kept(trial, record.best_report_of(trial.trial)))
    return needed


def _may_run_again(trial: TrialRecord) -> bool:
    """Whether the user may run it again from there: not if its network has diverged."""
    return trial.status == "failed" and trial.cause != "diverged" and bool(trial.checkpoints)


def _kept(trial: TrialRecord, wanted: tuple[int, float] | None) -> int:
    """The wanted epoch, or the newest if that has no checkpoint."""
    return wanted[0] if wanted is not None and wanted[0] in trial.checkpoints else trial.last_checkpoint
