import math
from pathlib import Path
from typing import Any

import pytest

from tests.history.events_of_a_run import ended, event, fold, reported, saved, started
from tests.loop.simulation import build, drive, events_of, study
from tests.results.simulated import simulated
from tuner import ASHA, Budget, HyperBand
from tuner.history.records import STATUSES, RunRecord, flat_config, saved_epochs


def test_a_started_trial_runs_with_its_config_and_seed() -> None:
    record = fold(started(3, 12.5, {"lr": 0.1}))
    trial = record.trials["00003"]
    assert (trial.number, trial.config, trial.seed, trial.started) == (3, {"lr": 0.1}, 103, 12.5)
    assert (trial.status, trial.live, trial.epoch, trial.metrics()) == ("running", True, 0, {})
    assert (trial.ended, trial.last_checkpoint, record.best_of("00003")) == (None, 0, None)


def test_a_reported_epoch_keeps_metrics_decision_and_time() -> None:
    record = fold(
        started(0), reported(0, 1, 5.0, accuracy=0.5, loss=1.0), reported(0, 2, 6.0, "stop", accuracy=0.4, loss=0.9)
    )
    trial = record.trials["00000"]
    assert (trial.epoch, trial.metrics()) == (2, {"accuracy": 0.4, "loss": 0.9})
    assert [(e.epoch, e.decision, e.time) for e in trial.epochs.values()] == [(1, "continue", 5.0), (2, "stop", 6.0)]
    assert record.best_of("00000") == (1, 0.5)
    assert record.epochs() == 2


def test_the_newest_checkpoint_is_that_of_the_highest_epoch_still_there() -> None:
    record = fold(started(0), saved(0, 10), saved(0, 9), saved(0, 2))
    trial = record.trials["00000"]
    assert trial.last_checkpoint == 10
    record.apply(event("checkpoint_deleted", trial="00000", epoch=10))
    record.apply(event("checkpoint_deleted", trial="00000", epoch=10))
    assert trial.last_checkpoint == 9
    assert sorted(trial.checkpoints) == [2, 9]


def test_time_spent_paused_is_not_running_time() -> None:
    record = fold(
        started(0, 10.0),
        event("trial_paused", 13.0, trial="00000", epoch=3),
        event("trial_resumed", 100.0, trial="00000", epoch=3),
        ended(0, "completed", 104.5),
    )
    trial = record.trials["00000"]
    assert (trial.running_seconds, trial.ended, trial.status, trial.paused) == (7.5, 104.5, "completed", False)


def test_a_paused_trial_is_live_and_waits() -> None:
    trial = fold(started(0), event("trial_paused", trial="00000", epoch=3)).trials["00000"]
    assert (trial.status, trial.live, trial.paused, trial.running_since) == ("paused", True, True, None)


def test_a_lost_worker_is_counted_and_the_trial_goes_on() -> None:
    lost = event("trial_lost", 4.0, trial="00000", message="node died")
    trial = fold(started(0), lost, lost, started(0, 6.0, from_epoch=1), ended(0, "completed", 9.0)).trials["00000"]
    assert (trial.losses, trial.status) == (2, "completed")


def test_a_failed_trial_says_why() -> None:
    why: dict[str, str | None] = {"cause": "error", "message": "ValueError: x", "traceback": "Traceback …"}
    trial = fold(started(0), ended(0, "failed", 2.0, **why)).trials["00000"]
    assert (trial.status, trial.cause, trial.message, trial.traceback) == ("failed", *why.values())
    assert not trial.live


def test_notices_and_the_reason_of_the_end_are_kept() -> None:
    record = fold(event("study_started", trials=1), event("notice", message="one", code=None))
    assert (record.notices, record.ended) == (["one"], None)
    record.apply(event("study_ended", 3.0, reason="hours"))
    assert record.ended == "hours"
    record.apply(event("study_resumed", 4.0, trials=2))
    assert record.ended is None


def test_an_event_of_a_later_version_is_passed_over() -> None:
    record = fold(event("study_started", 1.0, trials=1), event("weather_changed", 5.0, to="rain"))
    assert record.trials == {}
    assert record.wall_seconds == 4.0


def test_trials_are_counted_by_status_and_failures_by_cause_the_most_frequent_first() -> None:
    causes = ["diverged", "error", "error", "lost", "error", "diverged"]
    events = [e for number, cause in enumerate(causes) for e in (started(number), ended(number, "failed", cause=cause))]
    record = fold(*events, started(6), started(7), ended(7, "stopped"))
    assert record.failures() == {"error": 3, "diverged": 2, "lost": 1}
    assert list(record.failures()) == ["error", "diverged", "lost"]
    assert record.counts() == {**dict.fromkeys(STATUSES, 0), "failed": 6, "running": 1, "stopped": 1}


# The best


def test_the_best_trial_has_the_best_value_at_any_epoch() -> None:
    events = [
        started(0), reported(0, 1, accuracy=0.7), reported(0, 2, accuracy=0.2), ended(0, "completed"),
        started(1), reported(1, 1, accuracy=0.5), reported(1, 2, accuracy=0.6), ended(1, "completed"),
    ]  # fmt: skip
    highest, lowest = fold(*events), fold(*events, mode="min")
    assert (highest.best_trial(), highest.best_of("00000")) == (highest.trials["00000"], (1, 0.7))
    assert (lowest.best_trial(), lowest.best_of("00000")) == (lowest.trials["00000"], (2, 0.2))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_ties_go_to_the_earlier_trial_and_the_earlier_epoch(mode: str) -> None:
    record = fold(
        started(0), started(1), reported(1, 1, accuracy=0.5), reported(0, 2, accuracy=0.5), reported(0, 3, accuracy=0.5),
        mode=mode,
    )  # fmt: skip
    assert record.best_trial() is record.trials["00000"]
    assert record.best_of("00000") == (2, 0.5)


def test_a_failed_trial_never_wins_whatever_it_reported_before() -> None:
    record = fold(started(0), reported(0, 1, accuracy=0.9))
    assert record.best_trial() is record.trials["00000"]
    record.apply(ended(0, "failed", cause="lost"))
    assert record.best_trial() is None
    assert record.best_of("00000") == (1, 0.9)


@pytest.mark.parametrize("value", [None, "high", True, math.nan, math.inf])
def test_what_is_no_number_is_never_the_best(value: object) -> None:
    record = fold(started(0), reported(0, 1, accuracy=value), reported(0, 2, loss=0.1))
    assert record.best_trial() is None
    assert record.best_of("00000") is None


# Interruptions


def test_an_epoch_trained_again_replaces_the_row_and_may_take_the_best_with_it() -> None:
    record = fold(
        started(0), reported(0, 1, accuracy=0.5), reported(0, 2, accuracy=0.9),
        event("study_interrupted"), event("study_resumed", trials=1), started(0, from_epoch=1),
        reported(0, 2, 7.0, accuracy=0.4),
    )  # fmt: skip
    trial = record.trials["00000"]
    assert (list(trial.epochs), record.epochs()) == ([1, 2], 2)
    assert (trial.epochs[2].metrics, trial.epochs[2].time) == ({"accuracy": 0.4}, 7.0)
    assert record.best_of("00000") == (1, 0.5)


def test_an_epoch_trained_again_without_a_number_leaves_no_best_behind() -> None:
    record = fold(started(0), reported(0, 1, accuracy=0.5), reported(0, 1, accuracy=None))
    assert record.best_of("00000") is None
    assert record.best_trial() is None


def test_what_ran_or_waited_when_the_study_was_interrupted_can_go_on() -> None:
    record = fold(
        event("study_started", 0.0, trials=3),
        started(0, 1.0), ended(0, "completed", 2.0), started(1, 3.0),
        event("trial_paused", 5.0, trial="00001", epoch=3), started(2, 5.0), event("study_interrupted", 9.0),
    )  # fmt: skip
    assert [trial.status for trial in record.trials.values()] == ["completed", "interrupted", "interrupted"]
    assert [trial.live for trial in record.trials.values()] == [False, True, True]
    assert [trial.running_seconds for trial in record.trials.values()] == [1.0, 2.0, 4.0]
    record.apply(event("study_resumed", 20.0, trials=3))
    assert [trial.status for trial in record.trials.values()] == ["completed", "paused", "interrupted"]
    record.apply(started(2, 21.0, from_epoch=2))
    record.apply(ended(2, "completed", 22.5))
    assert record.trials["00002"].running_seconds == 5.5
    assert record.trials["00002"].started == 5.0


def test_a_driver_that_was_killed_counts_up_to_its_last_event() -> None:
    record = fold(event("study_started", 10.0, trials=1), started(0, 11.0), reported(0, 1, 14.0, accuracy=0.5))
    assert (record.active_seconds, record.wall_seconds) == (0.0, 4.0)
    record.apply(event("study_resumed", 1000.0, trials=1))
    assert (record.active_seconds, record.wall_seconds) == (4.0, 4.0)
    assert record.trials["00000"].running_seconds == 3.0
    assert record.trials["00000"].status == "interrupted"
    record.apply(started(0, 1001.0, from_epoch=1))
    assert (record.active_seconds, record.wall_seconds) == (4.0, 5.0)
    record.apply(event("study_ended", 1006.0, reason="trials"))
    assert (record.active_seconds, record.wall_seconds) == (10.0, 10.0)


def test_an_epoch_that_is_trained_again_counts_once_and_is_told_apart() -> None:
    record = fold(started(0), reported(0, 1), reported(0, 2), event("study_resumed"), started(0), reported(0, 1))
    assert (record.epochs(), record.search_epochs(), record.epochs_again()) == (2, 2, 1)
    for epoch in (2, 3):
        record.apply(reported(0, epoch))
    assert (record.epochs(), record.search_epochs(), record.epochs_again()) == (3, 3, 2)


def test_closing_twice_counts_nothing_twice() -> None:
    record = fold(event("study_started", 10.0, trials=1), started(0, 11.0), event("study_interrupted", 14.0))
    record.close()
    assert record.active_seconds == 4.0
    assert record.trials["00000"].running_seconds == 3.0


def test_trials_that_are_trained_as_one_share_the_time_of_their_stay() -> None:
    where: dict[str, Any] = {"host": "a", "pid": 1, "devices": ["1 CPU"]}
    record = fold(
        event("study_started", 10.0, trials=9),
        *(started(number, 10.0) for number in range(4)),
        *(event("trial_placed", 10.0, trial=f"{number:05d}", together=4, **where) for number in range(4)),
        *(reported(number, 1, 18.0) for number in range(3)),
    )
    assert record.running_seconds() == 8.0  # of one worker
    assert record.running_seconds_of(record.trials["00000"]) == 2.0
    for number in range(3):
        record.apply(ended(number, "completed", 18.0))
    assert (record.running_seconds(), record.device_hours(2) * 3600) == (8.0, 16.0)
    assert record.trials["00000"].running_seconds == 2.0


def test_a_run_without_events_took_no_time() -> None:
    record = RunRecord("accuracy", "max")
    record.close()
    assert (record.wall_seconds, record.epochs(), record.best_trial(), record.failures()) == (0.0, 0, None, {})


@pytest.mark.parametrize("scheduler", [ASHA(grace_epochs=3), ASHA(grace_epochs=3, rule="promote"), HyperBand()])
def test_the_events_of_a_search_fold_to_the_record_that_its_driver_had(tmp_path: Path, scheduler: Any) -> None:
    declared = study(scheduler=scheduler, budget=Budget(trials=9, max_epochs=9))
    drive(build(declared, tmp_path), reports=20)
    loop = build(declared, tmp_path, history=events_of(tmp_path))
    drive(loop)
    loop.end()
    loop.close()
    again = RunRecord("loss", "min", events_of(tmp_path))
    assert again.trials == loop.record.trials
    assert again.best_trial() == loop.record.best_trial()
    assert (again.ended, again.active_seconds) == (loop.record.ended, loop.record.active_seconds)


def test_nested_settings_get_dotted_names() -> None:
    assert flat_config({"lr": 0.1, "net": {"width": 8, "act": {"name": "relu"}}}) == {
        "lr": 0.1,
        "net.width": 8,
        "net.act.name": "relu",
    }


def test_trained_and_saved_epochs_add_up_to_full_trials(tmp_path: Path) -> None:
    run = simulated(tmp_path, curve=lambda config, epoch: abs(config["lr"] - 0.01) + 1 / epoch)
    assert run.record.counts()["stopped"]
    spared = saved_epochs(run.record.trials.values(), run.longest_trial)
    assert run.record.epochs() + spared == 9 * len(run.record.trials)
