"""The winner trained again on training and validation images together, as the last trial of a search."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.history.events_of_a_run import ended, reported, started
from tests.loop.simulation import build, events_of
from tuner import (
    ASHA,
    Budget,
    External,
    Folds,
    ImageClassifier,
    NoEarlyStopping,
    Random,
    Run,
    Study,
    StudyError,
    load_run,
    loguniform,
)
from tuner.errors import RunFolderError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.refits import refit_of, shipped_refit
from tuner.history.run_info import write_info
from tuner.lifecycle.description import describe_run
from tuner.lifecycle.writing_best import is_written, winner_due, write_as_saved
from tuner.loop.limits import Limits
from tuner.loop.refit_cost import kept_for_refit
from tuner.loop.refitting import check_refittable, check_undoable, due_refit
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Order
from tuner.results.wording import ending, own_network, trained_again, trials_and_repeats
from tuner.schedule import Decision, Scheduler
from tuner.study.resources import Resources
from tuner.text import command


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "trial": ImageClassifier("digits", weights=None),
        "space": {"lr": loguniform(0.001, 1)},
        "metric": "val_loss",
        "search": Random(sobol=False),
        "scheduler": NoEarlyStopping(),
        "budget": Budget(trials=4, max_epochs=8),
        "refit": "train+validation",
    }
    return Study("refitted", **{**settings, **changes})


def loss(config: dict[str, Any], epoch: int) -> float:
    """Best at the fifth epoch, and clearly worse after it."""
    return float(abs(config["lr"] - 0.1) + abs(epoch - 5))


def run_on(loop: SearchLoop, reports: int | None = None, *, failing: str = "", losing: int = 0) -> None:
    """Train trial after trial to the end, or until a driver is killed after so many reports.

    Refits report no metric of validation; they raise `failing`, or lose their worker `losing` times after an epoch.
    """
    left = 10**9 if reports is None else reports
    while left > 0:
        start = loop.next_action()
        if start is None:
            assert loop.finished
            return
        epoch, decision = start.reported and loop.record.trials[start.trial].last_checkpoint, Decision.CONTINUE
        while decision is Decision.CONTINUE and left > 0:
            epoch, left = epoch + 1, left - 1
            refits = start.refit_epochs is not None
            if refits and failing:
                loop.failed(start.trial, "error", failing)
                break
            CheckpointStore(loop.folder).write(start.trial, epoch, lambda folder: (folder / "net").write_text("x"))
            metrics = {"train_loss": 1 / epoch} | ({} if refits else {"val_loss": loss(start.config, epoch)})
            decision = loop.report(start.trial, epoch, metrics, saved=[epoch])
            if refits and losing and decision is Decision.CONTINUE:
                losing -= 1
                loop.lost(start.trial, "lost", "killed")
                break


def end(loop: SearchLoop, **how: Any) -> RunRecord:
    run_on(loop, **how)
    loop.end()
    loop.close()
    return loop.record


def refits(record: RunRecord) -> list[TrialRecord]:
    return [trial for trial in record.trials.values() if trial.refits is not None]


def winner(record: RunRecord) -> TrialRecord:
    found = record.best_trial()
    assert found is not None
    return found


def test_the_last_trial_trains_the_winners_configuration_for_the_epochs_that_it_took(fast: Path) -> None:
    loop = build(study(), fast)
    record = end(loop)
    (again,), best = refits(record), winner(record)
    assert again is list(record.trials.values())[-1]
    assert (again.refits, again.config, again.status) == (best.trial, best.config, "completed")
    assert (again.refit_epochs, sorted(again.epochs)) == (5, [1, 2, 3, 4, 5])
    assert again.seed not in {trial.seed for trial in record.trials.values() if trial is not again}
    assert record.configurations == 4
    assert loop.end_reason == "trials"
    assert shipped_refit(record) is again
    assert again.checkpoints == {5}
    assert best.checkpoints == {5}  # should `best/` have to be written from it
    assert trials_and_repeats(record) == "4 trials and 1 refit"
    told = trained_again(record)
    assert told is not None
    assert (
        f"trial {again.trial} trained the winner, {best.trial}, again for 5 epochs on training and validation" in told
    )
    assert "val_loss is that of the configuration, not of this network" in told


def test_its_schedule_is_as_long_as_the_winners(fast: Path) -> None:
    loop = build(study(), fast)
    started = []
    while (start := loop.next_action()) is not None:
        started.append(start)
        for epoch in range(1, 9):
            metrics = {"train_loss": 0.1} | ({} if start.refit_epochs else {"val_loss": loss(start.config, epoch)})
            if loop.report(start.trial, epoch, metrics) is not Decision.CONTINUE:
                break
    assert [(start.epochs, start.refit_epochs) for start in started] == [(8, None)] * 4 + [(8, 5)]


@pytest.mark.parametrize("killed_after", [0, 7, 31, 32, 33, 34, 36, 37])
def test_a_search_that_is_killed_goes_on_with_it_and_trains_nothing_twice(fast: Path, killed_after: int) -> None:
    first = build(study(), fast)
    run_on(first, killed_after)
    first.close()  # as a driver that was killed: no end is written
    record = end(build(study(), fast, history=events_of(fast)))
    undisturbed = end(build(study(), fast.with_name("whole")))
    assert [(t.trial, t.refits, t.seed, t.status, len(t.epochs)) for t in record.trials.values()] == [
        (t.trial, t.refits, t.seed, t.status, len(t.epochs)) for t in undisturbed.trials.values()
    ]
    reported = [(e["trial"], e["epoch"]) for e in events_of(fast) if e["event"] == "epoch_reported"]
    assert len(reported) == len(set(reported)) == 37


def test_one_that_loses_its_worker_goes_on_from_its_last_checkpoint(fast: Path) -> None:
    record = end(build(study(), fast), losing=2)
    (again,) = refits(record)
    assert (again.losses, again.status, sorted(again.epochs)) == (2, "completed", [1, 2, 3, 4, 5])
    starts = [e["from_epoch"] for e in events_of(fast) if e["event"] == "trial_started" and e["trial"] == again.trial]
    assert starts == [0, 1, 2]


def test_the_winner_stands_where_it_fails_and_the_run_says_why(fast: Path) -> None:
    record = end(build(study(), fast), failing="no memory left")
    (again,), best = refits(record), winner(record)
    assert again.status == "failed"
    assert shipped_refit(record) is None
    assert best.checkpoints == {5}
    (told,) = [notice for notice in record.notices if "not trained again" in notice]
    assert told == (
        f"the winner was not trained again on training and validation images together (trial {again.trial} failed: "
        "error: no memory left); best/ has its network as the search trained it"
    )
    resumed = build(study(), fast, history=events_of(fast))
    record = end(resumed)
    assert len(refits(record)) == 1
    assert record.notices.count(told) == 1
    assert resumed.end_reason == "trials"


def test_one_that_failed_can_be_retried(fast: Path) -> None:
    end(build(study(), fast), failing="a cable")
    loop = build(study(), fast, history=events_of(fast))
    (again,) = refits(loop.record)
    loop.retry([again.trial])
    record = end(loop)
    (again,) = refits(record)
    assert (again.status, len(again.epochs)) == ("completed", 5)


def test_a_limit_of_epochs_keeps_what_it_takes_and_counts_it(fast: Path) -> None:
    record = end(build(study(budget=Budget(total_epochs=30, max_epochs=8)), fast))
    (again,) = refits(record)
    assert again.status == "completed"
    assert record.search_epochs() == record.epochs() <= 30
    assert record.epochs() - len(again.epochs) == 23  # had the trial that ran won by its last epoch, 8 more were due


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        (Budget(total_epochs=30, max_epochs=8), ", with what was kept to train the winner again"),
        (Budget(trials=2, max_epochs=8), ""),
    ],
    ids=["30 epochs", "2 trials"],
)
def test_a_limit_that_was_not_used_up_is_said_with_what_was_kept(fast: Path, budget: Budget, kept: str) -> None:
    """Beside "28 of 30 epochs" it said that the limit of 30 epochs was reached."""
    loop = build(study(budget=budget), fast)
    end(loop, failing="broken")  # takes none of what was kept
    info = describe_run(study(budget=budget), {}, Resources(), None)
    write_info(loop.folder, {**info, "status": "finished", "end_reason": loop.end_reason})
    told = ending(load_run(fast))
    assert told == ("the limit of 30 epochs was reached" if kept else "every trial was run") + kept


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("scheduler", [NoEarlyStopping(), ASHA(grace_epochs=2)], ids=["full length", "ASHA"])
def test_a_limit_of_epochs_has_room_for_it_whoever_wins_at_the_last_moment(
    fast: Path, workers: int, scheduler: Scheduler
) -> None:
    for seed in range(6):
        random = np.random.default_rng(seed)
        most = int(random.integers(12, 60))
        declared = study(scheduler=scheduler, seed=seed, budget=Budget(total_epochs=most, max_epochs=8))
        loop = build(declared, fast / f"{seed}", concurrency=workers)
        running: dict[str, int] = {}
        while not loop.finished:
            while (start := loop.next_action()) is not None:
                running[start.trial] = start.reported
            trial = str(random.choice(list(running)))  # whose epoch ends first is luck
            running[trial] += 1
            value = float(random.normal(8 - 0.5 * running[trial], 2))  # longer trials win more often
            CheckpointStore(loop.folder).write(trial, running[trial], lambda folder: (folder / "net").write_text("x"))
            refits = loop.record.trials[trial].refits is not None
            metrics = {"train_loss": 1.0} if refits else {"val_loss": value}
            if loop.report(trial, running[trial], metrics, saved=[running[trial]]) is not Decision.CONTINUE:
                del running[trial]
        loop.end()
        loop.close()
        shipped = shipped_refit(loop.record)
        assert shipped is not None, (seed, most, loop.record.notices)
        assert len(shipped.epochs) == shipped.refit_epochs
        assert loop.record.search_epochs() <= most


def test_nothing_is_kept_for_a_winner_that_was_trained_again_already(fast: Path) -> None:
    declared = study(budget=Budget(trials=2, max_epochs=8))
    record = end(build(declared, fast))
    assert (record.search_epochs(), kept_for_refit(declared, record)) == (21, (0, 0.0))
    assert kept_for_refit(study(budget=declared.budget, repeats=3), record) == (0, 0.0)
    more = study(budget=Budget(total_epochs=22, max_epochs=8))
    assert Limits(more, record, 1).refusal() is None
    record.trials.popitem()
    record.refits = 0
    assert Limits(more, record, 1).refusal() == (
        "--total-epochs counts the whole run and must be above the 26 that it has already used, with what is kept to train "
        "the winner again, got 22; use --total-epochs 52 for as much again"
    )
    wanted = study(budget=Budget(target=1e30, max_epochs=8))  # of a loss, and so reached at once
    told = Limits(wanted, record, 1).refusal()
    assert told is not None
    assert "got 1e+30; use --target" in told
    assert "train the winner again" not in told  # which takes nothing of it


def test_a_limit_that_is_reached_in_its_middle_ends_it_and_a_later_driver_begins_it_anew(fast: Path) -> None:
    first = build(study(budget=Budget(trials=2, max_epochs=8)), fast)
    run_on(first, 18)
    first.close()
    short = study(budget=Budget(trials=2, max_epochs=8, total_epochs=20))
    record = end(build(short, fast, history=events_of(fast)))
    (again,) = refits(record)
    assert (again.status, again.ended_by, len(again.epochs)) == ("stopped", "total_epochs", 4)
    assert [notice for notice in record.notices if "it was ended by: total_epochs" in notice]
    longer = study(budget=Budget(trials=2, max_epochs=8, total_epochs=40))
    assert due_refit(longer, record, Limits(longer, record, 1)) is not None
    record = end(build(longer, fast, history=events_of(fast)))
    assert [trial.status for trial in refits(record)] == ["stopped", "completed"]


def test_a_limit_of_time_keeps_the_seconds_that_it_takes() -> None:
    declared = study(budget=Budget(trials=4, max_epochs=8, hours=1))
    folded = study(trial=ImageClassifier("digits", weights=None, validation=Folds(5)), budget=declared.budget)
    record = RunRecord("val_loss", "min", [started(0), started(1)])
    assert kept_for_refit(declared, record) == (3, 0.0)  # an epoch for each, and one to train the better again
    record.apply(reported(0, 1, 17.0, val_loss=1.0))  # in which its worker loaded libraries, and read the data
    assert kept_for_refit(declared, record)[1] == pytest.approx(1.2 * (2 * 1.25 + 1) * 17)
    for epoch in range(2, 9):
        record.apply(reported(0, epoch, 17 + 0.5 * (epoch - 1), val_loss=1 / epoch))
    assert kept_for_refit(declared, record, 1) == (8 + 1, pytest.approx(1.2 * (16.5 + (8 * 1.25 + 1) * 0.5)))
    record.apply(ended(0, "completed", 20.5))
    record.apply(ended(1, "stopped", 20.5))
    assert kept_for_refit(declared, record) == (8, pytest.approx(1.2 * (16.5 + 8 * 1.25 * 0.5)))
    assert kept_for_refit(folded, record)[1] == pytest.approx(1.2 * (16.5 + 8 * 1.25 * 0.5 / 5))
    assert kept_for_refit(study(refit=None), record) == (0, 0.0)
    record.apply(started(2, 21.0) | {"refits": "00000", "refit_epochs": 8})
    assert kept_for_refit(declared, record) == (0, 0.0)  # it is being trained


def test_a_search_that_a_user_stops_has_none_until_refit_is_asked_for(fast: Path) -> None:
    declared = study(refit=None)
    loop = build(declared, fast)
    run_on(loop, 20)
    loop.obey(Order("1", "stop", {}, "somebody", 0.0))
    assert loop.next_action() is None
    loop.end()
    loop.close()
    assert loop.end_reason == "stop"
    asked = build(declared, fast, history=events_of(fast))
    asked.ask_for("refit_requested", alone=True, ended_by="stop")
    record = end(asked)
    (again,) = refits(record)
    assert again.status == "completed"
    assert record.configurations == loop.record.configurations
    assert asked.end_reason == "stop"


def test_an_ended_search_has_its_winner_trained_again_in_spite_of_its_limits(fast: Path) -> None:
    declared = study(refit=None, budget=Budget(total_epochs=24, max_epochs=8))
    end(build(declared, fast))
    loop = build(declared, fast, history=events_of(fast))
    loop.ask_for("refit_requested", alone=True, ended_by="total_epochs")
    record = end(loop)
    (again,) = refits(record)
    assert (again.status, len(again.epochs), record.configurations) == ("completed", 5, 3)
    assert loop.end_reason == "total_epochs"
    assert (record.epochs(), record.search_epochs()) == (29, 24)  # "24 of 24 epochs" is what displays say


def test_the_winners_own_network_ships_again_where_a_user_wants_it_and_both_are_kept(fast: Path) -> None:
    end(build(study(), fast))
    for kind, ships in (("refit_undone", False), ("refit_requested", True)):
        loop = build(study(), fast, history=events_of(fast))
        loop.ask_for(kind, alone=True, ended_by="trials")
        record = end(loop)
        (again,), best = refits(record), winner(record)  # none is trained again, although the study declares it
        assert shipped_refit(record) is (again if ships else None)
        assert (again.checkpoints, best.checkpoints) == ({5}, {5})
        assert loop.end_reason == "trials"
        due = winner_due(loop.folder, record)
        assert due is not None
        assert ("refit" in due[1]) is ships
        assert not any("was not trained again" in notice for notice in record.notices)


def test_only_what_is_kept_can_ship_again(fast: Path) -> None:
    loop = build(study(), fast)
    record = end(loop)
    write_info(loop.folder, {**describe_run(study(), {}, Resources(), None), "status": "finished"})
    (again,), best = refits(record), winner(record)
    assert check_undoable(load_run(fast)).trial == again.trial
    for trial, check in ((best, check_undoable), (again, check_refittable)):
        run = load_run(fast)
        run.record.confirming.own = check is check_refittable
        run.record.trials[trial.trial].checkpoints.clear()
        with pytest.raises(RunFolderError, match=f"^only a network whose checkpoint is kept .* trial {trial.trial},"):
            check(run)


def test_another_winner_is_trained_again_and_a_refit_of_the_old_one_that_waits_ends(fast: Path) -> None:
    first = build(study(seed=1, budget=Budget(trials=1, max_epochs=8)), fast)
    run_on(first, 10)  # two epochs of the refit
    first.close()
    record = end(build(study(seed=1, budget=Budget(trials=12, max_epochs=8)), fast, history=events_of(fast)))
    assert winner(record).trial != "00000"
    assert [(t.refits, t.status, t.ended_by) for t in refits(record)] == [
        ("00000", "stopped", "superseded"),
        (winner(record).trial, "completed", None),
    ]
    made = refit_of(record)
    assert made is not None
    assert made.done is refits(record)[-1]


def test_early_stopping_and_races_leave_it_alone(fast: Path) -> None:
    declared = study(scheduler=ASHA(), repeats=3, budget=Budget(trials=8, max_epochs=9))
    record = end(build(declared, fast))
    (again,) = refits(record)
    assert again.status == "completed"
    assert again.trial not in {trial.trial for first in record.repeated for trial in record.same_configuration(first)}
    assert not [trial for trial in record.trials.values() if trial.live]


def test_best_has_the_refit_and_the_configurations_metrics(fast: Path) -> None:
    loop = build(study(), fast)
    record = end(loop)
    (again,), best = refits(record), winner(record)
    assert not is_written(loop.folder, record)
    due = winner_due(loop.folder, record)
    assert due is not None
    assert due[1]["metrics"]["val_loss"] == best.epochs[5].metrics["val_loss"]
    assert due[1]["refit"] == {"trial": again.trial, "epoch": 5, "trained_on": "train+validation"}
    write_as_saved(loop.folder, record, loop.study)
    assert is_written(loop.folder, record)
    store = CheckpointStore(loop.folder)
    store.delete(again.trial, 5)
    record.apply({"event": "checkpoint_deleted", "time": 1.0, "trial": again.trial, "epoch": 5})
    assert shipped_refit(record) is again  # `tuner clean` takes nothing of what best/ says
    assert winner_due(loop.folder, record) is None


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"gain": 0.0112, "error": 0.02}, "test_accuracy 0.8045; the refitted one is 1.1 ± 2.0 points ahead"),
        ({"gain": 0.0, "error": 0.0}, "test_accuracy 0.8045, as the refitted one has"),
        ({"gain": 0.0, "error": 0.02}, "test_accuracy 0.8045; the refitted one is 0.0 ± 2.0 points ahead"),
        ({"gain": -0.039, "error": 0.02}, "test_accuracy 0.8045; the refitted one is 3.9 ± 2.0 points behind"),
        (
            {"gain": -0.2346, "error": 0.035},
            "test_accuracy 0.8045; the refitted one is 23.5 ± 3.5 points behind, more than chance; ",
        ),
        (
            {"metric": "subset_accuracy", "test_subset_accuracy": 0.5, "gain": 0.25, "error": 0.125},
            "test_subset_accuracy 0.5; the refitted one is 25.0 ± 12.5 points ahead",
        ),
        (
            {"metric": "mae", "test_mae": 3.25, "gain": 0.5, "error": 0.3125},
            "test_mae 3.25; the refitted one is 0.5 ± 0.31 ahead",
        ),
        (
            {"metric": "mae", "test_mae": 3.25, "gain": -12.5, "error": 2.5},
            "test_mae 3.25; the refitted one is 12.5 ± 2.5 behind, more than chance; ",
        ),
        ({"metric": "mae", "gain": 0.5, "error": 0.25}, None),
        ({"gain": "none", "error": 0.035}, None),
        (None, None),
    ],
    ids=[
        "ahead",
        "the same",
        "the same within its error",
        "within its error",
        "far behind",
        "labels",
        "number",
        "number far behind",
        "not of it",
        "damaged",
        "not known",
    ],
)
def test_the_winners_own_network_is_told_beside_it(fast: Path, own: dict[str, Any] | None, said: str | None) -> None:
    loop = build(study(), fast)
    record = end(loop)
    write_info(loop.folder, {**describe_run(study(), {}, Resources(), None), "status": "finished"})
    write_as_saved(loop.folder, record, loop.study)
    metrics = json.loads((fast / "best" / "metrics.json").read_text())
    metrics["refit"]["own"] = own and {"test_accuracy": 0.80447, **own}
    (fast / "best" / "metrics.json").write_text(json.dumps(metrics))
    run = load_run(fast)
    told = own_network(run)
    if said is None:
        assert told is None
        return
    assert told is not None
    start = "on the same test images the winner's own network has "
    advice = f"to use its own network again: {command('refit', run.path, '--undo')}"
    assert told == start + said + (advice if said.endswith("; ") else "")
    run.record.confirming.own = True
    assert own_network(run) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"refit": True}, r"^refit needs 'train\+validation' or None, got True; write refit='train\+validation'$"),
        ({"refit": "train"}, r"^refit needs 'train\+validation' or None, got 'train'; "),
        (
            {"trial": lambda config: None},
            r"^refit needs an ImageClassifier, whose images tuner knows, got the function",
        ),
        ({"trial": External("furnace")}, r"^refit needs an ImageClassifier, whose images tuner knows, got .*furnace"),
    ],
)
def test_it_is_refused_where_it_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        study(**changes)


def test_refit_refuses_a_run_without_a_winner_and_one_that_has_it(fast: Path) -> None:
    loop = build(study(), fast)
    write_info(loop.folder, describe_run(study(), {}, Resources(), None) | {"status": "finished"})
    with pytest.raises(
        RunFolderError, match=r"^refit needs a run with a winner, got one in which no trial has a value"
    ):
        check_refittable(Run(loop.folder))
    record = end(loop)
    with pytest.raises(RunFolderError, match=rf"whose winner, trial {winner(record).trial}, trial 00004 has trained"):
        check_refittable(Run(loop.folder))
