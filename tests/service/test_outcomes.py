"""What follows from a driver's end, rule by rule."""

from typing import Any

import pytest

from tests.service.test_scheduling import running
from tuner.service.executors import Ended, Look
from tuner.service.model import State, SubmittedStudy
from tuner.service.outcomes import RunEnd, after

NOW = 100.0
GONE = Look("gone")
INTERRUPTED = RunEnd("interrupted")


def study(state: State = State.RUNNING, **changes: Any) -> SubmittedStudy:
    return running(1, 0, state=state, **changes)


def test_a_search_that_came_to_its_end_is_finished_or_failed_whatever_was_wanted() -> None:
    for state in (State.STARTING, State.RUNNING, State.PAUSING, State.ENDING):
        assert after(study(state), GONE, RunEnd("finished"), "", NOW).state is State.FINISHED
        failed = after(study(state), GONE, RunEnd("failed"), "", NOW)
        assert (failed.state, failed.columns["reason"]) == (State.FAILED, "no trial of the search succeeded")


def test_a_cancelled_study_stays_cancelled() -> None:
    assert after(study(State.CANCELLED), GONE, RunEnd("finished"), "", NOW).state is None


def test_a_pause_leads_to_paused_and_one_for_another_study_back_to_the_queue() -> None:
    paused = after(study(State.PAUSING, reason="paused by anne"), GONE, INTERRUPTED, "", NOW)
    assert (paused.state, paused.columns["reason"]) == (State.PAUSED, "paused by anne")
    made_room = after(study(State.PAUSING, room_for=7), GONE, INTERRUPTED, "", NOW)
    assert made_room.state is State.QUEUED
    assert made_room.columns["reason"] == "was paused for study 7 of a higher priority"
    assert made_room.columns["room_for"] is None


def test_a_pause_by_the_command_line_is_one() -> None:
    ended = Look("gone", ended=Ended("interrupted"))
    by_command = RunEnd("interrupted", "paused by bert@host")
    assert after(study(), ended, by_command, "", NOW).state is State.PAUSED
    assert after(study(State.ENDING), ended, by_command, "", NOW).state is State.QUEUED
    assert after(study(), GONE, by_command, "", NOW).columns["deaths"] == 1  # of an earlier driver: this one died


def test_deaths_are_followed_by_longer_and_longer_waits_and_then_by_failure() -> None:
    waits = [after(study(deaths=deaths), GONE, INTERRUPTED, "end", NOW) for deaths in range(4)]
    assert [one.state for one in waits] == [State.QUEUED, State.QUEUED, State.QUEUED, State.FAILED]
    assert [one.columns.get("not_before") for one in waits] == [110.0, 160.0, 400.0, None]
    assert waits[0].columns["reason"] == "its driver died: its log ends with: end"
    assert waits[3].columns["reason"] == "its driver died 4 times: its log ends with: end"


def test_a_restarted_machine_is_no_death() -> None:
    again = after(study(deaths=2), Look("gone", rebooted=True), INTERRUPTED, "", NOW)
    assert (again.state, again.columns["deaths"], again.columns["not_before"]) == (State.QUEUED, 0, NOW)


def test_what_the_study_can_not_do_is_not_tried_again() -> None:
    refused = Look("gone", ended=Ended(error=("StudyError", "x needs y\x1b, got z; use y")))
    failed = after(study(State.STARTING), refused, None, "", NOW)
    assert (failed.state, failed.columns["reason"]) == (State.FAILED, "x needs y\\x1b, got z; use y")
    driven = after(study(), refused, RunEnd("running", driven=True), "", NOW)  # another driver still works on it
    assert (driven.state, driven.columns["deaths"]) == (State.QUEUED, 1)


@pytest.mark.parametrize("kind", ["TunerError", "KeyboardInterrupt"])
def test_what_may_pass_is_tried_again_with_its_reason(kind: str) -> None:
    ended = Look("gone", ended=Ended(error=(kind, "Ray did not start")))
    again = after(study(State.STARTING), ended, None, "a long log", NOW)
    assert (again.state, again.columns["reason"]) == (State.QUEUED, "its driver died: Ray did not start")
