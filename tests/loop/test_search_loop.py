import math
from pathlib import Path

import pytest

from tests.loop.simulation import build, drive, events_of, parabola, study
from tuner import ASHA, Budget, Grid, HyperBand, HyperOpt, NoEarlyStopping, Random, choice, randint, uniform
from tuner.loop.search_loop import CANNOT_PAUSE, Start, trial_seed
from tuner.results.events import Event
from tuner.schedule import Decision, Scheduler
from tuner.search import SearchAlgorithm


def configs(folder: Path) -> list[float]:
    return [event["config"]["x"] for event in events_of(folder) if event["event"] == "trial_started"]


def test_every_trial_is_trained_to_its_end_without_a_scheduler(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop)
    assert [trial.status for trial in loop.record.trials.values()] == ["completed"] * 6
    assert [trial.epoch for trial in loop.record.trials.values()] == [9] * 6
    assert loop.end_reason == "trials"


@pytest.mark.parametrize(
    "scheduler", [NoEarlyStopping(), ASHA(grace_epochs=3), ASHA(grace_epochs=3, rule="promote"), HyperBand()]
)
@pytest.mark.parametrize("search", [Random(), HyperOpt(startup_trials=3)], ids=lambda search: search.name)
@pytest.mark.parametrize("cut", [1, 10, 23])
def test_a_resumed_search_tries_what_the_uninterrupted_one_would_have(
    tmp_path: Path, scheduler: Scheduler, search: SearchAlgorithm, cut: int
) -> None:
    declared = study(scheduler=scheduler, search=search, budget=Budget(trials=12, max_epochs=9))
    drive(build(declared, tmp_path / "whole"))
    drive(build(declared, tmp_path / "parts"), reports=cut)
    resumed = build(declared, tmp_path / "parts", history=events_of(tmp_path / "parts"))
    drive(resumed)
    assert sorted(set(configs(tmp_path / "parts"))) == sorted(set(configs(tmp_path / "whole")))
    whole = build(declared, tmp_path / "copy", history=events_of(tmp_path / "whole")).record
    for name, trial in whole.trials.items():
        assert (resumed.record.trials[name].status, resumed.record.trials[name].epoch) == (trial.status, trial.epoch)


def test_an_unfinished_trial_starts_again_under_its_own_id_from_its_last_checkpoint(tmp_path: Path) -> None:
    drive(build(study(), tmp_path), reports=13)
    action = build(study(), tmp_path, history=events_of(tmp_path)).next_action()
    assert isinstance(action, Start)
    assert (action.trial, action.number, action.from_epoch) == ("00001", 1, 4)
    assert action.from_checkpoint == "tune/00001/4"


def test_a_finished_search_is_extended_by_more_trials_with_new_configurations(tmp_path: Path) -> None:
    drive(build(study(), tmp_path))
    longer = study(budget=Budget(trials=9, max_epochs=9))
    drive(build(longer, tmp_path, history=events_of(tmp_path)))
    assert len(set(configs(tmp_path))) == len(configs(tmp_path)) == 9


def test_no_more_trials_run_at_once_than_there_are_workers(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, concurrency=2)
    assert [loop.next_action() is None for _ in range(3)] == [False, False, True]


def test_promotion_loses_no_epoch_and_repeats_none(tmp_path: Path) -> None:
    declared = study(scheduler=ASHA(grace_epochs=3, rule="promote"), budget=Budget(trials=9, max_epochs=27))
    loop = build(declared, tmp_path)
    drive(loop)
    for trial in loop.record.trials.values():
        reported = [
            e["epoch"] for e in events_of(tmp_path) if e["event"] == "epoch_reported" and e["trial"] == trial.trial
        ]
        assert reported == list(range(1, trial.epoch + 1))
    assert sorted({trial.epoch for trial in loop.record.trials.values()}) == [3, 9, 27]
    assert all(trial.status in ("completed", "stopped") for trial in loop.record.trials.values())


def test_a_trial_that_never_saves_is_stopped_where_it_would_have_been_paused(tmp_path: Path) -> None:
    declared = study(scheduler=ASHA(grace_epochs=3, rule="promote"))
    loop = build(declared, tmp_path)
    drive(loop, saves=False)
    stopping = build(study(scheduler=ASHA(grace_epochs=3, rule="stop")), tmp_path / "stopping")
    drive(stopping, saves=False)
    assert loop.record.notices == [CANNOT_PAUSE]
    assert [t.epoch for t in loop.record.trials.values()] == [t.epoch for t in stopping.record.trials.values()]
    assert not any(event["event"] == "trial_paused" for event in events_of(tmp_path))


def test_a_space_that_runs_out_ends_the_search(tmp_path: Path) -> None:
    loop = build(study(space={"x": choice([1, 2, 3])}, search=HyperOpt()), tmp_path)
    drive(loop)
    assert sorted(configs(tmp_path)) == [1, 2, 3]
    assert loop.end_reason == "space"
    assert loop.finished


def test_a_grid_without_a_budget_is_walked_to_its_end(tmp_path: Path) -> None:
    grid = study(space={"x": randint(0, 5)}, search=Grid(), budget=Budget(trials=None, max_epochs=1))
    loop = build(grid, tmp_path)
    drive(loop)
    assert sorted(configs(tmp_path)) == [0, 1, 2, 3, 4]
    assert loop.end_reason == "space"


def test_nan_is_a_diverged_trial_and_never_reaches_the_search_algorithm(tmp_path: Path) -> None:
    declared = study(search=HyperOpt(startup_trials=2), budget=Budget(trials=8, max_epochs=2))
    loop = build(declared, tmp_path)
    drive(loop, lambda config, epoch: math.nan if config["x"] > 0.5 else parabola(config, epoch))
    failed = [trial for trial in loop.record.trials.values() if trial.status == "failed"]
    assert failed
    assert {trial.cause for trial in failed} == {"diverged"}
    assert loop.record.failures() == {"diverged": len(failed)}
    assert all(trial.config["x"] > 0.5 for trial in failed)
    assert failed[0].message == "loss = nan"
    assert failed[0].epochs[1].metrics == {"loss": None}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"accuracy": 1.0}, "the study's metric 'loss' was not reported, got accuracy; report it or change metric="),
        ({"loss": "low"}, "the study's metric needs a number, got loss='low'; report a float"),
        ({"loss": None}, "the study's metric needs a number, got loss=None; report a float"),
    ],
)
def test_a_report_without_a_number_for_the_metric_fails_the_trial(
    tmp_path: Path, metrics: dict[str, object], message: str
) -> None:
    loop = build(study(), tmp_path)
    start = loop.next_action()
    assert start is not None
    assert loop.report(start.trial, 1, metrics, has_checkpoint=False) is Decision.STOP
    assert (loop.record.trials[start.trial].cause, loop.record.trials[start.trial].message) == ("error", message)


def test_a_trial_that_returns_without_a_report_failed(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    start = loop.next_action()
    assert start is not None
    loop.returned(start.trial)
    assert loop.record.trials[start.trial].message == (
        "it returned without reporting anything; call tuner.report(...) once per epoch"
    )


def test_a_trial_is_as_long_as_its_own_epochs_and_never_longer_than_the_budget(tmp_path: Path) -> None:
    declared = study(space={"x": uniform(0, 1), "epochs": randint(2, 20)}, scheduler=ASHA(grace_epochs=8))
    loop = build(declared, tmp_path)
    drive(loop)
    for trial in loop.record.trials.values():
        assert trial.epoch == min(trial.config["epochs"], 9) or trial.status == "stopped"


def test_only_checkpoints_that_may_be_needed_are_kept(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop)
    kept = {(t.trial, epoch) for t in loop.record.trials.values() for epoch in t.checkpoints}
    best = loop.record.best_trial()
    assert best is not None
    assert kept == {(best.trial, 9)}


def test_a_running_trial_keeps_its_newest_checkpoint_and_its_best_where_it_may_win(tmp_path: Path) -> None:
    def rising(config: dict[str, float], epoch: int) -> float:
        return abs(epoch - 2)

    loop = build(study(), tmp_path)
    drive(loop, rising, reports=5)
    assert sorted(loop.record.trials["00000"].checkpoints) == [2, 5]


def test_hours_end_the_search_at_the_next_report(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=6, max_epochs=9, hours=1e-12)), tmp_path)
    assert loop.next_action() is None
    assert loop.finished
    assert loop.end_reason == "hours"


def test_a_listener_that_fails_is_left_out_and_the_search_goes_on(tmp_path: Path) -> None:
    class Broken:
        def on_event(self, event: Event) -> None:
            raise RuntimeError("no terminal")

    loop = build(study(), tmp_path, listeners=[Broken()])
    drive(loop)
    assert loop.record.counts()["completed"] == 6
    assert loop.record.notices == ["Broken failed and is left out from now on: RuntimeError('no terminal')"]


def test_trial_seeds_depend_on_study_and_number_alone() -> None:
    assert trial_seed(0, 0) == trial_seed(0, 0)
    assert len({trial_seed(seed, number) for seed in range(5) for number in range(20)}) == 100
