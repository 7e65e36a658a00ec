"""Which trial is ahead, as users would have it."""

from tests.history.events_of_a_run import ended, event, started
from tuner.history.records import RunRecord


def record_of(*trials: tuple[list[float], str], mode: str = "max", by: str | None = None) -> RunRecord:
    record = RunRecord("accuracy", mode)
    for number, (values, status) in enumerate(trials):
        record.apply(started(number))
        for epoch, value in enumerate(values, start=1):
            metrics = {"accuracy": value}
            record.apply(
                event("epoch_reported", trial=f"{number:05d}", epoch=epoch, metrics=metrics, decision="continue")
            )
        if status != "running":
            end = ended(number, status)
            record.apply(end if by is None or status != "stopped" else {**end, "by": by})
    return record


def winner(record: RunRecord) -> str | None:
    best = record.best_trial()
    return best and best.trial


STEADY = [0.7, 0.8, 0.84, 0.85, 0.86, 0.85, 0.86, 0.85]
LUCKY = [0.7, 0.75, 0.8, 0.81, 0.9, 0.8, 0.81, 0.8]


def test_a_steady_trial_wins_over_a_lucky_one() -> None:
    record = record_of((LUCKY, "completed"), (STEADY, "completed"))
    assert winner(record) == "00001"
    assert [one.trial.trial for one in record.ranked()] == ["00001", "00000"]
    assert record.best_value == 0.9  # which `target` reads
    assert record.best_reporter is record.trials["00000"]


def test_what_early_stopping_ended_is_not_ahead_by_one_high_value() -> None:
    assert winner(record_of(([0.7, 0.95], "stopped"), (STEADY, "completed"))) == "00001"


def test_without_a_trial_that_was_trained_to_its_end_the_best_value_stands() -> None:
    record = record_of(([0.7, 0.95, 0.6], "stopped"), ([0.8, 0.9], "paused"))
    assert winner(record) == "00000"
    assert record.best_of("00000") == (2, 0.95)


def test_of_trials_that_are_too_short_for_a_mean_the_best_value_wins_also_where_the_budget_cut_it_off() -> None:
    full, cut = [0.4972, 0.7654, 0.6927], [0.5363, 0.8883]
    record = record_of((full, "completed"), (cut, "stopped"))
    assert winner(record) == "00001"
    assert [one.trial.trial for one in record.ranked()] == ["00001", "00000"]
    assert winner(record_of((full, "completed"), ([0.5363, 0.7], "stopped"))) == "00000"
    longer = record_of((full, "completed"), (cut, "stopped"), (STEADY, "completed"))
    assert winner(longer) == "00002"  # whose noise is known


def test_a_trial_that_is_better_throughout_is_ahead_before_it_ends() -> None:
    record = record_of((STEADY, "completed"), ([0.8, 0.95, 0.96], "running"))
    assert winner(record) == "00001"
    worse = {"trial": "00001", "epoch": 4, "metrics": {"accuracy": 0.1}, "decision": "continue"}
    record.apply(event("epoch_reported", **worse))
    assert winner(record) == "00000"


def test_the_trial_that_reached_the_target_wins() -> None:
    assert winner(record_of((STEADY, "completed"), ([0.7, 0.95], "stopped"), by="target")) == "00001"
    assert winner(record_of((STEADY, "completed"), ([0.7, 0.95], "stopped"), by="scheduler")) == "00000"


def test_the_saved_network_nearest_to_what_should_stand_stands() -> None:
    record = record_of((STEADY, "completed"))
    assert record.best_of("00000") == (8, record.best_of("00000")[1])  # type: ignore[index]
    for epoch, stands in ((3, 3), (6, 6), (5, 5), (8, 8)):  # of equals the first, 5, is the best epoch
        record.apply(event("checkpoint_saved", trial="00000", epoch=epoch))
        worth = record.worth_of("00000")
        assert worth is not None
        assert (worth.epoch, worth.reported) == (stands, STEADY[stands - 1])


def test_a_failed_trial_is_never_ahead() -> None:
    assert winner(record_of((STEADY, "failed"), ([0.1], "stopped"))) == "00001"


def test_values_whose_sum_is_no_number_any_more_are_compared() -> None:
    assert winner(record_of(([1e308, 1e308, 1.2e308], "stopped"), ([0.7, 0.8, 0.9, 0.9], "completed"))) == "00000"
