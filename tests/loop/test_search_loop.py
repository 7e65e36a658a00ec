import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of, parabola, study
from tuner import (
    ASHA,
    Budget,
    Grid,
    HyperBand,
    HyperOpt,
    NoEarlyStopping,
    Random,
    choice,
    randint,
    sample_from,
    uniform,
)
from tuner.errors import shown
from tuner.history.checkpoints import CheckpointStore
from tuner.history.events import Event
from tuner.history.records import saved_epochs
from tuner.loop.judging import CANNOT_PAUSE
from tuner.loop.queue import Start, trial_seed
from tuner.schedule import Decision, Scheduler
from tuner.search import SearchAlgorithm, proposals
from tuner.storage.folder import LocalFolder


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
    assert (action.trial, action.number, action.reported) == ("00001", 1, 4)
    assert events_of(tmp_path)[-1]["from_epoch"] == 4


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


@pytest.mark.parametrize("cut_off", [None, 7, 8, 12])
def test_trials_that_wait_while_pausing_is_given_up_are_judged_by_the_rule_for_stopping(
    tmp_path: Path, cut_off: int | None
) -> None:
    """The first two are paused, the third can't be: they go on or end as they would have under `rule="stop"`."""
    declared = study(scheduler=ASHA(grace_epochs=3, rule="promote"), budget=Budget(trials=5, max_epochs=9))
    loop = build(declared, tmp_path)
    drive(loop, saving=lambda number: number < 2, reports=cut_off)
    if cut_off is not None:
        loop.close()
        loop = build(declared, tmp_path, history=events_of(tmp_path))
        drive(loop, saving=lambda number: number < 2)
    stopping = build(study(scheduler=ASHA(grace_epochs=3, rule="stop"), budget=declared.budget), tmp_path / "stopping")
    drive(stopping, saves=False)
    assert [e["trial"] for e in events_of(tmp_path) if e["event"] == "trial_paused"] == ["00000", "00001"]
    assert [t.epoch for t in loop.record.trials.values()] == [t.epoch for t in stopping.record.trials.values()]
    assert {t.status for t in loop.record.trials.values()} <= {"completed", "stopped"}


def test_a_space_that_runs_out_ends_the_search(tmp_path: Path) -> None:
    loop = build(study(space={"x": choice([1, 2, 3])}, search=HyperOpt()), tmp_path)
    drive(loop)
    assert sorted(configs(tmp_path)) == [1, 2, 3]
    assert loop.end_reason == "space"
    assert loop.finished


def test_values_that_no_file_can_hold_end_only_their_draws_and_in_the_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "RANDOM_DRAWS", 1_000)
    given: list[object] = []

    def kind(config: dict[str, Any]) -> object:
        given.append(config["x"] if len(given) < 6 and len(given) % 2 else object())
        return given[-1]

    declared = study(space={"x": uniform(0, 1), "kind": sample_from(kind)}, budget=Budget(trials=6, max_epochs=1))
    loop = build(declared, tmp_path)
    drive(loop)
    tried = [trial.config for trial in loop.record.trials.values()]
    assert [config["kind"] for config in tried] == given[3:6:2]  # the study's own check has had the first
    assert loop.end_reason == "constraint"
    assert loop.record.notices[-1].startswith("sample_from needs values that the files of a run can hold, got <object")


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


def test_a_number_too_large_for_a_float_is_a_diverged_trial_with_a_short_message(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    start = loop.next_action()
    assert start is not None
    assert loop.report(start.trial, 1, {"loss": 10**400}) is Decision.STOP
    trial = loop.record.trials[start.trial]
    assert (trial.cause, trial.message) == ("diverged", f"loss = {shown(10**400)}")
    assert len(trial.message or "") < 310


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (
            {"accuracy": 1.0},
            "a trial must report the study's metric 'loss' after every epoch, got accuracy; report it, or change metric=",
        ),
        ({"loss": "low"}, "the study's metric needs a number, got loss='low'; report a float"),
        ({"loss": None}, "the study's metric needs a number, got loss=None; report a float"),
        ({"loss": True}, "the study's metric needs a number, got loss=True; report a float"),
        ({"loss": "low" * 999}, f"the study's metric needs a number, got loss={shown('low' * 999)}; report a float"),
    ],
)
def test_a_report_without_a_number_for_the_metric_fails_the_trial(
    tmp_path: Path, metrics: dict[str, object], message: str
) -> None:
    loop = build(study(), tmp_path)
    start = loop.next_action()
    assert start is not None
    assert loop.report(start.trial, 1, metrics) is Decision.STOP
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
    assert loop.record.notices == ["Broken raised an error and is not called any more: RuntimeError('no terminal')"]


def test_trial_seeds_depend_on_study_and_number_alone() -> None:
    assert trial_seed(0, 0) == trial_seed(0, 0)
    assert len({trial_seed(seed, number) for seed in range(5) for number in range(20)}) == 100


def cut_after(folder: Path, kept: int) -> None:
    """What a driver leaves that is killed after so many events."""
    (segment,) = sorted((folder / "events").iterdir())
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:kept]))


@pytest.mark.parametrize("scheduler", [ASHA(grace_epochs=3), ASHA(grace_epochs=3, rule="stop")])
def test_what_was_decided_and_not_done_before_the_end_is_done_by_the_next_driver(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    declared = study(scheduler=scheduler, budget=Budget(trials=9, max_epochs=9))
    drive(build(declared, tmp_path / "whole"))
    events = events_of(tmp_path / "whole")
    decided = [i for i, e in enumerate(events) if e["event"] == "epoch_reported" and e["decision"] != "continue"]
    for number, index in enumerate(decided):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole" / "events", folder / "events")
        cut_after(folder, index + 1)
        loop = build(declared, folder, history=events_of(folder))
        trial = loop.record.trials[events[index]["trial"]]
        assert trial.status == ("paused" if events[index]["decision"] == "pause" else events[index]["ending"]["status"])


def test_an_epoch_is_recorded_before_its_checkpoint_and_that_before_another_is_deleted(tmp_path: Path) -> None:
    declared = study(scheduler=ASHA(grace_epochs=3), budget=Budget(trials=3, max_epochs=9))
    drive(build(declared, tmp_path))
    events = events_of(tmp_path)
    for index, each in enumerate(events):
        if each["event"] == "checkpoint_saved":
            before = [e for e in events[:index] if e.get("trial") == each["trial"] and e["event"] == "epoch_reported"]
            assert each["epoch"] in {e["epoch"] for e in before}
        if each["event"] == "checkpoint_deleted":
            saved = {e["epoch"] for e in events[:index] if e["event"] == "checkpoint_saved"}
            assert each["epoch"] in saved


def test_a_lost_trial_goes_on_before_anything_else_and_fails_the_fourth_time(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop, reports=2)
    for losses in (1, 2, 3):
        loop.lost("00000", "out_of_memory" if losses == 2 else "lost", "its node went away")
        assert not loop.finished
        again = loop.next_action()
        assert again is not None
        assert (again.trial, again.reported, again.halvings) == ("00000", 2, losses > 1)
    loop.lost("00000", "lost", "its node went away")
    trial = loop.record.trials["00000"]
    assert (trial.status, trial.cause, trial.message, trial.losses) == ("failed", "lost", "its node went away", 4)


def test_checkpoints_that_came_or_went_while_no_driver_looked_are_noted(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop, reports=4)
    store = CheckpointStore(LocalFolder(tmp_path))
    assert sorted(loop.record.trials["00000"].checkpoints) == store.epochs("00000") == [4]
    store.delete("00000", 4)
    for epoch in (3, 5):  # written by a thread that outlived the driver; of epoch 5 nobody knows
        store.write("00000", epoch, lambda folder: None)
    again = build(study(), tmp_path, history=events_of(tmp_path))
    assert again.record.trials["00000"].checkpoints == {3}
    assert store.epochs("00000") == [3]
    drive(again)
    reported = [e["epoch"] for e in events_of(tmp_path) if e["event"] == "epoch_reported" and e["trial"] == "00000"]
    assert reported == [1, 2, 3, 4, 4, 5, 6, 7, 8, 9]


def test_a_trial_whose_checkpoint_could_not_be_written_goes_on_past_its_rung(tmp_path: Path) -> None:
    loop = build(study(scheduler=ASHA(grace_epochs=3)), tmp_path)
    start = loop.next_action()
    assert start is not None
    decisions = [loop.report(start.trial, epoch, {"loss": 1.0}, saves=True) for epoch in range(1, 10)]
    assert decisions == [Decision.CONTINUE] * 8 + [Decision.STOP]
    assert loop.record.trials[start.trial].status == "completed"
    assert loop.record.notices == []


def test_two_listeners_that_fail_are_both_left_out(tmp_path: Path) -> None:
    class Broken:
        def on_event(self, event: Event) -> None:
            raise RuntimeError("no terminal")

    loop = build(study(), tmp_path, listeners=[Broken(), Broken(), Broken()])
    drive(loop)
    assert loop.record.counts()["completed"] == 6
    assert len(loop.record.notices) == 3


def test_trials_that_a_limit_cut_off_are_no_success_of_early_stopping(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=6, max_epochs=9, total_epochs=13)), tmp_path)
    drive(loop)
    loop.end()
    cut = loop.record.trials["00001"]
    assert (cut.status, cut.epoch, cut.ended_by) == ("stopped", 4, "total_epochs")
    assert saved_epochs(loop.record.trials.values(), 9) == 0


def test_a_trial_that_hangs_past_a_limit_is_ended_with_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.loop import limits

    loop = build(study(budget=Budget(trials=6, max_epochs=9, total_epochs=4)), tmp_path, concurrency=2)
    hanging, other = loop.next_action(), loop.next_action()
    assert hanging is not None
    assert other is not None
    loop.report(hanging.trial, 1, {"loss": 1.0})
    for epoch in (1, 2, 3):
        loop.report(other.trial, epoch, {"loss": 1.0})
    assert (loop.finished, loop.overdue) == (False, False)
    monkeypatch.setattr(limits, "SHORTEST_ALLOWANCE", 0.0)
    monkeypatch.setattr(limits, "EPOCHS_ALLOWED", 0)
    assert loop.overdue
    loop.end()
    assert loop.record.ended == "total_epochs"
    assert [(t.status, t.ended_by) for t in loop.record.trials.values()] == [("stopped", "total_epochs")] * 2


def test_a_lost_trial_that_waits_for_a_worker_ends_with_the_limit_that_is_reached(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=6, max_epochs=9, total_epochs=4)), tmp_path, concurrency=2)
    first, second = loop.next_action(), loop.next_action()
    assert first is not None
    assert second is not None
    loop.report(first.trial, 1, {"loss": 1.0})
    loop.lost(first.trial, "lost", "its node went away")
    for epoch in (1, 2, 3):
        loop.report(second.trial, epoch, {"loss": 1.0})
    assert loop.finished
    loop.end()
    assert [(t.status, t.ended_by) for t in loop.record.trials.values()] == [("stopped", "total_epochs")] * 2


def test_checkpoints_that_came_without_word_are_gone_at_the_end(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop)
    store = CheckpointStore(LocalFolder(tmp_path))
    store.write("00002", 5, lambda folder: None)
    (tmp_path / "checkpoints" / "00003" / ".unfinished-1").mkdir(parents=True)
    loop.end()
    best = loop.record.best_trial()
    assert best is not None
    assert [(trial, store.epochs(trial)) for trial in store.trials() if store.epochs(trial)] == [(best.trial, [9])]
    assert not list((tmp_path / "checkpoints").glob("*/.unfinished-*"))


def test_an_epoch_that_is_trained_again_is_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = build(study(), tmp_path)
    first = loop.next_action()
    assert first is not None
    observed: list[int] = []
    monkeypatch.setattr(loop._proposals, "observe", lambda number, epoch, value: observed.append(epoch))
    loop.report(first.trial, 1, {"loss": 1.0})
    loop.lost(first.trial, "lost", "its worker died")
    assert loop.next_action() is not None
    loop.report(first.trial, 1, {"loss": 1.0})  # without a checkpoint it begins again
    loop.report(first.trial, 2, {"loss": 0.9})
    assert observed == [1, 2]


def test_where_a_trial_runs_is_an_event_of_its_present_stay(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    loop.placed("00000", host="a", pid=1, devices=["cpu"], gpus=[])  # nobody started it
    assert loop.next_action() is not None
    loop.placed("00000", host="node-3", pid=4242, devices=["cuda:1"], gpus=["H100"])
    loop.lost("00000", "lost", "killed")
    loop.placed("00000", host="late", pid=2, devices=[], gpus=[])
    again = build(study(), tmp_path, history=events_of(tmp_path))
    assert again.next_action() is not None
    again.placed("00000", host="node-4", pid=7, devices=["2 CPUs"], gpus=[])
    described = ["node-3, process 4242, cuda:1 (H100)", "node-4, process 7, 2 CPUs"]
    assert [stay.described for stay in again.record.trials["00000"].stays] == described
    again.lost("00000", "lost", "killed")
    drive(again)
    assert again.end_reason == "trials"


def test_a_trial_that_goes_on_has_the_values_that_the_space_declares(tmp_path: Path) -> None:
    """Events are JSON: a promoted trial got a list where it had begun with a tuple, and failed."""
    layers, kinds = [(8, 16), (32, 64)], [parabola, Path]
    asked = []

    def curve(config: dict[str, Any], epoch: int) -> float:
        asked.append((epoch, config["layers"], config["kind"]))
        return parabola(config, epoch)

    space = {"x": uniform(0, 1), "layers": choice(layers), "kind": choice(kinds)}
    declared = study(space=space, scheduler=ASHA(), budget=Budget(trials=9, max_epochs=9))
    drive(build(declared, tmp_path), curve, reports=30)
    drive(build(declared, tmp_path, history=events_of(tmp_path)), curve)
    assert {9} <= {epoch for epoch, _, _ in asked}
    assert {each for _, each, _ in asked} <= set(layers)
    assert {each for _, _, each in asked} <= set(kinds)
    held = {event["config"]["kind"] for event in events_of(tmp_path) if event["event"] == "trial_started"}
    assert held == {"tests.loop.simulation.parabola", "pathlib.Path"}
