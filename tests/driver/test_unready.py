"""A trial whose worker was not ready for it begins on another one, and has lost nothing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError, RayTaskError

from tests.loop.simulation import build, study
from tuner.driver.ray_inside.controller import RayTrial
from tuner.driver.unready import Unready
from tuner.errors import WorkerSpent
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop

Way = tuple[SearchLoop, Start, RayTrial, Any]


@pytest.fixture
def way(tmp_path: Path) -> Way:
    """A trial that the loop has started, on its way to a used worker."""
    loop = build(study(), tmp_path)
    start = loop.next_action()
    assert start is not None
    trial = RayTrial.__new__(RayTrial)
    trial.tuner_id, trial.trial_id = start.trial, start.trial
    staged = {trial}
    controller = SimpleNamespace(
        _resetting_trials={trial}, _staged_trials=staged, _unstage_trial_with_resources=staged.discard
    )
    return loop, start, trial, controller


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RayTaskError("reset", "Ray's text", WorkerSpent("its code went on")), "its code went on"),
        (RayActorError(), "a worker died before trial 00000 began there, so the trial begins on another one"),
    ],
)
def test_it_begins_again_and_the_user_is_told_why(way: Way, error: BaseException, told: str) -> None:
    loop, start, trial, controller = way
    unready = Unready(loop)
    unready.note([start])
    trial.last_error = error
    assert unready.take(controller, trial)
    assert trial in unready
    assert (controller._resetting_trials, controller._staged_trials) == (set(), set())
    assert unready.next() == [start]
    assert unready.next() == []
    assert trial not in unready
    assert loop.running == {start.trial}
    assert loop.record.trials[start.trial].losses == 0
    assert loop.record.notices[-1] == told


def test_what_it_waited_for_other_trials_is_no_time_of_its_own(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, start, trial, controller = way
    unready, record = Unready(loop), loop.record.trials[start.trial]
    clock = [100.0]
    monkeypatch.setattr("tuner.driver.unready.time.monotonic", lambda: clock[0])
    unready.note([start])
    trial.last_error, clock[0] = RayActorError(), 220.0
    assert unready.take(controller, trial)
    where = {"host": "here", "pid": 7, "devices": ["1 CPU"], "gpus": []}
    assert unready.placed(start.trial, waited=3.5, **where) == {**where, "waited": 123.5}
    assert unready.placed(start.trial, waited=0.3, **where) == where
    record.running_since = record.entered[-1] = record.started - 200.0
    before = loop.record.running_seconds()
    loop.placed(start.trial, **where, waited=123.5)
    assert record.running_since == record.entered[-1] == pytest.approx(record.started - 76.5)
    assert loop.record.running_seconds() == pytest.approx(before, abs=5.0)  # the devices were in use all the time


def test_it_does_not_begin_again_if_it_had_begun_or_was_ended_meanwhile(way: Way) -> None:
    loop, start, trial, controller = way
    unready = Unready(loop)
    unready.note([start])
    trial.last_error = RayActorError()
    assert not unready.take(None, trial)
    assert unready.take(controller, trial)
    assert not unready.take(controller, trial)  # Ray forgot it: a failure from now on is its own
    loop.end_by_order(start.trial)
    unready.forget(start.trial)
    assert unready.next() == []
