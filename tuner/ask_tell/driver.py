"""One program's work on one run folder: the loop, the lease, users' orders, and the steps after the search."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tuner.errors import ReportError
from tuner.history.events import Event, Listener
from tuner.history.records import Status
from tuner.history.run_info import write_info
from tuner.history.stacks import HUNG
from tuner.lifecycle.conclusion import Conclusion, Outcome, outcome_of
from tuner.lifecycle.description import InfoWriter
from tuner.lifecycle.interruption import Interruption
from tuner.lifecycle.notifier import Notifier
from tuner.lifecycle.obedience import Obedience, Orders
from tuner.lifecycle.report_loading import ReportLoading
from tuner.lifecycle.writing_best import write_as_saved
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.search import Learned
from tuner.storage.folder import Folder
from tuner.storage.lease import Lease
from tuner.study.declaration import Study
from tuner.study.resources import Resources

LOOK_SECONDS = 0.5  # between checks of orders, limits and the lease without requests
ROOM_SECONDS = 1.0  # between checks of the disk
CONCLUSION_SECONDS = 8.0  # of the grace period that are left for the conclusion
_log = logging.getLogger(__name__)  # unless set up, it goes to stderr


class AskDriver:
    """Drives a run for a program that runs its trials; every method except `working` is called within `working`.

    `limit` is how many trials may be out at once, None for as many as are asked for. `leases` are released at the end,
    after `telling` was informed.
    """

    def __init__(
        self,
        study: Study,
        folder: Folder,
        info: dict[str, Any],
        *,
        lease: Lease,
        leases: ExitStack,
        telling: Notifier,
        limit: int | None = None,
        listeners: Iterable[Listener] = (),
        history: Sequence[Event] = (),
        learned: Learned | None = None,
        opening: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self._info, self._lease, self._leases = folder, info, lease, leases
        self._interrupted, self.over = Interruption(), False
        self._cut_off_by: str | None = None
        self._limit, self._telling = limit, telling
        self._parted: set[str] = set()  # trials whose workers were asked to pause, because the search is interrupted
        self._heard: dict[str, float] = {}  # when each running trial reported last
        self._looked = -ROOM_SECONDS
        self._lock = threading.RLock()
        self._changed, self._ended = threading.Condition(self._lock), threading.Event()
        self._info |= {"concurrency": limit, "status": "running", "shared_gpus": None, "asked": True, "wandb": "off"}
        write_info(folder, self._info)
        self.loop = SearchLoop(
            study,
            folder,
            concurrency=limit or 1,
            devices=devices_of(study.resources),
            history=history,
            learned=learned,
            listeners=[
                *listeners,
                *telling.listeners,
                InfoWriter(folder, self._info, self._counts),
                ReportLoading(study.trials, lambda: len(self.loop.record.trials)),
                Obedience(self._info, self._interrupted, lambda: write_info(folder, self._info)),
            ],
            opening=opening,
            before_writing=self._lease.check,
            pause=self._interrupted.ask,
            share_devices=False,
        )
        telling.notice = self.loop.notice
        self._orders = Orders(folder, store_answers=self.loop.flush)

    def begin(self, given: Collection[str] = (), *, ended: bool = False) -> None:
        """Obey orders that wait, see `Orders.obey_what_waits`, and look for further ones."""
        self._orders.obey_what_waits(self.loop, given, ended=ended)
        self._orders.__enter__()
        threading.Thread(target=self._look_on, name="tuner-ask", daemon=True).start()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Lets one call of the program work at a time. An error of the search itself interrupts it, and is raised."""
        with self._changed:
            try:
                yield
            except ReportError:
                raise
            except Exception as error:
                if not self.over:
                    self.end(outcome_of(error, self.folder))
                raise
            finally:
                self._changed.notify_all()

    def wait(self) -> None:
        """Let others work for a moment, or until one of them has."""
        self._changed.wait(LOOK_SECONDS)

    # What to run

    def next(self) -> Start | None:
        """The next trial to run; None if there is none now, or the search is over: then the steps after it are done."""
        self.look()
        if self.over or self._interrupted.is_set():
            return None
        if self._limit is None and self.loop.record.steered.concurrency is None:
            self.loop.wanted = len(self.loop.running) + 1
        start = self.loop.next_action()
        if start is not None:
            self.hear(start.trial)
        elif self.loop.finished:
            self.end(Outcome())
        return start

    @property
    def interrupted_by(self) -> str | None:
        """What asks the search to end early, or has interrupted it; None if it ended by itself."""
        return self._cut_off_by if self.over else self._interrupted.reason

    def is_out(self, trial: str) -> bool:
        """Whether somebody works on the trial and may report."""
        return not self.over and trial in self.loop.running and trial not in self._parted

    def hear(self, trial: str) -> None:
        """Note that the trial's worker was heard from."""
        self._heard[trial] = time.monotonic()

    def parts(self, trial: str) -> bool:
        """Whether a trial that has just reported leaves its worker, because the search is interrupted."""
        if self.over:
            return True
        if self._interrupted.is_set() and trial in self.loop.running:
            self._parted.add(trial)
            return True
        return False

    # What ends the search

    def look(self) -> None:
        """Do what is due: users' orders, trials that hang, limits that were passed long ago, an interruption."""
        if self.over:
            return
        self._lease.check()
        self._orders.obey(self.loop)
        self._lose_hung_trials()
        if time.monotonic() - self._looked >= ROOM_SECONDS:
            self._looked = time.monotonic()
            self.loop.tend_events()
            self.loop.make_room()
        if self.loop.stopped or self.loop.overdue:
            self.end(Outcome())
        elif self._interrupted.is_set() and self._may_leave():
            self.end(Outcome(self._interrupted.reason))

    def close(self, reason: str) -> None:
        """End the search: it is concluded if nothing is left to run, else interrupted for this reason."""
        if self.over:
            return
        self.look()
        if self.over:
            return
        if self._is_done():
            self.end(Outcome())
            return
        self._interrupted.ask(reason)
        self.end(Outcome(self._interrupted.reason))

    def end(self, outcome: Outcome) -> None:
        """Do the steps after the search, and release the run's lease."""
        finished = outcome.finished or self.loop.stopped
        self._cut_off_by = None if finished else outcome.interrupted_by
        self.over = True
        try:
            self._lease.look()
            if not self._lease.lost:
                self._orders.obey_the_last(self.loop, interrupted=not finished)
                write = self._write_winner
                Conclusion(self.loop, self._info, self._interrupted, self._lease, write).perform(outcome)
                self._telling.end()
        finally:
            self._telling.close()
            self._ended.set()
            self._orders.__exit__()
            self._leases.close()
            self._changed.notify_all()

    # Inside

    def _counts(self) -> dict[Status, int]:
        return self.loop.record.counts()

    def _write_winner(self, leave: object) -> list[str]:
        write_as_saved(self.folder, self.loop.record, self.loop.study)
        return []

    def _is_done(self) -> bool:
        """Whether nothing runs and nothing will; the loop only knows this after it was asked for the next trial."""
        record, trials = self.loop.record, self.loop.study.trials
        none_left = trials is not None and len(record.trials) >= trials
        if none_left and not any(trial.live for trial in record.trials.values()):
            self.loop.next_action()
        return self.loop.finished

    def _may_leave(self) -> bool:
        """Whether no trial's next report is worth waiting for."""
        return self.loop.running <= self._parted or self._interrupted.seconds_left() < CONCLUSION_SECONDS

    def _lose_hung_trials(self) -> None:
        """Let trials that have reported nothing for too long be handed out again."""
        failures = self.loop.study.failures
        if failures.hung_seconds is None:
            return
        for trial in sorted(self.loop.running):
            if time.monotonic() - self._heard.get(trial, 0.0) > failures.hung_seconds:
                minutes = f"{failures.hung_minutes:g} minutes (hung_minutes)"
                self.loop.lost(trial, HUNG, f"nothing was reported of it for {minutes}, so it is handed out again")

    def _look_on(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                with self.working():
                    self.look()
            except Exception as error:
                _log.warning("%s: the search has ended: %s", self.folder.uri, error)
                return


def devices_of(resources: Resources) -> float:
    """How many devices a trial counts as in device hours: the GPUs or CPUs that the study declares, else one."""
    amounts = (amount for amount in (resources.gpus, resources.cpus) if isinstance(amount, int | float) and amount)
    return float(next(amounts, 1.0))
