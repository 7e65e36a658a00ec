"""Which trials may be averaged: good ones that differ."""

from collections.abc import Sequence
from typing import Any

from tests.history.events_of_a_run import ended, fold, reported, saved, started
from tuner.history.combination import POOL, learns, pool
from tuner.history.records import RunRecord


def searched(
    *trials: tuple[float, dict[str, Any]], saves: bool = True, losses: Sequence[float | None] = ()
) -> RunRecord:
    """Trials of one epoch that were trained to their end, each with its accuracy and configuration."""
    events = []
    for number, (accuracy, config) in enumerate(trials):
        metrics = {"accuracy": accuracy} | ({"val_loss": losses[number]} if losses else {})
        events += [started(number, config=config), reported(number, 1, **metrics)]
        events += [saved(number, 1)] if saves else []
        events.append(ended(number, "completed"))
    return fold(*events)


def numbers(record: RunRecord) -> list[int]:
    return [trial.number for trial, _ in pool(record)]


def test_of_trials_that_compute_the_same_the_best_ten_may_be_averaged_the_winner_first() -> None:
    record = searched(*((0.5 + number / 100, {"model": "a", "weight_decay": number}) for number in range(15)))
    assert numbers(record) == list(range(14, 14 - POOL, -1))
    assert numbers(searched((0.5, {"model": "a"}), saves=False)) == []


def test_a_network_learns_from_several_trials_where_that_was_asked_for() -> None:
    several, one = searched((0.5, {"lr": 0.1}), (0.6, {"lr": 0.2})), searched((0.5, {"lr": 0.1}))
    assert not learns(several)
    for how, of_several in (("ensemble", False), ("distilled", True)):
        several.confirming.combine = one.confirming.combine = how
        assert (learns(several), learns(one)) == (of_several, False)


def test_each_model_and_image_size_has_its_share_though_its_trials_are_not_among_the_best_ten() -> None:
    ahead = [(0.9 - number / 1000, {"model": "a", "image_size": 224}) for number in range(50)]
    behind = [(0.7 - number / 1000, {"model": "b"}) for number in range(12)]
    larger = [(0.6, {"model": "a", "image_size": 288})]
    assert numbers(searched(*ahead, *behind)) == [*range(5), *range(50, 55)]
    assert numbers(searched(*ahead, *larger)) == [*range(9), 50]  # the others' share goes to the better ones
    assert numbers(searched(*behind, *ahead[:2])) == [12, 13, *range(8)]


def test_after_the_winner_come_those_of_the_least_loss_by_which_an_average_is_chosen() -> None:
    alike = [(0.9 - number / 1000, {"model": "a"}) for number in range(14)]
    losses = [1.0, None, float("nan"), *(0.9 - number / 100 for number in range(11))]
    assert numbers(searched(*alike, losses=losses)) == [0, *range(13, 4, -1)]
