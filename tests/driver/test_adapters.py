"""What the driver makes of the messages of a worker, which come several at once where epochs are quick."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

import tuner
from tuner.driver.adapters import Bridge, RayScheduler
from tuner.driver.ray_inside.controller import RayTrial
from tuner.history.events import read_events
from tuner.loop.search_loop import SearchLoop
from tuner.storage.folder import LocalFolder
from tuner.study.resources import Resources
from tuner.worker.assignment import REPORT


def said(epoch: int, loss: float, **more: Any) -> dict[str, Any]:
    """A message as a worker sends it."""
    told = {"epoch": epoch, "metrics": {"loss": loss}, "notes": [], "saved": [], "unsaved": [], "no_space": []}
    return {**told, "saving": None, "saves": False, "leaving": False, **more}


@pytest.fixture
def scheduler(tmp_path: Path) -> RayScheduler:
    """Of a search that ends at a loss of 0.2, with its first trial running."""
    study = tuner.Study(
        "messages",
        trial=lambda config: None,
        space={"x": tuner.uniform(0, 1)},
        metric="loss",
        mode="min",
        scheduler=tuner.NoEarlyStopping(),
        budget=tuner.Budget(trials=2, max_epochs=9, target=0.2),
    )
    loop = SearchLoop(study, LocalFolder(tmp_path), concurrency=1)
    bridge = Bridge(loop, Resources(cpus=1, gpus=0), str(tmp_path), save_epochs=[], leave=lambda: False)
    start = loop.next_action()
    assert start is not None
    trial = RayTrial.__new__(RayTrial)
    trial.tuner_id, trial.status = start.trial, RayTrial.RUNNING
    bridge._current[start.trial] = trial
    return RayScheduler(bridge)


def take(scheduler: RayScheduler, *messages: dict[str, Any]) -> str:
    (trial,) = scheduler._bridge._current.values()
    told = [[json.dumps(message), message.pop("ago", 0.0)] for message in messages]
    return scheduler.on_trial_result(None, trial, {REPORT: told})


def test_epochs_that_come_together_are_recorded_in_order_at_their_own_times(
    scheduler: RayScheduler, tmp_path: Path
) -> None:
    assert take(scheduler, said(1, 0.9)) == TrialScheduler.CONTINUE
    time.sleep(0.5)
    assert take(scheduler, said(2, 0.8, ago=0.5), said(3, 0.7, ago=0.2), said(4, 0.6)) == TrialScheduler.CONTINUE
    loop = scheduler._bridge.loop
    (trial,) = loop.record.trials.values()
    assert [(epoch.epoch, epoch.metrics["loss"]) for epoch in trial.epochs.values()] == [
        (1, 0.9),
        (2, 0.8),
        (3, 0.7),
        (4, 0.6),
    ]
    events = [event for event in read_events(LocalFolder(tmp_path)) if event["event"] == "epoch_reported"]
    assert "ago" not in events[0]
    assert [event["ago"] for event in events[1:3]] == pytest.approx([0.5, 0.2], abs=0.15)
    times = [epoch.time for epoch in trial.epochs.values()]
    assert times[0] == events[0]["time"] - 0
    assert times == sorted(times)
    assert times[2] - times[1] == pytest.approx(0.3, abs=0.15)  # as they were, whatever the driver did in between
    loop.close()


def test_what_follows_an_epoch_that_ends_the_trial_is_left_out(scheduler: RayScheduler) -> None:
    failure = {"failure": {"cause": "error", "message": "too late", "traceback": None}}
    assert take(scheduler, said(1, 0.9), said(2, 0.1), said(3, 0.05), failure) == TrialScheduler.STOP
    loop = scheduler._bridge.loop
    (trial,) = loop.record.trials.values()
    assert (trial.epoch, trial.status, trial.message) == (2, "stopped", None)
    loop.close()


def test_a_failure_comes_after_the_epochs_before_it(scheduler: RayScheduler) -> None:
    failure = {"failure": {"cause": "error", "message": "no such thing", "traceback": None}}
    assert take(scheduler, said(1, 0.9), failure) == TrialScheduler.CONTINUE
    loop = scheduler._bridge.loop
    (trial,) = loop.record.trials.values()
    assert (trial.epoch, trial.status, trial.message) == (1, "failed", "no such thing")
    loop.close()


def test_a_batch_that_took_longer_to_the_driver_does_not_turn_the_times_round(scheduler: RayScheduler) -> None:
    take(scheduler, said(1, 0.9))
    take(scheduler, said(2, 0.8, ago=5.0))  # before the first was told
    (trial,) = scheduler._bridge.loop.record.trials.values()
    assert trial.epochs[2].time == trial.epochs[1].time
    scheduler._bridge.loop.close()
