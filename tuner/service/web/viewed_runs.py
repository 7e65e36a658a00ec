"""Recently viewed runs, kept up to date, because reading a long one takes seconds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.events import EventFollower
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.run_info import RUN_FILE
from tuner.history.scored import BEST, METRICS
from tuner.results.run import RecordedRun
from tuner.results.wording import REPORT
from tuner.service.errors import Code, ServiceError
from tuner.service.kept_files import Records
from tuner.service.model import State, SubmittedStudy
from tuner.service.service import Service
from tuner.service.web.event_reader import EventReader
from tuner.service.web.summary import WANDB_STATE
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.locations import open_folder

KEPT = 4
BESIDE_THE_LOG = (RUN_FILE, f"{BEST}/{METRICS}", REPORT, WANDB_STATE)  # further files of answers about a run


class Runs:
    """Runs by their study's number; may be used from several threads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: OrderedDict[int, tuple[Any, RecordedRun]] = OrderedDict()
        self._growing: OrderedDict[int, _Growing] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, study: int) -> RecordedRun:
        """The study's run in its present state, which doesn't change later. Raises ServiceError if it has none yet."""
        run = self._service.run(study)
        if run is None:
            raise _without_run(self._service.study(study))
        stamp = (run.path, EventReader(run.folder).end(), run.folder.modified(RUN_FILE))
        with self._lock:
            before, kept = self._kept.get(study, (None, run))
        if before == stamp:
            run = kept
        elif not run.alive:
            run = _ReadOnce(run.folder, self._grown(study, run.folder))
        with self._lock:
            self._kept[study] = (stamp, run)
            self._kept.move_to_end(study)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return run

    @contextmanager
    def looking(self, study: int) -> Iterator[RecordedRun]:
        """The study's present run, updated by new events only; use it for short work.

        Its record is shared: it changes after the block. Raises ServiceError if the study has no run yet.
        """
        found = self._service.study(study)
        followed = self._service.followed(study) or self._service.ended(study)
        try:
            folder = None if found.run is None else open_folder(found.run)
            if folder is not None and followed is not None and followed.path == found.run:
                run = RecordedRun(folder)
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

    def stamp(self, study: int) -> str | None:
        """A stamp for answers about a study's run: equal while they are valid; None while the run may change."""
        found = self._service.study(study).run
        if found is None or self._service.followed(study) is not None or self._service.ended(study) is not None:
            return None
        try:
            folder = open_folder(found)
            digest = self._grown(study, folder).digest()
        except RunFolderError:
            return None
        if digest is None or not isinstance(folder, LocalFolder):
            return None
        return repr((found, digest, [_stamp_of(folder.path / name) for name in BESIDE_THE_LOG]))

    def _grown(self, study: int, folder: Folder) -> _Growing:
        with self._lock:
            kept = self._growing.get(study)
            if kept is None or kept.folder.uri != folder.uri:
                kept = self._growing[study] = _Growing(folder, self._service.records)
            self._growing.move_to_end(study)
            while len(self._growing) > KEPT:
                self._growing.popitem(last=False)
            return kept


def trial_of(run: RecordedRun, trial: str) -> TrialRecord:
    """A trial by its id, whose leading zeros may be left out. Raises ServiceError."""
    found = run.record.trials.get(trial) or run.record.trials.get(trial.zfill(5))
    if found is None:
        count = len(run.record.trials)
        raise ServiceError(Code.NOT_FOUND, "a trial is named by its id", repr(trial), f"the run has {count} trials")
    return found


class _ReadOnce(RecordedRun):
    """A run that is over, with the record that pages use; it is read when it is first needed."""

    def __init__(self, folder: Folder, grown: _Growing) -> None:
        super().__init__(folder)
        self._grown = grown

    @cached_property
    def record(self) -> RunRecord:
        """The trials, computed from the events."""
        with self._grown.looking() as run:
            return run.record


class _Growing:
    """A run whose events are only read once for all uses; if it is over, perhaps not at all."""

    def __init__(self, folder: Folder, records: Records) -> None:
        self.folder = folder
        self._records = records
        self._using = threading.Lock()
        self._follower: EventFollower | None = None
        self._record: RunRecord | None = None
        self._over = False  # the record is complete and doesn't change

    @contextmanager
    def looking(self) -> Iterator[RecordedRun]:
        with self._using:
            run = RecordedRun(self.folder)
            run.record = self._up_to_date(run)
            yield run

    def digest(self) -> str | None:
        """The digest of an ended run's log, without computing its record; None if it runs, or has damage."""
        with self._using:
            run = RecordedRun(self.folder)
            if run.alive:
                return None
            if self._record is not None and not self._over:
                self._up_to_date(run)
            follower = self._skipped()
            return None if follower.damages else follower.digest

    def _skipped(self) -> EventFollower:
        """A follower of the whole log of a run that is over."""
        if self._follower is None or self._follower.new():
            self._follower, self._record, self._over = EventFollower(self.folder), None, False
            self._follower.skip()
        return self._follower

    def _up_to_date(self, run: RecordedRun) -> RunRecord:
        alive, follower, record = run.alive, self._follower, self._record
        if follower is None or record is None or (self._over and (alive or follower.new())):
            follower, record = self._begun(run, alive)
        if not self._over:
            for event in follower.new():
                record.apply(event)
            if not alive:
                record.close()
                self._over = True
                self._keep(record, follower)
        self._follower, self._record = follower, record
        return record

    def _begun(self, run: RecordedRun, alive: bool) -> tuple[EventFollower, RunRecord]:
        self._over = False
        if not alive:
            follower = self._skipped()
            record = self._records.find(follower.digest, run.metric, run.mode)
            if record is not None:
                follower.know(record.trials)
                self._over = True
                return follower, record
        return EventFollower(self.folder), RunRecord(run.metric, run.mode)

    def _keep(self, record: RunRecord, follower: EventFollower) -> None:
        """Store the record in another thread, so that no answer waits for it."""
        if not follower.damages:
            digest = follower.digest
            threading.Thread(
                target=self._records.keep, args=(record, digest, lambda: follower.digest == digest), daemon=True
            ).start()


def _stamp_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _without_run(study: SubmittedStudy) -> ServiceError:
    hint = "wait for it to begin, or look where its run folder was moved"
    if study.state is State.REFUSED and study.reason:
        hint = f"it was refused: {study.reason}"
    return ServiceError(
        Code.NOT_FOUND,
        "only a study that has begun has trials and files",
        f"study {study.id}, which is {study.state}",
        hint,
    )
