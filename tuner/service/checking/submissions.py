"""Checks the studies that were submitted, in threads of their own: each becomes queued, or refused with a reason.

Users take turns; of one user's studies that with the highest priority comes first. No user has all threads.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from tuner.service.checking.parent import check
from tuner.service.checking.study_facts import Facts, demand_of, refuse_missing
from tuner.service.data_folder import DataFolder
from tuner.service.database import Database, audit, studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Device, Limits, State, SubmittedStudy, of_study
from tuner.service.troubles import Troubles

LOOK_SECONDS = 1.0  # between checks of the queue if nothing announces a study
AT_ONCE = 3
OF_ONE_USER = 2  # of these
_STEP = "check it"
_log = logging.getLogger(__name__)


class Checks:
    """Works until `close`; `tell` is called with each study that was checked."""

    def __init__(
        self,
        database: Database,
        folder: DataFolder,
        limits: Limits,
        devices: Sequence[Device],
        tell: Callable[[int], None],
    ) -> None:
        self._database, self._folder, self._limits, self._devices = database, folder, limits, devices
        self._tell, self._troubles = tell, Troubles(database, lambda study, _: tell(study))
        self._come, self._ended = threading.Event(), threading.Event()
        self._taking, self._taken = threading.Lock(), dict[int, int]()  # studies, with their users
        self._turns, self._turn = dict[int, int](), itertools.count(1)  # when each user's turn was last
        self._threads = [
            threading.Thread(target=self._work, name=f"tuner-check-{number}", daemon=True) for number in range(AT_ONCE)
        ]

    def start(self) -> None:
        """Start, with the studies that were submitted while no server ran."""
        for thread in self._threads:
            thread.start()

    def come(self) -> None:
        """Note that a study was submitted."""
        self._come.set()

    def close(self) -> None:
        """Take no more studies; one that is being checked now is checked again by the next server.

        Afterwards no thread reads the queue any more: the caller may close the database.
        """
        with self._taking:
            self._ended.set()
        self._come.set()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                study = self._next()
            except (sqlite3.Error, ServiceError):  # such as too many open files; it may be over at the next look
                _log.warning("the studies to check can't be read; the server looks again", exc_info=True)
                study = None
            if study is None:
                self._come.wait(LOOK_SECONDS)
                self._come.clear()
                continue
            self._troubles.guarded(study.id, _STEP, partial(self._check, study), expected=())
            with self._taking:
                del self._taken[study.id]
            self._come.set()  # for one of its user's that waited for this

    def _next(self) -> SubmittedStudy | None:
        with self._taking:
            return None if self._ended.is_set() else self._first_to_check()

    def _first_to_check(self) -> SubmittedStudy | None:
        of_users = Counter(self._taken.values())
        with self._database.reading() as connection:
            possible = [
                study
                for study in studies.in_states(connection, [State.CHECKING])
                if study.id not in self._taken
                and of_users[study.user_id] < OF_ONE_USER
                and not self._troubles.rests(study.id, _STEP)
            ]
            if not possible:
                return None
            first = min(possible, key=lambda study: (self._turns.get(study.user_id, 0), -study.priority, study.id))
            found = studies.get(connection, first.id)
        self._taken[first.id], self._turns[first.user_id] = first.user_id, next(self._turn)
        return found

    def _check(self, study: SubmittedStudy) -> None:
        try:
            facts = facts_of_check(study, self._folder, self._limits)
            if self._ended.is_set():
                return
            with self._database.reading() as connection:
                wanted = studies.wanted_devices(connection, study.id)
            demand = demand_of(facts, self._devices, wanted, study.options.get("concurrency"))
        except ServiceError as error:
            if not self._ended.is_set():
                self._refuse(study, str(error))
            return
        self._pass(study, name=facts.name, facts=facts.record(), demand=demand)

    def _pass(self, study: SubmittedStudy, **columns: object) -> None:
        self._leave(study, State.QUEUED, "checked", {"reason": None, **columns})

    def _refuse(self, study: SubmittedStudy, reason: str) -> None:
        self._leave(study, State.REFUSED, "refused", {"reason": reason, "ended": time.time()})

    def _leave(self, study: SubmittedStudy, becomes: State, action: str, columns: dict[str, object]) -> None:
        if self._ended.is_set():  # the next server checks it again
            return
        try:
            with self._database.changing() as connection:
                now = time.time()
                studies.change(connection, study.id, State.CHECKING, becomes, now, **columns)
                audit.write(connection, now, None, action, study.id)
        except ServiceError as error:
            if error.code is Code.FULL:
                self._ended.wait(LOOK_SECONDS)
                return
            if error.code not in (Code.CONFLICT, Code.NOT_FOUND):  # it was cancelled meanwhile
                raise
        self._tell(study.id)


def facts_of_check(study: SubmittedStudy, folder: DataFolder, limits: Limits) -> Facts:
    """The facts of a submitted study; raises ServiceError if it is refused."""
    file, options = folder.bundle(study.id) / study.main, of_study(study.options)
    facts = check(file, options, limits, external=study.external)
    refuse_missing(facts)
    return facts
