"""Starts, follows, pauses and ends drivers as the queue requires, in one thread.

All lasting state is outside of its memory: that of studies in the database, that of drivers in their folders. So a
server that starts after another was killed goes on where that one stopped, with the drivers that it finds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from tuner.errors import RunFolderError, describe_error
from tuner.orders.inbox import put
from tuner.results import load_run
from tuner.service.allotments import allotment_of, given_back
from tuner.service.allotments import tell as tell_allotment
from tuner.service.data_folder import DataFolder
from tuner.service.database import Database, audit, studies, usage, webhooks
from tuner.service.executors import Executor, Look, Task
from tuner.service.executors.driver_reports import note_end
from tuner.service.model import Device, Position, Progress, State, SubmittedStudy, of_driver, of_study
from tuner.service.outcomes import Next, RunEnd, after, unreadable
from tuner.service.scheduling import Foresight, Plan, Resize, Share, Start, plan
from tuner.service.search_progress import Followed
from tuner.service.steering import GOING_ON
from tuner.service.thread import ServerThread
from tuner.service.troubles import Tell, Troubles
from tuner.storage.locations import open_folder

LOOK_SECONDS = 0.3  # between two passes
PLAN_SECONDS = 2.0  # after which a new plan is made even without changes
PLAN_SHARE = 4.0  # pause after a plan, as a multiple of its time: planning takes at most a fifth of the thread
PATIENCE_SECONDS = 60.0  # after which a driver that was told to pause is interrupted, and once more later killed
TYPICAL_SECONDS = 30.0  # between updates of how long studies take
LOG_END_BYTES = 4_000
_ORDERS = {State.PAUSING: "pause", State.ENDING: "stop"}
_log = logging.getLogger(__name__)


class Supervisor:
    """Works from `start` to `close`; `tell` is called with a study and what changed: "state" or "progress".

    `searches` runs the drivers of external studies, `executor` all others.

    Long because one thread takes every step, and a step reads what the previous one left.
    """

    def __init__(
        self,
        database: Database,
        folder: DataFolder,
        devices: Sequence[Device],
        executor: Executor,
        searches: Executor,
        tell: Tell,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._folder, self._devices = database, folder, tuple(devices)
        self._executor, self._searches, self._tell, self._clock = executor, searches, tell, clock
        self._troubles = Troubles(database, tell, clock)
        self._followed: dict[int, Followed] = {}
        self._ordered: set[tuple[int, int, str]] = set()  # study, attempt and verb of given orders
        self._best: dict[int, float] = {}  # by study: the last value sent to webhooks
        self._keep: dict[int, int] = {}  # by study: how many devices it should give back down to
        self._typical: dict[str, float] = {}
        self._typical_at = 0.0
        self._newest = -1, 0.0, tuple[Position, ...]()  # the database's state, when, and places of the last plan
        self._planned_for, self._plan_at, self._rest_until = -1, 0.0, 0.0
        self._come = threading.Event()
        self._thread = ServerThread(self._work, "tuner-supervisor")

    def start(self) -> None:
        """Start; running drivers are followed within a moment."""
        self._thread.start()

    def come(self) -> None:
        """Wake it up: something has changed."""
        self._come.set()

    def close(self) -> None:
        """End after the present pass; drivers go on."""
        self._thread.end(wake=self._come.set)

    def progress(self, study: int) -> Progress | None:
        """The progress of a running study."""
        followed = self._followed.get(study)
        return None if followed is None else followed.progress()

    def followed(self, study: int) -> Followed | None:
        """The search of a running study."""
        return self._followed.get(study)

    def places(self) -> dict[str, str]:
        """The running trials of all studies by their GPUs."""
        return {device: trial for one in list(self._followed.values()) for device, trial in one.places.items()}

    def step(self) -> None:
        """One pass: look at each driver, then do what the plan says."""
        with self._database.reading() as connection:
            holders = studies.holding(connection)
        for study in holders:
            self._troubles.guarded(study.id, "look after its driver", partial(self._watch, study))
        for gone in self._followed.keys() - {study.id for study in holders}:
            del self._followed[gone]
        changed = self._database.commits != self._planned_for and time.monotonic() > self._rest_until
        if changed or time.monotonic() > self._plan_at:
            self._planned_for = self._database.commits  # before the plan is made, so that later changes count
            begun = time.thread_time()  # not wall-clock time: a busy machine is no reason to pause longer
            found = self.planned()
            self._newest = self._planned_for, time.monotonic(), found.positions
            self._apply(found)
            took = time.thread_time() - begun
            self._plan_at = time.monotonic() + max(PLAN_SECONDS, PLAN_SHARE * took)
            self._rest_until = time.monotonic() + PLAN_SHARE * took

    def positions(self) -> tuple[Position, ...]:
        """Where each waiting study stands, by a plan of the last seconds if nothing has changed since."""
        commits, at, found = self._newest
        if commits == self._database.commits and time.monotonic() - at < PLAN_SECONDS:
            return found
        return self.planned().positions

    def planned(self) -> Plan:
        """The present plan."""
        now = self._clock()
        with self._database.reading() as connection:
            known = [self._as_far_as_left(study) for study in studies.to_schedule(connection)]
            if now - self._typical_at > TYPICAL_SECONDS:
                self._typical, self._typical_at = studies.typical_seconds(connection), now
            hours = usage.decayed(connection, now)
            week = usage.of_users(connection, now - usage.WEEK_SECONDS, now)
            users = connection.execute("SELECT id, weight, most_devices, most_hours FROM users").fetchall()
        shares = {user: Share(used) for user, used in hours.items()} | {
            user: Share(hours.get(user, 0.0), weight, most, most_hours, week.get(user, 0.0))
            for user, weight, most, most_hours in users
        }
        followed = dict(self._followed)
        ends = {study: end for study, one in followed.items() if (end := one.ends) is not None}
        lasts = {study.id: self._typical[study.name] for study in known if study.name in self._typical}
        return plan(known, self._devices, shares, now, Foresight(ends, lasts))

    def _as_far_as_left(self, study: SubmittedStudy) -> SubmittedStudy:
        """The study with no more devices in its demand than its driver and the trials that are left can use.

        Those of a driver that starts, concludes, or knows nothing of allotments are fixed.
        """
        if not study.devices or study.demand.fixed:
            return study
        told = allotment_of(self._folder.attempt(study.id, study.attempt))
        if told is None or told.over:
            return replace(study, demand=replace(study.demand, fixed=True))
        found, least = self.progress(study.id), study.demand.least
        study = replace(study, demand=replace(study.demand, count=min(study.demand.count, told.most)))
        if found is None or found.wanted is None:
            return study
        left = found.wanted - sum(count for status, count in found.trials.items() if status not in GOING_ON)
        runs = found.trials.get("running", 0)
        left = left if left >= runs else runs + 1  # further ones, which confirm what was found
        return replace(study, demand=replace(study.demand, count=max(least, min(study.demand.count, left * least))))

    # The thread

    def _work(self) -> None:
        while not self._thread.ending:
            try:
                self.step()
            except Exception:  # the disk is full, or temporarily gone: runs go on, and the next pass tries again
                _log.exception("a pass over the queue failed")
                self._thread.rest(1.0)
            self._come.wait(LOOK_SECONDS)
            self._come.clear()

    # Drivers that run

    def _runs(self, study: SubmittedStudy) -> Executor:
        return self._searches if study.external else self._executor

    def _watch(self, study: SubmittedStudy) -> None:
        folder = self._folder.attempt(study.id, study.attempt)
        look = self._runs(study).look(folder)
        if look.run is not None and study.state is not State.CANCELLED:
            study = self._begun(study, look.run)
            self._troubles.guarded(study.id, "read its run", partial(self._follow, study, look.run))
        problem = look.problem or self._troubles.of(study.id)
        if study.state in (State.STARTING, State.RUNNING) and study.reason != problem and look.state != "gone":
            self._explain(study, problem)
        if look.state == "gone":
            self._end(study, look)
        elif study.state is State.CANCELLED:
            self._runs(study).kill(folder)
        elif study.state in _ORDERS:
            self._order(study, look)
        else:
            self._troubles.guarded(study.id, "share its devices", partial(self._share, study, folder))

    def _explain(self, study: SubmittedStudy, problem: str | None) -> None:
        """Store why nothing newer is known about a running study, or that this problem is over."""
        with self._database.changing() as connection:
            studies.update(connection, study.id, reason=problem)
        self._tell(study.id, "state")

    def _begun(self, study: SubmittedStudy, run: str) -> SubmittedStudy:
        """The study, once its driver's run folder exists."""
        if study.state is not State.STARTING and study.run == run:
            return study
        with self._database.changing() as connection:
            now = self._clock()
            if study.state is State.STARTING:
                studies.change(connection, study.id, study.state, State.RUNNING, now, run=run, limits={}, reason=None)
                audit.write(connection, now, None, "running", study.id, run=run)
            else:
                studies.update(connection, study.id, run=run, limits={})
            found = studies.get(connection, study.id)
        self._tell(study.id, "state")
        return found

    def _follow(self, study: SubmittedStudy, run: str) -> None:
        with suppress(RunFolderError, OSError):  # the run was deleted meanwhile
            followed = self._followed.get(study.id)
            if followed is None or followed.path != run:
                followed = self._followed[study.id] = Followed(run, self._clock)
            if followed.new():
                self._came_on(study, followed)

    def _came_on(self, study: SubmittedStudy, followed: Followed) -> None:
        if study.deaths and followed.has_come_on:
            with self._database.changing() as connection:
                studies.update(connection, study.id, deaths=0)
        self._tell_best(study, followed)
        self._tell(study.id, "progress")

    def _tell_best(self, study: SubmittedStudy, followed: Followed) -> None:
        """Send webhooks a best value that is new to this server; the database knows whether it was sent before."""
        found = followed.progress()
        if found.best is not None and self._best.get(study.id) != found.best:
            with self._database.changing() as connection:
                webhooks.tell_best(connection, study, found, self._clock())
            self._best[study.id] = found.best

    def _order(self, study: SubmittedStudy, look: Look) -> None:
        """Send a driver an order once; if it doesn't obey in time, interrupt it, then kill it."""
        verb, waited = _ORDERS[study.state], self._clock() - study.changed
        given = (study.id, study.attempt, verb)
        if look.run is not None and given not in self._ordered:
            put(open_folder(look.run), verb, {}, by=(study.reason and study.reason.partition(" by ")[2]) or None)
            self._ordered.add(given)
        if verb == "pause" and waited > PATIENCE_SECONDS:
            folder = self._folder.attempt(study.id, study.attempt)
            if waited > 2 * PATIENCE_SECONDS:
                self._runs(study).kill(folder)
            elif (study.id, study.attempt, "interrupt") not in self._ordered:
                self._runs(study).interrupt(folder)
                self._ordered.add((study.id, study.attempt, "interrupt"))

    # Devices that change hands

    def _share(self, study: SubmittedStudy, folder: Path) -> None:
        """Take what its driver has given back, and tell it what it has now, and how much of it to keep."""
        told = allotment_of(folder)
        if told is None:
            return
        back = given_back(told, study.devices)
        devices = tuple(device for device in study.devices if device not in back)
        if not devices:  # what holds nothing has no driver
            return
        if back:
            self._hold(study, devices, "gives devices back")
        if (followed := self._followed.get(study.id)) is not None:
            followed.at_once = told.at_once
        if not told.over:
            tell_allotment(folder, told, devices, min(self._keep.get(study.id, len(devices)), len(devices)))

    def _resize(self, resize: Resize) -> None:
        """Give a study that runs more devices; its driver is told of them at the next pass."""
        with self._database.reading() as connection:
            study = studies.get(connection, resize.study)
        if study.state not in (State.STARTING, State.RUNNING):  # it was asked to pause meanwhile
            return
        self._hold(study, (*study.devices, *resize.more), "gets devices")

    def _hold(self, study: SubmittedStudy, devices: tuple[Device, ...], action: str) -> None:
        with self._database.changing() as connection:
            now = self._clock()
            studies.update(connection, study.id, devices=devices)
            usage.resize(connection, study.id, study.user_id, devices, now)
            audit.write(connection, now, None, action, study.id, devices=_in_words(devices))
        self._tell(study.id, "state")

    # Drivers that are gone

    def _end(self, study: SubmittedStudy, look: Look) -> None:
        run = look.run or study.run
        following = self._following(study, look)
        if study.state is State.ENDING and following.state is State.QUEUED:
            self._order(study, replace(look, run=run))
        columns = {**following.columns, "devices": (), **({"run": run} if run is not None else {})}
        followed = self._followed.pop(study.id, None)
        self._troubles.forget(study.id)
        if followed is not None:
            self._troubles.tried(study.id, "read its run to the end", partial(self._close, study, followed, columns))
        with self._database.changing() as connection:
            now = self._clock()
            if following.state is None:
                studies.update(connection, study.id, **columns)
            else:
                studies.change(connection, study.id, study.state, following.state, now, **columns)
            usage.end(connection, study.id, now)
            audit.write(connection, now, None, following.action, study.id, reason=columns.get("reason"))
        self._tell(study.id, "state")

    def _following(self, study: SubmittedStudy, look: Look) -> Next:
        """The next state of a study whose driver has ended; its devices are freed even if this fails."""
        try:
            folder = self._folder.attempt(study.id, study.attempt)
            log = self._runs(study).log(folder, LOG_END_BYTES).decode(errors="replace")
            end = _run_end(look.run or study.run)
            if end is not None and look.run is None and end.status in ("finished", "failed"):
                end = None  # what an earlier driver left
            return after(study, look, end, log, self._clock())
        except Exception as error:
            _log.exception("study %d: what its driver left can't be read", study.id)
            return unreadable(study, describe_error(error), self._clock())

    def _close(self, study: SubmittedStudy, followed: Followed, columns: dict[str, object]) -> None:
        """Read the last events of a search, and store its result."""
        followed.close()
        self._tell_best(study, followed)
        self._best.pop(study.id, None)
        columns["progress"] = asdict(followed.progress())

    # The plan

    def _apply(self, found: Plan) -> None:
        for study, reason in found.hopeless:
            self._troubles.guarded(study, "end it", partial(self._give_up, study, reason))
        for pause in found.pauses:
            self._troubles.guarded(pause.study, "pause it", partial(self._make_room, pause.study, pause.room_for))
        self._keep = {resize.study: resize.keep for resize in found.resizes}
        for resize in found.resizes:
            if resize.more:
                self._troubles.guarded(resize.study, "give it devices", partial(self._resize, resize))
        for start in found.starts:
            self._troubles.guarded(start.study, "start its driver", partial(self._start, start))

    def _give_up(self, study: int, reason: str) -> None:
        self._change(study, State.FAILED, "failed", reason=reason, ended=self._clock())

    def _make_room(self, study: int, room_for: int) -> None:
        self._change(study, State.PAUSING, "preempted", reason=f"makes room for study {room_for}", room_for=room_for)

    def _change(self, study: int, becomes: State, action: str, **columns: object) -> None:
        with self._database.changing() as connection:
            now = self._clock()
            found = studies.get(connection, study)
            studies.change(connection, study, found.state, becomes, now, **columns)
            audit.write(connection, now, None, action, study, reason=columns.get("reason"))
        self._tell(study, "state")

    def _start(self, start: Start) -> None:
        """Record in the database that a driver starts, then start it: an unknown driver is worse than a missing one."""
        with self._database.changing() as connection:
            now = self._clock()
            study = studies.get(connection, start.study)
            number = study.attempt + 1
            columns = {"devices": start.devices, "attempt": number, "started": study.started or now, "reason": None}
            studies.change(connection, study.id, State.QUEUED, State.STARTING, now, **columns)
            usage.begin(connection, study.id, study.user_id, start.devices, now)
            audit.write(connection, now, None, "starting", study.id, devices=_in_words(start.devices))
        self._tell(study.id, "state")
        folder = self._folder.attempt(study.id, number)
        try:
            self._runs(study).start(self._task(study, start.devices), folder)
        except OSError as error:  # too many processes, or a full disk
            self._troubles.warn(study.id, f"its driver could not be started: {describe_error(error)}")
        except Exception as error:  # an unexpected error also counts as a death
            _log.exception("study %d: its driver could not be started", study.id)
            note_end(folder, f"it could not be started: {describe_error(error)}")

    def _task(self, study: SubmittedStudy, devices: tuple[Device, ...]) -> Task:
        goes_on = study.run is not None
        limits = dict(study.limits)
        ended = _run_end(study.run)
        present = [device for device in self._devices if device.kind == study.demand.kind]
        return Task(
            study=None if goes_on else str(self._folder.bundle(study.id) / study.main),
            run=study.run,
            storage=str(self._folder.storage),
            options={} if goes_on else {**of_study(study.options), **limits},
            limits=limits if goes_on else {},
            driving=of_driver(study.options),
            retry=ended is not None and ended.status == "failed" and not limits,
            devices=devices,
            each=float(study.facts.get("each", 1.0)),
            most=0 if study.demand.fixed else len(present),
            expected=0 if study.demand.fixed else max(study.demand.count, len(devices)),
            others=() if study.demand.fixed else tuple(device for device in present if device not in devices),
        )


def _in_words(devices: tuple[Device, ...]) -> list[list[object]]:
    return [list(vars(device).values()) for device in devices]


def _run_end(path: str | None) -> RunEnd | None:
    """What the run folder says about its search; None if there is no run folder."""
    if path is None:
        return None
    with suppress(RunFolderError):
        run = load_run(path)
        return RunEnd(run.status, run.info.get("interrupted_by"), run.alive)
    return None
