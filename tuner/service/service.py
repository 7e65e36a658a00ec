"""For the routes: every change of a study goes through here, is written with its author, and then carried out."""

from __future__ import annotations

import logging
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

from tuner.errors import RunFolderError
from tuner.history.steered import hashtags
from tuner.orders.inbox import put
from tuner.orders.sending import Answer
from tuner.results import load_run
from tuner.results.run import RecordedRun
from tuner.service import bundles, rights, steering, submitting
from tuner.service.checking import check, demand_of
from tuner.service.checking.study_facts import refuse_missing
from tuner.service.checking.submissions import Checks
from tuner.service.data_folder import DataFolder
from tuner.service.database import Database, audit, studies, usage
from tuner.service.devices import DeviceWatch, devices_here, slots
from tuner.service.errors import Code, ServiceError
from tuner.service.executors import Executor, LocalProcesses
from tuner.service.executors.driver_reports import log_part
from tuner.service.executors.local import OF_SEARCHES
from tuner.service.model import (
    OVER,
    Change,
    Device,
    DeviceUse,
    Limits,
    Position,
    Progress,
    State,
    Submission,
    SubmittedStudy,
    UsedDevices,
    User,
    of_study,
)
from tuner.service.search_progress import Followed
from tuner.service.steering import ordered
from tuner.service.supervisor import Supervisor
from tuner.storage.locations import open_folder

CHECKS_AT_ONCE, CHECKS_OF_USER = 4, 2  # that users wait for, and that one user may wait for
FIRST_OF_USER = 3  # in the queue, which everybody is shown
LOG_BYTES = 1_000_000  # of a log that are read at once
Kind = Literal["state", "progress", "priority", "deleted"]
Listener = Callable[[Change], None]
_log = logging.getLogger(__name__)


class Service:
    """The search service of one storage folder; one process at a time may `start` it.

    Everything that reads or changes studies works before `start`, too. All methods may be called from any thread; `now`
    and every time is in seconds since 1970. Each raises `ServiceError` for what a user did wrong: `not_found` for an
    unknown study, `forbidden` if the role or the owner doesn't allow it, `conflict` if the state doesn't.

    Long because it has a method for each thing that a user may do, with who may do it; other modules do the work.
    """

    def __init__(
        self,
        storage: str | Path = "runs",
        *,
        limits: Limits | None = None,
        devices: Sequence[Device] | None = None,
        executor: Executor | None = None,
        passed: Mapping[str, str] | None = None,
    ) -> None:
        """`devices` are by default this machine's; `passed` are environment variables for drivers, also secrets."""
        self.folder = DataFolder(storage)
        self.limits = limits or Limits()
        self.folder.make()
        self.database = Database(self.folder.database)
        self._devices = devices_here() if devices is None else tuple(devices)
        self._watch = DeviceWatch()
        self._listeners = Listeners()
        self._checking = threading.BoundedSemaphore(CHECKS_AT_ONCE)
        self._checked_for, self._counting = Counter[int](), threading.Lock()
        runs = LocalProcesses(passed=passed) if executor is None else executor
        searches = LocalProcesses(OF_SEARCHES, passed=passed)
        held = (*self._devices, *slots(self.limits.external_at_once))
        self._supervisor = Supervisor(self.database, self.folder, held, runs, searches, self._came)
        self._checks = Checks(self.database, self.folder, self.limits, self._devices, self._checked)
        self._working = False

    # The service itself

    def start(self) -> None:
        """Take the lock, adopt the drivers that run, and work until `close`. Raises StudyError if another serves."""
        self.folder.lock()
        self._working = True
        self._checks.start()
        self._supervisor.start()

    def close(self) -> None:
        """Stop working; drivers go on, and the next server adopts them."""
        if self._working:
            self._checks.close()
            self._supervisor.close()
            self.folder.unlock()
            self._working = False
        self.database.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every stored change, in the thread that made it; returns a function that ends this."""
        return self._listeners.add(listener)

    def backup(self, file: str | Path) -> None:
        """Copy the database while it is in use. Raises StudyError if the file exists."""
        self.database.backup(Path(file))

    # Submitting

    def submit(self, submission: Submission, by: User, key: str | None = None) -> SubmittedStudy:
        """Accept a study, which is checked next. A submission with the same `key` is only accepted once.

        Raises ServiceError: `refused`, `too_large`, `too_many`, `forbidden`, `full` (of the server's disk), `conflict`
        for a key of another submission.
        """
        study = submitting.accept(self.database, self.folder, self.limits, submission, by, time.time(), key)
        self._checks.come()
        return self._changed(study, "state")

    def check(self, submission: Submission, by: User) -> Mapping[str, Any]:
        """Check a study without submitting it: returns its facts. Takes up to a minute; stores nothing.

        Raises ServiceError: `refused` with `tuner check`'s own message.
        """
        submitting.check(submission, by, self.limits)
        with self._checks_of_user(by):
            return self._facts(submission)

    @contextmanager
    def _checks_of_user(self, by: User) -> Iterator[None]:
        """Within the block one more check of the user is done. Raises ServiceError if these are too many."""
        with self._counting:
            if self._checked_for[by.id] >= CHECKS_OF_USER:
                rule = f"at most {CHECKS_OF_USER} checks of one user are done at once"
                raise ServiceError(
                    Code.TOO_MANY, rule, f"one more of {by.name!r}", "wait for one of them", retry_after=10
                )
            self._checked_for[by.id] += 1
        try:
            yield
        finally:
            with self._counting:
                self._checked_for[by.id] -= 1

    def _facts(self, submission: Submission) -> Mapping[str, Any]:
        if not self._checking.acquire(timeout=self.limits.check_seconds):
            raise ServiceError(
                Code.TOO_MANY,
                f"at most {CHECKS_AT_ONCE} studies are checked at once",
                "one more",
                "try again in a minute",
                retry_after=60,
            )
        try:
            with tempfile.TemporaryDirectory(dir=self.folder.path, prefix=".check-") as temporary:
                bundle = bundles.written(submission.files, Path(temporary))
                file, options = bundle / submission.main, of_study(submission.options)
                facts = check(file, options, self.limits, external=submission.external)
        finally:
            self._checking.release()
        refuse_missing(facts)
        demand = demand_of(facts, self._devices, submission.devices, submission.options.get("concurrency"))
        return {**facts.record(), "demand": asdict(demand)}

    # Looking

    def study(self, study: int) -> SubmittedStudy:
        """A submitted study by its id."""
        with self.database.reading() as connection:
            return studies.get(connection, study)

    def studies(
        self,
        *,
        state: State | Collection[State] | None = None,
        user: str | None = None,
        before: int | None = None,
        limit: int | None = None,
        text: str = "",
    ) -> list[SubmittedStudy]:
        """The newest studies first, those below the id `before`; at most `limit`, by default a page.

        With every word of `text` in name, user, `@id` or `#tag`.
        """
        states = () if state is None else (state,) if isinstance(state, State) else tuple(state)
        return self._listed(states, user, before, limit or self.limits.page, text)

    def _listed(
        self, states: Collection[State], user: str | None, before: int | None, limit: int, text: str
    ) -> list[SubmittedStudy]:
        """The newest studies in these states (in all if none is given)."""
        with self.database.reading() as connection:
            return studies.page(connection, states=states, user=user, before=before, limit=limit, text=text)

    def first_in_line(
        self, places: Mapping[int, Position], most: int, by: User
    ) -> tuple[list[SubmittedStudy], dict[str, int]]:
        """At most so many studies of the queue, and how many each user has there: the next ones of each user and all
        of who asks, then those that come next. Those that start just now have no place any more.
        """
        with self.database.reading() as connection:
            queued, before = studies.queued(connection), Counter[str]()
            behind = dict[int, int]()  # by study: how many of its user's come before it
            for study in sorted(queued, key=lambda study: places[study].position if study in places else 0):
                behind[study] = before[queued[study]]
                before[queued[study]] += 1
            first = sorted(behind, key=lambda study: behind[study] >= FIRST_OF_USER and queued[study] != by.name)
            return studies.of_ids(connection, first[:most]), dict(before)

    def queue(self) -> list[Position]:
        """The place of each waiting study, the next one first."""
        return list(self._supervisor.positions())

    def devices(self) -> list[DeviceUse]:
        """Each device of this server, and who has it."""
        with self.database.reading() as connection:
            holders = studies.holding(connection)
        return self._watch.uses(self._devices, holders, self._supervisor.places())

    def usage(self, since: float) -> list[UsedDevices]:
        """Device-hours of each study since a time, those with most first."""
        with self.database.reading() as connection:
            return usage.since(connection, since, time.time())

    def run(self, study: int) -> RecordedRun | None:
        """The study's run as it is now; None while it has none."""
        path = self.study(study).run
        try:
            return None if path is None else load_run(path)
        except RunFolderError:  # deleted meanwhile
            return None

    def progress(self, study: int) -> Progress | None:
        """The progress of the study's search, from its events while it runs, else at its end; None before."""
        told = self.study(study).progress
        stored = Progress(**{**told, "left": None, "still": None}) if told else None
        return self._supervisor.progress(study) or stored

    def followed(self, study: int) -> Followed | None:
        """The running search of a study, from its events; None if none runs."""
        return self._supervisor.followed(study)

    def driver_log(self, study: int, start: int = 0, most: int = LOG_BYTES) -> bytes:
        """What the study's newest driver printed, after the first `start` bytes; trials have logs of their own."""
        return log_part(self.folder.attempt(study, self.study(study).attempt), start, most)

    def history(
        self, study: int | None = None, *, before: int | None = None, limit: int | None = None
    ) -> list[audit.AuditEntry]:
        """Who changed what, the newest first, those below the id `before`: of one study or of all."""
        with self.database.reading() as connection:
            return audit.entries(connection, study=study, before=before, limit=limit or self.limits.page)

    # Changing

    def pause(self, study: int, by: User) -> SubmittedStudy:
        """Free its devices; `resume` goes on with it."""
        return self._perform(steering.PAUSE, study, by)

    def resume(self, study: int, by: User) -> SubmittedStudy:
        """Put a paused or failed study into the queue again."""
        return self._perform(steering.RESUME, study, by)

    def finish(self, study: int, by: User) -> SubmittedStudy:
        """End its search now, with a winner and a report; a paused one gets devices for that first."""
        with self.database.changing() as connection:
            found = studies.get(connection, study)
            rights.require_own(by, found, "finishing a study")
            changed = steering.perform(connection, steering.FINISH, found, by, time.time())
            if changed and not found.devices and found.run is not None:
                put(open_folder(found.run), "stop", {}, by.name)  # its next driver obeys this first
        return self._changed(study, "state") if changed else self.study(study)

    def cancel(self, study: int, by: User) -> SubmittedStudy:
        """End it at once without a winner or a report; its files stay."""
        return self._perform(steering.CANCEL, study, by)

    def change(
        self,
        study: int,
        by: User,
        *,
        priority: int | None = None,
        limits: Mapping[str, float | None] | None = None,
        concurrency: int | None = None,
    ) -> SubmittedStudy:
        """Change its priority, limits of its budget by their names (a finished one goes on), or trials at once.

        A running search gets an order, whose answer is an event of the run.
        """
        given = {name: value for name, value in (limits or {}).items() if value is not None}
        if priority is None and not given and concurrency is None:
            raise ServiceError(Code.REFUSED, "a change needs a priority, limits or concurrency", "none", "name one")
        steering.check_limits(given, concurrency)
        with self.database.changing() as connection:
            found = studies.get(connection, study)
            rights.require_own(by, found, "changing a study")
            if priority is not None:
                studies.update(connection, study, priority=rights.check_priority(by, priority))
                audit.write(connection, time.time(), by, "priority", study, before=found.priority, after=priority)
            if given or concurrency is not None:
                self._set(connection, found, given, concurrency, by)
        return self._changed(study, "priority" if priority is not None and not given else "state")

    def try_(self, study: int, by: User, config: Mapping[str, Any]) -> Answer:
        """Run a trial with this configuration next; missing hyperparameters are sampled. Answers at once: "sent" or
        "waiting".
        """
        return self._steer(study, by, "try", {"config": dict(config)})

    def stop_trial(self, study: int, by: User, trial: str | int) -> Answer:
        """End one trial."""
        return self._steer(study, by, "stop", {"trial": trial})

    def note(self, study: int, by: User, text: str, trial: str | int | None = None) -> Answer:
        """Write a note about a study's run, or about one of its trials."""
        return self._steer(study, by, "note", {"text": text, "trial": trial})

    def tags(self, ids: Sequence[int]) -> dict[int, list[str]]:
        """What the notes about these studies, written through the service, have as #words; also for W&B and MLflow."""
        with self.database.reading() as connection:
            return {study: hashtags(texts) for study, texts in audit.notes(connection, ids).items()}

    def delete(self, study: int, by: User) -> None:
        """Forget a study that is over, and its bundle; its run folder stays, with the modules that it imports."""
        with self.database.changing() as connection:
            found = studies.get(connection, study)
            rights.require_own(by, found, "deleting a study")
            if found.state not in OVER or found.devices:
                raise ServiceError(
                    Code.CONFLICT, "delete needs a study that is over", f"one that is {found.state}", "cancel it first"
                )
            studies.update(connection, study, deleted=time.time())
            audit.write(connection, time.time(), by, "delete", study, name=found.name)
        self.folder.forget(study, bundle=found.run is None)
        self._listeners.tell(Change(study, "deleted", found.state))

    # Inside

    def _perform(self, verb: steering.Verb, study: int, by: User) -> SubmittedStudy:
        with self.database.changing() as connection:
            found = studies.get(connection, study)
            rights.require_own(by, found, f"{verb.name} of a study")
            changed = steering.perform(connection, verb, found, by, time.time())
        return self._changed(study, "state") if changed else self.study(study)

    def _set(
        self,
        connection: sqlite3.Connection,
        study: SubmittedStudy,
        limits: Mapping[str, float],
        concurrency: int | None,
        by: User,
    ) -> None:
        """Set limits: for a waiting study they are stored for its driver, a running one gets an order."""
        told = {**limits, **({} if concurrency is None else {"concurrency": concurrency})}
        if study.state in (State.REFUSED, State.CANCELLED, State.ENDING):
            raise ServiceError(
                Code.CONFLICT, "limits need a study that goes on", f"one that is {study.state}", "submit it again"
            )
        steering.check_above(study, limits)
        if study.devices and study.run is not None:
            self._order(study, "set", told, by)
        elif limits:
            studies.update(connection, study.id, limits={**study.limits, **limits})
        if concurrency is not None:
            steering.set_concurrency(connection, study, concurrency, self._devices)
        if study.state is State.FINISHED and limits:
            studies.change(connection, study.id, study.state, State.QUEUED, time.time(), ended=None, reason=None)
        audit.write(connection, time.time(), by, "set", study.id, **told)

    def _steer(self, study: int, by: User, verb: str, arguments: Mapping[str, Any]) -> Answer:
        found = self.study(study)
        rights.require_own(by, found, f"{verb!r} of a study")
        answer = self._order(found, verb, arguments, by)
        with self.database.changing() as connection:
            audit.write(connection, time.time(), by, verb, study, **arguments)
        return answer

    def _order(self, study: SubmittedStudy, verb: str, arguments: Mapping[str, Any], by: User) -> Answer:
        """Send the study's search an order. Raises ServiceError if no search runs, or it takes no orders now."""
        return ordered(study, self.run(study.id), verb, arguments, by)

    def _changed(self, study: int, kind: Kind) -> SubmittedStudy:
        found = self.study(study)
        self._listeners.tell(Change(study, kind, found.state))
        self._supervisor.come()
        return found

    def _checked(self, study: int) -> None:
        with suppress(ServiceError):  # deleted meanwhile
            self._changed(study, "state")

    def _came(self, study: int, kind: Kind) -> None:
        """Handle what the supervisor tells."""
        with suppress(ServiceError):
            self._listeners.tell(Change(study, kind, self.study(study).state))


class Listeners:
    """Functions that are called with each change; may be used from any thread."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._changing = threading.Lock()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call this one, too; returns a function that removes it."""
        with self._changing:
            self._listeners.append(listener)

        def leave() -> None:
            with self._changing, suppress(ValueError):
                self._listeners.remove(listener)

        return leave

    def tell(self, change: Change) -> None:
        """Call each of them; an error of one doesn't affect the others."""
        with self._changing:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener(change)
            except Exception:
                _log.exception("a listener failed")
