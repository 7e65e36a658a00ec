"""Which checkpoints of a run are kept: only those that may still be needed.

Kept are: the newest of each trial that can go on; that of each failed trial, which `tuner retry` may run again; the
best epoch of the best ended trial, and of the best completed trial (mostly the same one); and the best epoch of each
running trial that may become the best (its last epoch follows when it ends). Of a configuration with several seeds the
best seed's is kept, because one more seed may make it the winner, and so are those of refits; if a study races
configurations (`Study.repeats`), also those of the best three full-length ones, and of the best ten if they may be
averaged (`Study.combine`, or later `tuner combine`, for heads that are small). (30 trials of 9 epochs of ResNet18 with
Adam would be 36 GB.) Only this module decides it; if a disk limit needs more deleted, `tuner.loop.room` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tuner.history.checkpoints import CheckpointStore, Reports
from tuner.history.combination import POOL, wanted
from tuner.history.records import RunRecord, TrialRecord
from tuner.study.declaration import Study

RACED = 3  # configurations whose network is kept if a study races them


def leading(study: Study, record: RunRecord) -> int:
    """How many of the best configurations that were trained to their end keep their network."""
    small = study.search_space.constants.get("finetune") == "head"
    averaged = wanted(record) is not None or study.combine is not None or small
    return max(POOL if averaged else 1, RACED if study.repeats > 1 else 1)


class Keeper:
    """Deletes a run's checkpoints when they are no longer needed, and finds those that came or went without a driver.

    `emit` writes an event and applies it to the record; `leading` says how many of the best full-length configurations
    keep their network.
    """

    def __init__(
        self, record: RunRecord, store: CheckpointStore, *, emit: Callable[..., None], leading: int = 1
    ) -> None:
        self._record, self._store, self._emit, self._leading = record, store, emit, leading
        self._ahead: list[TrialRecord] = []  # when checkpoints were last looked at

    def prune(self, changed: str | None = None) -> None:
        """Delete checkpoints that are no longer needed after a change of this trial; None: check all trials."""
        ahead = _ahead(self._record, self._leading)
        among = None if changed is None or ahead != self._ahead else [self._record.trials[changed]]
        self._ahead = ahead
        for trial, epoch in not_needed(self._record, among, ahead, self._leading):
            self.drop(trial, epoch)

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
    leading: int = 1,
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


def _needed(record: RunRecord, trial: TrialRecord, ahead: Sequence[TrialRecord], leading: int) -> set[int]:
    needed = {trial.last_checkpoint} if trial.live or _may_run_again(trial) else set()
    if any(trial is one for one in ahead):
        needed.add(_kept(trial, record.best_of(trial.trial)))
    elif trial.live and record.may_be_kept(trial, leading):
        needed.add(_kept(trial, record.best_report_of(trial.trial)))
    return needed


def _may_run_again(trial: TrialRecord) -> bool:
    """Whether the user may run it again from there: not if its network has diverged."""
    return trial.status == "failed" and trial.cause != "diverged" and bool(trial.checkpoints)


def _kept(trial: TrialRecord, wanted: tuple[int, float] | None) -> int:
    """The wanted epoch, or the newest if that has no checkpoint."""
    return wanted[0] if wanted is not None and wanted[0] in trial.checkpoints else trial.last_checkpoint
