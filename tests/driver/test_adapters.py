"""What the driver makes of the messages of a worker, which come several at once where epochs are quick."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayActorError
from ray.tune.schedulers import TrialScheduler

import tuner
from tuner.driver.adapters import Bridge, RayCallback, RayScheduler
from tuner.driver.grouping import Together, most_together
from tuner.driver.ray_inside.controller import RayTrial
from tuner.driver.search_cost import Speeds, kinds_of, speeds_kind
from tuner.history.events import read_events
from tuner.loop.search_loop import SearchLoop
from tuner.storage.folder import LocalFolder
from tuner.study.resources import Resources
from tuner.trial.speed import Speed
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
    trial.tuner_id, trial.members, trial.status = start.trial, (start.trial,), RayTrial.RUNNING
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


class Shared:
    """A search whose stays have several trials; the key of a trial is whether its x is below a half."""

    def __init__(self, folder: Path, *, trials: int, most: int, workers: int = 1, **study: Any) -> None:
        declared = tuner.Study(
            "together",
            trial=lambda config: None,
            space={"x": tuner.uniform(0, 1)},
            metric="loss",
            mode="min",
            search=tuner.Random(),
            budget=tuner.Budget(trials=trials, max_epochs=9),
            **study,
        )
        self.loop = SearchLoop(declared, LocalFolder(folder), concurrency=workers, together=most)
        self.bridge = Bridge(
            self.loop,
            Resources(cpus=1, gpus=0),
            str(folder),
            save_epochs=declared.scheduler.rungs(9),
            leave=lambda: False,
            together=Together(lambda config: "low" if config["x"] < 0.5 else "high", most),
        )
        self.scheduler = RayScheduler(self.bridge)

    def stay(self) -> RayTrial | None:
        """What Ray gets for a free worker."""
        starts = self.bridge.next_stay()
        if not starts:
            return None
        trial = RayTrial.__new__(RayTrial)
        trial.tuner_id, trial.members = starts[0].trial, tuple(start.trial for start in starts)
        trial.status = RayTrial.RUNNING
        for start in starts:
            self.bridge._current[start.trial] = trial
            self.bridge._reported[start.trial] = start.reported
        return trial

    def tell(self, trial: RayTrial, *messages: dict[str, Any]) -> str:
        return self.scheduler.on_trial_result(None, trial, {REPORT: [[json.dumps(one), 0.0] for one in messages]})

    def epochs(self, trial: RayTrial, first: int, last: int, loss: float = 0.5) -> None:
        """All members report these epochs; later trials are better."""
        for epoch in range(first, last + 1):
            for member in trial.members:
                self.tell(trial, said(epoch, loss - int(member) / 1000, trial=member, saved=[epoch], saves=True))

    def end(self, trial: RayTrial) -> None:
        trial.status = RayTrial.TERMINATED
        self.scheduler.on_trial_complete(None, trial, {})

    def statuses(self) -> list[str]:
        return [trial.status for trial in self.loop.record.trials.values()]


def test_trials_of_the_same_kind_share_a_stay_and_each_ends_for_itself(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=6, most=6, scheduler=tuner.NoEarlyStopping())
    first = search.stay()
    assert first is not None
    assert search.stay() is None  # the only worker is busy
    kinds = {search.loop.record.trials[trial].config["x"] < 0.5 for trial in first.members}
    assert len(first.members) > 1
    assert len(kinds) == 1
    search.epochs(first, 1, 8)
    assert search.statuses() == ["running"] * 6
    diverged, *others = first.members
    failure = {"cause": "diverged", "message": "the loss must stay finite", "traceback": None}
    assert search.tell(first, {"trial": diverged, "failure": failure}) == TrialScheduler.CONTINUE
    for other in others:
        search.tell(first, said(9, 0.1, trial=other))
    search.end(first)
    second = search.stay()
    assert second is not None
    assert {*first.members, *second.members} == set(search.loop.record.trials)
    search.epochs(second, 1, 9)
    search.end(second)
    assert search.stay() is None
    assert search.loop.finished
    expected = ["failed" if trial == diverged else "completed" for trial in search.loop.record.trials]
    assert search.statuses() == expected
    search.loop.close()


def test_at_a_rung_those_that_go_on_are_regrouped(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=18, most=18, scheduler=tuner.ASHA(grace_epochs=1, reduction_factor=3))
    seen: list[tuple[int, int]] = []  # epochs before a stay, and its trials
    while (stay := search.stay()) is not None:
        reported = [search.loop.record.trials[trial].epoch for trial in stay.members]
        seen.append((min(reported), len(stay.members)))
        until = {0: 1, 1: 3, 3: 9}[reported[0]]
        for member, before in zip(stay.members, reported, strict=True):
            for epoch in range(before + 1, {0: 1, 1: 3, 3: 9}[before] + 1):
                loss = 0.5 - int(member) / 1000
                search.tell(stay, said(epoch, loss, trial=member, saved=[epoch], saves=True))
        assert until in (1, 3, 9)
        search.end(stay)
    assert search.loop.finished
    assert sum(count for before, count in seen if before == 0) == 18
    assert max(count for _, count in seen) > 5
    lengths = sorted(trial.epoch for trial in search.loop.record.trials.values())
    assert lengths[0] == 1
    assert lengths[-1] == 9
    assert all(trial.status in ("stopped", "completed") for trial in search.loop.record.trials.values())
    search.loop.close()


def test_a_trial_that_survives_a_rung_while_it_runs_goes_on_in_the_next_stay(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=4, most=4, scheduler=tuner.ASHA(grace_epochs=1, reduction_factor=2, rule="stop"))
    while (stay := search.stay()) is not None:
        for member in stay.members:
            before = search.loop.record.trials[member].epoch
            search.tell(stay, said(before + 1, 0.5 - int(member) / 10, trial=member, saved=[before + 1], saves=True))
        search.end(stay)
    assert search.loop.finished
    assert max(trial.epoch for trial in search.loop.record.trials.values()) == 9
    search.loop.close()


def test_a_lost_stay_is_tried_again_apart(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=4, most=4, scheduler=tuner.NoEarlyStopping())
    first = search.stay()
    assert first is not None
    search.epochs(first, 1, 2)
    first.last_error, first.status = RayActorError(), RayTrial.ERROR
    RayCallback(search.bridge).on_trial_error(0, [], first)
    second = search.stay()
    assert second is not None
    search.bridge._note_ends()  # those that wait for their stay aren't lost once more
    assert _end(search, second)
    alone = [second] + [stay for _ in range(20) if (stay := search.stay()) is not None and _end(search, stay)]
    assert {stay.members for stay in alone} >= {(trial,) for trial in first.members}
    assert set(search.statuses()) == {"completed"}
    assert {trial.losses for trial in search.loop.record.trials.values()} == {0, 1}
    search.loop.close()


def _end(search: Shared, stay: RayTrial) -> bool:
    for member in stay.members:
        for epoch in range(search.loop.record.trials[member].epoch + 1, 10):
            search.tell(stay, said(epoch, 0.5, trial=member))
    search.end(stay)
    return True


def test_trials_that_cant_be_trained_together_after_all_run_one_after_another(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=5, most=5, scheduler=tuner.NoEarlyStopping())
    first = search.stay()
    assert first is not None
    search.tell(first, {"apart": "all"})
    search.end(first)
    stays = [stay for _ in range(9) if (stay := search.stay()) is not None and _end(search, stay)]
    assert [len(stay.members) for stay in stays] == [1] * 5
    assert search.statuses() == ["completed"] * 5
    search.loop.close()


def test_what_ends_a_stay_is_tried_again_by_each_alone_and_costs_none_a_try(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=5, most=5, scheduler=tuner.NoEarlyStopping())
    first = search.stay()
    assert first is not None
    assert len(first.members) > 1
    search.tell(first, {"apart": "these"})
    search.end(first)
    stays = [stay for _ in range(9) if (stay := search.stay()) is not None and _end(search, stay)]
    assert {stay.members for stay in stays} >= {(trial,) for trial in first.members}
    assert search.statuses() == ["completed"] * 5
    assert {trial.losses for trial in search.loop.record.trials.values()} == {0}
    search.loop.close()


def test_no_more_trials_start_than_the_next_stays_take(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=40, most=4, workers=2, scheduler=tuner.NoEarlyStopping())
    stays = [search.stay(), search.stay()]
    assert None not in stays
    begun = len(search.loop.record.trials)
    assert [search.stay() for _ in range(5)] == [None] * 5
    assert len(search.loop.record.trials) == begun <= 2 * 4 + 4
    search.loop.close()


def test_a_stay_of_a_trial_without_a_key_begins_at_once(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=40, most=8, scheduler=tuner.NoEarlyStopping())
    search.bridge.together = Together(lambda config: None, 8)
    stay = search.stay()
    assert stay is not None
    assert stay.members == ("00000",)
    assert len(search.loop.record.trials) == 1
    search.loop.close()


def test_after_a_limit_none_of_those_that_wait_begins(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=8, most=8, scheduler=tuner.NoEarlyStopping())
    search.loop.change(replace(search.loop.study, budget=tuner.Budget(trials=8, max_epochs=9, target=0.2)), None)
    first = search.stay()
    assert first is not None
    assert len(first.members) < 8  # the others wait
    for member in first.members:
        search.tell(first, said(1, 0.1, trial=member))
    search.end(first)
    assert search.stay() is None
    assert search.loop.finished
    assert set(search.statuses()) == {"stopped"}
    search.loop.close()


def test_one_that_an_order_ended_while_it_waited_does_not_begin(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=8, most=8, scheduler=tuner.NoEarlyStopping())
    first = search.stay()
    assert first is not None
    ended, *others = search.bridge.together.waiting
    assert others
    search.loop.end_by_order(ended)
    search.epochs(first, 1, 9)
    search.end(first)
    second = search.stay()
    assert second is not None
    assert set(second.members) == set(others)
    search.loop.close()


def test_a_stay_falls_apart_also_when_its_first_trial_goes_on_elsewhere(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=6, most=6, scheduler=tuner.NoEarlyStopping())
    stay = search.stay()
    assert stay is not None
    assert len(stay.members) > 1
    search.bridge._current.pop(stay.members[0])
    search.tell(stay, {"apart": "these"})
    assert all(map(search.bridge.together.is_suspect, stay.members))
    search.loop.close()


def test_a_search_that_counts_on_trials_of_one_worker_each_shares_no_stays() -> None:
    budget = tuner.Budget(trials=1000)
    assert most_together(heads(budget, scheduler=tuner.MedianStopping()), 2) == 1
    function = tuner.Study(
        "function", trial=lambda config: None, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min"
    )
    assert most_together(replace(function, budget=budget), 2) == 1
    assert most_together(replace(heads(budget), space={"finetune": "all", "lr": 1e-3}), 2) == 1
    left = [True]
    tight = heads(budget, constraint=lambda config: left[0])
    assert most_together(tight, 2) == 50
    left[0] = False  # as if none was drawn with this seed: the search itself says so
    assert most_together(tight, 2) == 1


def test_an_order_that_ends_one_of_a_stay_leaves_the_others_their_worker(tmp_path: Path) -> None:
    search = Shared(tmp_path, trials=4, most=4, scheduler=tuner.NoEarlyStopping())
    stay = search.stay()
    assert stay is not None
    first, *others = stay.members
    assert others
    search.loop.end_by_order(first)
    search.bridge._leave(first)
    assert search.bridge._leaving._leaving == {}
    search.tell(stay, said(1, 0.5, trial=first), *(said(1, 0.5, trial=other) for other in others))
    assert search.loop.record.trials[first].epoch == 0
    assert {search.loop.record.trials[other].epoch for other in others} == {1}
    search.loop.end_by_order(*others)
    assert search.tell(stay, said(2, 0.5, trial=others[0])) == TrialScheduler.STOP  # nobody is left
    search.bridge._leave(others[-1])
    assert list(search.bridge._leaving._leaving) == [others[-1]]
    search.loop.close()


def heads(budget: tuner.Budget, **more: Any) -> tuner.Study:
    trial = tuner.ImageClassifier("digits", "resnet18", weights="pretrained")
    space = {"finetune": "head", "lr": tuner.loguniform(1e-4, 1e-1)}
    return tuner.Study("heads", trial=trial, space=space, metric="val_accuracy", budget=budget, **more)


@pytest.mark.parametrize(
    ("budget", "most"),
    [
        (tuner.Budget(trials=1000), 50),
        (tuner.Budget(trials=60), 3),
        (tuner.Budget(trials=10), 1),
        (tuner.Budget(trials=100_000), 100),
        (tuner.Budget(total_epochs=600, max_epochs=20), 3),  # about 60 trials, half of which are stopped early
        (tuner.Budget(total_epochs=600, max_epochs=20, trials=20), 1),
        (tuner.Budget(trials=None, hours=1), 8),
    ],
)
def test_how_many_share_a_stay_leaves_the_search_rounds_to_learn_in(budget: tuner.Budget, most: int) -> None:
    assert most_together(heads(budget), 2) == most


def test_none_share_a_stay_where_memory_says_how_many_run_at_once() -> None:
    assert most_together(heads(tuner.Budget(trials=1000), resources=Resources(cpus="auto")), 2) == 1


def test_a_search_over_heads_is_foretold_to_be_as_quick_as_it_is() -> None:
    alone = Speed(0.4, 9.0, "", (2.0, 1.0), 0.1, 0.0, 0, 10**9, (960, 120, 120), 50.0, 50.0, 1.0)
    assert alone.together(1) == alone
    of_ten = alone.together(10)
    assert (of_ten.start_seconds, *of_ten.epoch_seconds) == pytest.approx((0.076, 0.38, 0.19))
    assert of_ten.once_seconds == 9.0
    study = heads(tuner.Budget(trials=200))
    (kind,) = kinds_of(study)[0]
    speeds = Speeds({kind: alone}, speeds_kind(study), 5.0)
    assert speeds.sharing_stays(study, 2).by_kind == {kind: of_ten}
    learning = replace(study, space={"finetune": "all", "lr": tuner.loguniform(1e-4, 1e-1)})
    (kind,) = kinds_of(learning)[0]
    speeds = Speeds({kind: alone}, speeds_kind(learning), 5.0)
    assert speeds.sharing_stays(learning, 2) == speeds
