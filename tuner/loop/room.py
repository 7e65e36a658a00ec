"""Keeps `Budget.disk_gb` and free space on the disk: which checkpoints are deleted first, and when a search pauses.

The run folder stays below its limit: room is left for the checkpoints that may be on their way, and for the winner's
copy in `best/`. On their way are the next one of each worker, and those that trials have announced and write while they
train on. Never deleted are the newest of a trial that runs or was interrupted, the best of the ended trials, and what
the leader goes on from. The others are deleted in this order:

1. the checkpoints of failed trials, which `tuner retry` would then run from their beginning;
2. those of paused trials, the least promising trial first, which ends as by early stopping;
3. those of ended trials that are not ahead but may come to be so, as in a race: the least promising one first;
4. the best epochs of trials that may still win, again the least promising trial first, and the leader last.

If that isn't enough, the search pauses before it writes more. The folder's other files (logs, Ray's files, W&B's files)
are measured every LOOK_SECONDS, so they count a little late.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from tuner.errors import setting
from tuner.history.checkpoints import CHECKPOINTS, CheckpointStore
from tuner.history.records import RunRecord, TrialRecord
from tuner.loop.keeping import Keeper
from tuner.storage.folder import Folder
from tuner.study.budget import GB

BY = "disk_gb"  # what ended a paused trial whose checkpoint had to be deleted
FEWER_PAUSED = "disk"  # the code of the notice that says so
LOOK_SECONDS = 30.0  # between two measurements of the run folder's other files
RESERVE_BYTES = 16_000_000  # for events, tables, report and run.json,
RESERVE_SHARE = 0.05  # but at most this share of a small disk
EACH = 3  # checkpoints per worker: the newest, the announced one, the next
EXTRA = 3  # further checkpoints: the best ended trial's, the leader's, and the winner's copy in best/


@dataclass(frozen=True)
class Actions:
    """What the search does to make room.

    `end` ends a paused trial, `pause` asks the search to pause for a reason, `notice` tells the user with a `code`.
    """

    end: Callable[..., None]
    pause: Callable[[str], None]
    notice: Callable[..., None]


class Room:
    """Keeps a run folder below `limit_gb()`, None for no limit, and its disk from filling up.

    `limit_gb`, `workers`, how many trials may save at once, and `announced`, how many of them write a checkpoint while
    they train on, are read again each time.
    """

    def __init__(
        self,
        record: RunRecord,
        folder: Folder,
        keeper: Keeper,
        actions: Actions,
        *,
        limit_gb: Callable[[], float | None],
        workers: Callable[[], int],
        announced: Callable[[], int],
    ) -> None:
        self._record, self._folder, self._keeper, self._actions = record, folder, keeper, actions
        self._store = CheckpointStore(folder)
        self._limit_gb, self._workers, self._announced = limit_gb, workers, announced
        self._sizes: dict[tuple[str, int], int] = {}
        self._others, self._looked = 0, -math.inf
        self._asked = self._told = False
        self._largest = 0
        for trial in record.trials.values():
            for epoch in trial.checkpoints:
                self.take(trial.trial, epoch)

    def take(self, trial: str, epoch: int) -> None:
        """A checkpoint has come."""
        if self._limit is not None or self._folder.disk is not None:
            self._size(trial, epoch)

    def make(self, waiting: Set[str] = frozenset()) -> None:
        """Delete the least useful checkpoints if the limit would be passed; pause if only needed ones are left.

        `waiting` are paused trials that are about to go on. Also pauses if the disk has less free space than the next
        checkpoints and events take.
        """
        if self._limit is not None:
            self._keep_below(self._limit, waiting)
        disk = self._folder.disk
        if disk is not None and disk.free < (needed := needed_free(self._largest, self._coming(), disk.total)):
            self._pause(disk_too_full(self._folder.uri, needed, f"{disk.free / 1e6:,.0f} MB free"))

    def refuse(self, trial: str, epoch: int) -> None:
        """The disk had no room for a checkpoint."""
        self._pause(disk_too_full(self._folder.uri, None, f"none for that of epoch {epoch} of trial {trial}"))

    # Inside

    @property
    def _limit(self) -> float | None:
        """The limit in bytes."""
        limit_gb = self._limit_gb()
        return None if limit_gb is None else limit_gb * GB

    def _coming(self) -> int:
        """How many checkpoints may be on their way."""
        return self._workers() + self._announced()

    def _keep_below(self, limit: float, waiting: Set[str]) -> None:
        self._look_at_the_rest()
        dropping = self._droppable(waiting)
        while (excess := self._excess(limit)) > 0:
            drop = next(dropping, None)
            if drop is None:
                self._pause(limit_too_low(limit / GB, (limit + excess) / GB))
                return
            drop()

    def _size(self, trial: str, epoch: int) -> int:
        """Bytes of a checkpoint, measured once."""
        if (trial, epoch) not in self._sizes:
            size = self._sizes[trial, epoch] = self._store.size(trial, epoch)
            self._largest = max(self._largest, size)
        return self._sizes[trial, epoch]

    def _pause(self, reason: str) -> None:
        if not self._asked:
            self._asked = True
            self._actions.pause(reason)

    def _look_at_the_rest(self) -> None:
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            self._others = self._folder.held_bytes(without=(CHECKPOINTS,))

    def _excess(self, limit: float) -> float:
        """By how many bytes the run folder could pass its limit."""
        kept = [(trial.trial, epoch) for trial in self._record.trials.values() for epoch in trial.checkpoints]
        self._sizes = {place: self._size(*place) for place in kept}
        coming = self._coming() + 1 + self._keeper.copies
        return sum(self._sizes.values()) + self._others + self._largest * coming - limit

    def _droppable(self, waiting: Set[str]) -> Iterator[Callable[[], None]]:
        """Checkpoints that can be deleted, the least useful first; found again each time, because the end of a trial
        changes the rest.
        """
        while (place := self._of_a_failed_trial()) is not None:
            yield lambda place=place: self._keeper.drop(*place)  # type: ignore[misc]
        while (trial := self._least_promising(waiting)) is not None:
            yield lambda trial=trial: self._end(trial)  # type: ignore[misc]
        while (place := self._of_one_behind()) is not None:
            yield lambda place=place: self._keeper.drop(*place)  # type: ignore[misc]
        while (place := self._least_useful_best()) is not None:
            yield lambda place=place: self._keeper.drop(*place)  # type: ignore[misc]

    def _end(self, trial: TrialRecord) -> None:
        if not self._told:
            self._told = True
            self._actions.notice(
                f"the disk limit of {(self._limit or 0) / GB:g} GB holds no more paused trials: the least promising "
                f"ones end now, as by early stopping; a higher {setting('--disk', name='disk_gb')} keeps more of them",
                code=FEWER_PAUSED,
            )
        self._actions.end(trial.trial, status="stopped", by=BY)

    def _of_a_failed_trial(self) -> tuple[str, int] | None:
        failed = (trial for trial in self._record.trials.values() if trial.status == "failed")
        return next(((trial.trial, epoch) for trial in failed for epoch in trial.checkpoints), None)

    def _least_promising(self, waiting: Set[str]) -> TrialRecord | None:
        leader = self._record.best_reporter
        paused = (t for t in self._record.trials.values() if t.status == "paused" and t.trial not in waiting)
        return min((t for t in paused if t is not leader), key=self._record.rank, default=None)

    def _of_one_behind(self) -> tuple[str, int] | None:
        """A checkpoint of the least promising ended trial, without the best one and refits."""
        ended = (t for t in self._record.trials.values() if t.status in ("completed", "stopped") and t.refits is None)
        behind = (t for t in ended if t.checkpoints and t is not self._record.best_ended_trial)
        trial = min(behind, key=self._record.rank, default=None)
        return None if trial is None else (trial.trial, min(trial.checkpoints))

    def _least_useful_best(self) -> tuple[str, int] | None:
        live = [t for t in self._record.trials.values() if t.live and len(t.checkpoints) > 1]
        trial = min(live, key=self._record.rank, default=None)
        return None if trial is None else (trial.trial, min(trial.checkpoints))


def least_bytes(checkpoint: int, workers: int) -> int:
    """The least that a search needs if its checkpoints have this size: EACH for each worker, and EXTRA."""
    return checkpoint * (EACH * workers + EXTRA)


def needed_free(checkpoint: int, coming: int, total: int) -> int:
    """Bytes that must be free on the disk: for the checkpoints on their way, and for other files."""
    return checkpoint * coming + int(min(RESERVE_BYTES, RESERVE_SHARE * total))


def limit_too_low(limit_gb: float, needed_gb: float) -> str:
    """The reason of a pause if the limit can't hold what the search needs."""
    return (
        f"disk_gb needs to hold the checkpoints that the search goes on from, which take {needed_gb:.4g} GB with those "
        f"that come next, got {limit_gb:g}; go on with {setting('--disk', f'{round_above(needed_gb):g}', 'disk_gb')}"
    )


def disk_too_full(uri: str, needed: int | None, got: str) -> str:
    """The reason of a pause if the disk fills up; `needed` in bytes."""
    much = "" if needed is None else f", {needed / 1e6:,.0f} MB"
    return (
        f"a search needs room for its next checkpoints and events{much}, got {got} on the disk of {uri!r}; "
        "free some space"
    )


def round_above(gb: float) -> float:
    """The number rounded up to at most two significant digits."""
    unit = 10.0 ** (math.floor(math.log10(gb)) - 1)
    return float(f"{math.ceil(gb * 1.1 / unit) * unit:.2g}")
