"""Recently viewed runs, kept while nothing happens to them, because reading a long one takes part of a second."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tuner.errors import RunFolderError
from tuner.history.records import TrialRecord
from tuner.history.run_info import RUN_FILE
from tuner.history.scored import BEST, METRICS
from tuner.results.run import RecordedRun
from tuner.service.errors import Code, ServiceError
from tuner.service.model import State, SubmittedStudy
from tuner.service.service import Service
from tuner.service.web.event_reader import EventReader
from tuner.storage.folder import Folder
from tuner.storage.locations import open_folder

KEPT = 4
BESIDE_THE_LOG = (RUN_FILE, f"{BEST}/{METRICS}")  # further files that a run is read from
REST, LONGEST_REST = 10.0, 60.0  # how old a long computation's result may be: times the CPU time it took; seconds
T = TypeVar("T")


class Runs:
    """Runs by their study's number; may be used from several threads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: OrderedDict[int, tuple[Any, RecordedRun]] = OrderedDict()
        # By study, status of its run, and what was computed, with the time until which it counts
        self._computed: dict[tuple[int, str, str], tuple[float, Any]] = {}
        self._lock = threading.Lock()
        self._computing: defaultdict[tuple[int, str], threading.Lock] = defaultdict(threading.Lock)
        self._reading: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def get(self, study: int) -> RecordedRun:
        """The study's run in its present state, which doesn't change later. Raises ServiceError if it has none yet."""
        run = self._service.run(study)
        if run is None:
            raise _without_run(self._service.study(study))
        with self._lock:
            reading = self._reading[study]
        with reading:  # others that ask for the same run wait for this reading
            beside = [_modified(run.folder, name) for name in BESIDE_THE_LOG]
            stamp = (run.path, run.status, EventReader(run.folder).end(), beside)
            before, kept = self._kept.get(study, (None, run))
            if before != stamp:
                kept = run
                _ = kept.record
            with self._lock:
                self._kept[study] = (stamp, kept)
                self._kept.move_to_end(study)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return kept

    @contextmanager
    def looking(self, study: int) -> Iterator[RecordedRun]:
        """The study's present run; while its search is followed, updated by new events only. Use it for short work.

        Its record is shared: it changes after the block. Raises ServiceError if the study has no run yet.
        """
        found, followed = self._service.study(study), self._service.followed(study)
        if found.run is None or followed is None or followed.path != found.run:
            yield self.get(study)
            return
        try:
            run = RecordedRun(open_folder(found.run))
        except RunFolderError as error:
            raise _without_run(found) from error
        with followed.looking() as record:
            run.record = record
            yield run

    def computed(self, study: int, name: str, compute: Callable[[RecordedRun], T]) -> T:
        """What `compute` finds in a study's run, by its name: it may take seconds, so that it is reused for ten times
        as long as it took, at most a minute.
        """
        run = self._service.run(study)
        if run is None:
            raise _without_run(self._service.study(study))
        key = study, run.status, name
        with self._lock:
            computing = self._computing[study, name]
        with computing:  # others that ask for the same wait for it
            with self._lock:
                self._computed = {one: kept for one, kept in self._computed.items() if kept[0] > time.monotonic()}
                if key in self._computed:
                    kept: T = self._computed[key][1]
                    return kept
            whole, begun = self.get(study), time.thread_time()
            found = compute(whole)
            rest = min(LONGEST_REST, REST * (time.thread_time() - begun))
            with self._lock:
                self._computed[key] = (time.monotonic() + rest, found)
            return found


def trial_of(run: RecordedRun, trial: str) -> TrialRecord:
    """A trial by its id, whose leading zeros may be left out. Raises ServiceError."""
    found = run.record.named(trial)
    if found is None:
        count = len(run.record.trials)
        raise ServiceError(Code.NOT_FOUND, "a trial is named by its id", repr(trial), f"the run has {count} trials")
    return found


def _modified(folder: Folder, name: str) -> float | None:
    try:
        return folder.modified(name)
    except OSError:  # missing, such as the score while there is none
        return None


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
