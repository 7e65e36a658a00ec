from pathlib import Path

from tests.history.events_of_a_run import ended, event, fold, reported, saved, started
from tests.loop.simulation import build, drive, study
from tuner import ASHA, Budget, HyperBand, choice, uniform
from tuner.history.events import Event
from tuner.history.records import RunRecord
from tuner.loop.keeping import not_needed
from tuner.loop.queue import Start


def trained(number: int, *values: float | None) -> list[Event]:
    """A trial with a checkpoint at every epoch."""
    epochs = [(reported(number, n, accuracy=value), saved(number, n)) for n, value in enumerate(values, start=1)]
    return [started(number), *(one for pair in epochs for one in pair)]


def pruned(record: RunRecord) -> list[str]:
    """What is left of the record's checkpoints once those that nothing needs are gone."""
    for trial_id, epoch in not_needed(record):
        record.apply(event("checkpoint_deleted", trial=trial_id, epoch=epoch))
    assert not_needed(record) == []
    return sorted(f"{t.trial}/{epoch}" for t in record.trials.values() for epoch in t.checkpoints)


def test_a_running_trial_keeps_its_newest_and_its_best() -> None:
    assert pruned(fold(*trained(0, 0.1, 0.9, 0.3, 0.4))) == ["00000/2", "00000/4"]


def test_of_ended_trials_only_the_winner_keeps_its_checkpoint(tmp_path: Path) -> None:
    record = fold(
        *trained(0, 0.1, 0.5), ended(0, "completed"), *trained(1, 0.2, 0.65, 0.6), ended(1, "stopped"),
        *trained(2, 0.7), ended(2, "completed"),
    )  # fmt: skip
    assert pruned(record) == ["00002/1"]


def test_a_completed_trial_keeps_its_last_checkpoint_not_that_of_a_lucky_epoch(tmp_path: Path) -> None:
    record = fold(*trained(0, 0.1, 0.5, 0.6, 0.58, 0.9, 0.61, 0.6, 0.59), ended(0, "completed"))
    assert pruned(record) == ["00000/8"]


def test_the_best_of_the_completed_is_kept_while_a_shortened_one_is_ahead_as_it_may_not_stay_so() -> None:
    steady, ahead, lucky = (0.7, 0.78, 0.8, 0.8, 0.8, 0.8), (0.84, 0.85), (0.6, 0.7, 0.7, 0.9, 0.7, 0.7)
    record = fold(*trained(0, *steady), ended(0, "completed"), *trained(1, *ahead), ended(1, "stopped"))
    assert record.best_trial() is record.trials["00001"]
    assert pruned(record) == ["00000/6", "00001/2"]
    for one in [*trained(2, *lucky), ended(2, "completed")]:
        record.apply(one)  # reports more than the shortened one did, and is worth less than the first
    assert record.best_trial() is record.trials["00000"]
    assert pruned(record) == ["00000/6"]


def test_one_that_became_worse_keeps_the_best(tmp_path: Path) -> None:
    record = fold(*trained(0, 0.1, 0.5, 0.8, 0.81, 0.8, 0.6, 0.4, 0.2), ended(0, "completed"))
    assert pruned(record) == ["00000/4"]


def test_of_equal_trials_the_earlier_one_keeps_its_checkpoint_as_it_wins(tmp_path: Path) -> None:
    record = fold(*trained(0, 0.5, 0.5), ended(0, "completed"), *trained(1, 0.5), ended(1, "completed"))
    assert pruned(record) == ["00000/1"]
    assert record.best_trial() is record.trials["00000"]


def test_a_running_trial_that_the_incumbent_beats_keeps_its_newest_alone(tmp_path: Path) -> None:
    record = fold(*trained(0, 0.9), ended(0, "completed"), *trained(1, 0.5, 0.4))
    assert pruned(record) == ["00000/1", "00001/2"]


def test_an_incumbent_keeps_its_checkpoint_while_a_running_trial_is_ahead_of_it(tmp_path: Path) -> None:
    """The running one may still fail, and then the ended one wins."""
    record = fold(*trained(0, 0.8), ended(0, "completed"), *trained(1, 0.9, 0.4))
    assert pruned(record) == ["00000/1", "00001/1", "00001/2"]
    record.apply(ended(1, "failed", cause="error"))
    assert pruned(record) == ["00000/1", "00001/2"]  # the newest of the failed one, which may be run again


def test_paused_and_interrupted_trials_keep_what_they_go_on_from(tmp_path: Path) -> None:
    record = fold(
        *trained(0, 0.9), ended(0, "completed"), *trained(1, 0.3, 0.2),
        event("trial_paused", trial="00001", epoch=2), *trained(2, 0.2, 0.1), event("study_interrupted"),
    )  # fmt: skip
    assert pruned(record) == ["00000/1", "00001/2", "00002/2"]


def test_a_failed_trial_keeps_nothing() -> None:
    assert pruned(fold(*trained(0, 0.9, None), ended(0, "failed", cause="diverged"))) == []


def test_a_trial_without_a_value_keeps_its_newest_while_it_runs() -> None:
    assert pruned(fold(*trained(0, None, None))) == ["00000/2"]


def test_a_winner_whose_best_epoch_was_not_saved_keeps_its_newest(tmp_path: Path) -> None:
    record = fold(
        started(0), reported(0, 1, accuracy=0.9), reported(0, 2, accuracy=0.5), saved(0, 2),
        reported(0, 3, accuracy=0.4), saved(0, 3), ended(0, "completed"),
    )  # fmt: skip
    assert pruned(record) == ["00000/3"]


def test_a_lower_value_is_the_better_one_where_the_mode_says_so(tmp_path: Path) -> None:
    record = fold(
        *trained(0, 0.5, 0.1, 0.2), ended(0, "completed"), *trained(1, 0.3), ended(1, "completed"), mode="min"
    )
    assert pruned(record) == ["00000/2"]


def test_a_search_keeps_its_winners_checkpoint_whatever_the_scheduler(tmp_path: Path) -> None:
    for scheduler in (ASHA(grace_epochs=3), ASHA(grace_epochs=3, rule="promote"), HyperBand()):
        folder = tmp_path / repr(scheduler)
        loop = build(study(scheduler=scheduler, budget=Budget(trials=9, max_epochs=9)), folder)
        drive(loop)
        best = loop.record.best_trial()
        assert best is not None
        epoch, _ = loop.record.best_of(best.trial) or (0, 0.0)
        assert {(t.trial, e) for t in loop.record.trials.values() for e in t.checkpoints} == {(best.trial, epoch)}


def test_of_small_heads_the_best_ten_on_each_model_are_kept_so_that_they_can_be_averaged(tmp_path: Path) -> None:
    for more, each in (({}, 0), ({"finetune": "head"}, 10)):
        space = {"x": uniform(0, 1), "model": choice(["a", "b"]), **more}
        loop = build(study(space=space, budget=Budget(trials=60, max_epochs=1)), tmp_path / str(each))
        drive(loop)
        ranked = [one.trial for one in loop.record.ranked()]
        for name in "ab":  # the place that a network must reach is that among its own kind
            alike = [trial for trial in ranked if not each or trial.config["model"] == name]
            last = loop.record.worth_of(alike[(each or 1) - 1].trial)
            assert last is not None
            assert loop.to_beat(Start("new", 99, {"x": 0.5, "model": name, **more}, 0, 1)) == last.value
        loop.end()
        best = [[trial.trial for trial in ranked if trial.config["model"] == name][:each] for name in "ab"]
        kept = [trial.trial for trial in loop.record.trials.values() if trial.checkpoints]
        assert sorted(kept) == sorted(best[0] + best[1] or [ranked[0].trial])
        assert len(kept) == (2 * each or 1)
