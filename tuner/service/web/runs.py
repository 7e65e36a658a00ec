"""The runs that were looked at last, kept up to date: reading a long one takes seconds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.events import EventFollower
from tuner.history.records import RunRecord, TrialRecord
from tuner.results import Run
from tuner.results.run import RUN_FILE
from tuner.service.errors import Code, ServiceError
from tuner.service.model import SubmittedStudy
from tuner.service.service import Service
from tuner.service.web.event_reader import EventReader
from tuner.storage.folder import Folder
from tuner.storage.locations import open_folder

KEPT = 4


class Runs:
    """Runs by their study's number; may be used from several threads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: OrderedDict[int, tuple[Any, Run]] = OrderedDict()
        self._growing: OrderedDict[int, _Growing] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, study: int) -> Run:
        """The study's run as it is now, which stays so. Raises ServiceError where it has none yet."""
        run = self._service.run(study)
        if run is None:
            raise _without_run(self._service.study(study))
        stamp = (run.path, EventReader(run.folder).end(), run.folder.modified(RUN_FILE))
        with self._lock:
            before, kept = self._kept.get(study, (None, run))
            run = kept if before == stamp else run
            self._kept[study] = (stamp, run)
            self._kept.move_to_end(study)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return run

    @contextmanager
    def looking(self, study: int) -> Iterator[Run]:
        """The study's run as it is now, at the cost of what came since the last look; nothing long belongs there.

        Its record is shared: it changes after the block. Raises ServiceError where the study has no run yet.
        """
        found = self._service.study(study)
        followed = self._service.followed(study) or self._service.ended(study)
        try:
            folder = None if found.run is None else open_folder(found.run)
            if folder is not None and followed is not None and followed.path == found.run:
                run = Run(folder)
                with followed.looking() as record:
                    run.record = record
                    yield run
                return
            if folder is not None:
                with self._grown(study, folder).looking() as run:
                    yield run
                return
        except RunFolderError as error:
            raise _without_run(found) from error
        raise _without_run(found)

    def _grown(self, study: int, folder: Folder) -> _Growing:
        with self._lock:
            kept = self._growing.get(study)
            if kept is None or kept.folder.uri != folder.uri:
                kept = self._growing[study] = _Growing(folder)
            self._growing.move_to_end(study)
            while len(self._growing) > KEPT:
                self._growing.popitem(last=False)
            return kept


def trial_of(run: Run, trial: str) -> TrialRecord:
    """A trial by its id, whose leading zeros may be left out. Raises ServiceError."""
    found = run.record.trials.get(trial) or run.record.trials.get(trial.zfill(5))
    if found is None:
        count = len(run.record.trials)
        raise ServiceError(Code.NOT_FOUND, "a trial is named by its id", repr(trial), f"the run has {count} trials")
    return found


class _Growing:
    """A run whose events are read once, however often it is looked at."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._using = threading.Lock()
        self._follower: EventFollower | None = None
        self._record: RunRecord | None = None
        self._alive = False

    @contextmanager
    def looking(self) -> Iterator[Run]:
        with self._using:
            run = Run(self.folder)
            run.record = self._up_to_date(run)
            yield run

    def _up_to_date(self, run: Run) -> RunRecord:
        alive = run.alive
        if self._record is None or self._follower is None or (self._alive and not alive):
            self._follower, self._record = EventFollower(self.folder), RunRecord(run.metric, run.mode)
        self._alive = alive
        for event in self._follower.new():
            self._record.apply(event)
        if not alive:
            self._record.close()
        return self._record


def _without_run(study: SubmittedStudy) -> ServiceError:
    return ServiceError(
        Code.NOT_FOUND,
        "only a study that has begun has trials and files",
        f"study {study.id}, which is {study.state}",
        "wait for it to begin, or look where its run folder was moved",
    )
