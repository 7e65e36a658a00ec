"""Sending an order to a run, and waiting for the answer, which is an event of the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from tuner.errors import RunFolderError
from tuner.history.events import Event, EventFollower
from tuner.orders.foresight import all_begun, cut_short, too_few_trials, trials_begun, tried_before, used_up
from tuner.orders.inbox import put, waiting, withdraw
from tuner.orders.order import Order, checked
from tuner.results.run import RecordedRun
from tuner.results.wording import extended, going_on_by
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import holder
from tuner.study.budget import NAMES
from tuner.text import command

Outcome = Literal["obeyed", "refused", "waiting", "sent"]
MORE_TRIALS = 10  # by which a message suggests to extend a search whose trials have all run
# `tuner retry` and `tuner confirm` of a run that isn't running are searches of their own
NEED_A_SEARCH = ("stop", "pause", "retry", "confirm")
OF_THEIR_OWN = ("retry", "confirm")
LOOK_SECONDS, REMOTE_LOOK_SECONDS = 0.2, 2.0
LIFE_SECONDS = 2.0  # between checks whether the search still goes on
WRITTEN = "once its winner and report are written"
ENDS = ("study_ended", "study_interrupted")
# It reads orders; begins to, or lets go of the run; writes winner and report, and reads none any more; there is none
Phase = Literal["searching", "changing", "concluding", "none"]


@dataclass(frozen=True)
class Answer:
    """The outcome of an order.

    Attributes:
        order: its id
        verb: what was ordered
        outcome: "obeyed" or "refused" by the search; "waiting" for `resume`, if no search runs; "sent" if nobody waited
            for the answer
        message: the answer in a sentence
    """

    order: str
    verb: str
    outcome: Outcome
    message: str

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


class Sent:
    """An order that is in the inbox of a run."""

    def __init__(self, run: RecordedRun, order: Order, follower: EventFollower, phase: Phase) -> None:
        self.order, self._run, self._follower, self._phase = order, run, follower, phase

    @property
    def running(self) -> bool:
        """Whether a driver will answer: it searches, or is about to; or lets go of the run, which is soon known."""
        return self._phase in ("searching", "changing")

    def answer(self, *, wait: bool = True) -> Answer:
        """The answer; waits for it unless no search runs. Raises RunFolderError if the search ended before."""
        if not self.running:
            ended = self._phase == "concluding"
            return self._told(
                "waiting", self._waits("its search has just ended" if ended else "no search runs on it now")
            )
        if not wait:
            return self._told("sent", "the order is in the inbox of the run")
        return self._wait()

    def _wait(self) -> Answer:
        pause = LOOK_SECONDS if isinstance(self._run.folder, LocalFolder) else REMOTE_LOOK_SECONDS
        looked = time.monotonic()
        while True:
            events = self._follower.new()
            answer = self._answer_in(events)
            if answer is not None:
                return answer
            if any(event["event"] in ENDS for event in events):
                return self._came_too_late()
            if time.monotonic() - looked > LIFE_SECONDS:
                looked = time.monotonic()
                if holder(self._run.folder) is None and not self._now.alive:
                    return self._answer_in(self._follower.new()) or self._came_too_late()
            time.sleep(pause)

    def _answer_in(self, events: list[Event]) -> Answer | None:
        for event in events:
            if event.get("order") == self.order.id and event["event"] in ("order_obeyed", "order_refused"):
                return self._told("obeyed" if event["event"] == "order_obeyed" else "refused", event["message"])
        return None

    def _came_too_late(self) -> Answer:
        if self.order.verb not in NEED_A_SEARCH:
            return self._told("waiting", self._waits("the search ended before it read the order"))
        withdraw(self._run.folder, self.order)
        raise RunFolderError(
            f"{self.order.verb!r} needs a search that runs, got {self._run.path!r}, whose search ended before it read "
            f"the order; see what became of it with: {command('show', self._run.path)}"
        )

    def _waits(self, why: str) -> str:
        after = f" {WRITTEN}," if phase_of(self._now) == "concluding" else ""
        return (
            f"{why}: the order waits in the run's inbox, and{after} is carried out first by: {self._carried_out_by()}"
        )

    def _carried_out_by(self) -> str:
        """What resumes the run, with no more trials than the orders in its inbox need."""
        asked = self.order.arguments.get("trials") if self.order.verb == "set" else None
        trials = _trials_with_ordered(self._now) if self.order.verb == "try" else asked
        return going_on_by(self._run, None if trials is None else {"trials": int(trials)})

    @property
    def _now(self) -> RecordedRun:
        """The run in its present state."""
        return type(self._run)(self._run.folder)

    def _told(self, outcome: Outcome, message: str) -> Answer:
        return Answer(self.order.id, self.order.verb, outcome, message)


def send(run: RecordedRun, verb: str, arguments: Mapping[str, Any], *, by: str | None = None) -> Sent:
    """Put an order into the inbox of a run; `by` is who gives it, if that isn't this process's user.

    Raises StudyError for invalid arguments, RunFolderError if the run can't take such an order now, or its folder isn't
    writable.
    """
    verb, arguments = checked(verb, arguments)
    now: RecordedRun = type(run)(run.folder)  # in its present state
    phase = phase_of(now)
    if phase != "searching":
        if verb in NEED_A_SEARCH:
            raise RunFolderError(
                f"{verb!r} needs a search that runs, got {run.path!r}, {_why_none(now, phase, verb, arguments)}"
            )
        _check_beforehand(now, verb, arguments)
    follower = EventFollower(run.folder)
    follower.new()  # earlier events don't answer this order
    return Sent(run, put(run.folder, verb, arguments, by), follower, phase)


def _why_none(run: RecordedRun, phase: Phase, verb: str, arguments: Mapping[str, Any]) -> str:
    """The state of a run that no search runs on, and what to do: as the end of a sentence."""
    if phase == "changing":
        return "whose driver is starting or ending just now; try again in a few seconds"
    instead = command(verb, run.path) if verb in OF_THEIR_OWN else _resumed_by(run)
    if phase == "concluding":
        return f"whose search has just ended; {WRITTEN}, go on with it by: {instead}"
    what = _trial_now(run, arguments["trial"]) if "trial" in arguments else f"there is nothing to {verb}"
    why = f"which is {run.status}" + ("" if verb in OF_THEIR_OWN else f": {what}")
    return f"{why}; go on with it by: {instead}"


def _trial_now(run: RecordedRun, name: str) -> str:
    """Why a trial can't be ended in a run that has no driver."""
    trial = run.trial(name)
    return f"trial {trial.trial} {'does not run now' if trial.live else 'has ended'}"


def _resumed_by(run: RecordedRun) -> str:
    """What resumes the run: a command, or a Python call if it was started from Python."""
    return going_on_by(run, extended(run, MORE_TRIALS))


def _trials_with_ordered(run: RecordedRun) -> int | None:
    """The total of trials with room for the configurations that wait in the inbox; None if the present one has it."""
    needed = trials_begun(run.record) + sum(order.verb == "try" for order in _orders_that_wait(run))
    limit = {**run.budget, **_limits_that_wait(run)}.get("trials")
    return needed if "trials" in extended(run, 0) or (limit is not None and needed > limit) else None


def _check_beforehand(run: RecordedRun, verb: str, arguments: Mapping[str, Any]) -> None:
    """Refuse at once what the driver would refuse later, as far as that can be known without the study."""
    if verb == "set":
        problem = too_few_trials(run.record, arguments.get("trials"))
        if problem is not None:
            raise RunFolderError(problem)
    elif verb == "try" and run.space.names:
        problem = tried_before(run.record, run.space, run.space.check(arguments["config"], "try"))
        if problem is not None:
            raise RunFolderError(problem)
    elif verb == "note" and "trial" in arguments:
        run.trial(arguments["trial"])


def foreseen(run: RecordedRun, verb: str, arguments: Mapping[str, Any]) -> str | None:
    """The effect of an order that waits, if there is no driver to say it; None if there is nothing to say."""
    now: RecordedRun = type(run)(run.folder)  # in its present state
    budget = {**now.budget, **_limits_that_wait(now)}
    reached = used_up(now.record, budget, now.devices)
    if verb == "try" and reached is not None:
        limit, told = reached
        return f"{told}, nor this one; set another first: {command('set', run.path, limit.option, limit.metavar)}"
    if verb != "set":
        return None
    trials = arguments.get("trials")
    told_of_limits = all_begun(now.record, trials) or (reached and reached[1])
    return told_of_limits or cut_short(now.record, trials, budget.get("hours"))


def _limits_that_wait(run: RecordedRun) -> dict[str, Any]:
    """The limits that orders in the inbox will set."""
    orders = [order for order in _orders_that_wait(run) if order.verb == "set"]
    return {name: value for order in orders for name, value in order.arguments.items() if name in NAMES}


def _orders_that_wait(run: RecordedRun) -> list[Order]:
    """Those in the inbox; none if it can't be read now."""
    try:
        return [order for order in waiting(run.folder) if isinstance(order, Order)]
    except OSError:
        return []


def phase_of(run: RecordedRun) -> Phase:
    """The phase of a run's driver; `run` was read just now."""
    if not run.alive:
        return "none" if holder(run.folder) is None else "changing"
    session = newest_session(run)
    if session and _is_of_an_earlier_driver(session, run):
        return "changing"
    return "concluding" if any(event["event"] in ENDS for event in session) else "searching"


def newest_session(run: RecordedRun) -> list[Event]:
    """The events of the newest driver; empty if there are none."""
    begun = [at for at, event in enumerate(run.events) if event["event"] in ("study_started", "study_resumed")]
    return run.events[begun[-1] :] if begun else []


def _is_of_an_earlier_driver(session: list[Event], run: RecordedRun) -> bool:
    """Whether the present driver took the run only after these events, so that its own are still to come."""
    now = holder(run.folder)
    return now is not None and float(session[-1]["time"]) < datetime.fromisoformat(now.since).timestamp()
