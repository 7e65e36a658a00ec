"""Which trials may be averaged: good ones that differ."""

from typing import Any

from tests.history.events_of_a_run import ended, fold, reported, saved, started
from tuner.history.combination import POOL, pool
from tuner.history.records import RunRecord


def searched(*trials: tuple[float, dict[str, Any]], saves: bool = True) -> RunRecord:
    """Trials of one epoch that were trained to their end, each with its accuracy and configuration."""
    events = []
    for number, (accuracy, config) in enumerate(trials):
        events += [started(number, config=config), reported(number, 1, accuracy=accuracy)]
        events += [saved(number, 1)] if saves else []
        events.append(ended(number, "completed"))
    return fold(*events)


def numbers(record: RunRecord) -> list[int]:
    return [trial.number for trial, _ in pool(record)]


def test_of_trials_that_compute_the_same_the_best_ten_may_be_averaged_the_winner_first() -> None:
    record = searched(*((0.5 + number / 100, {"model": "a", "weight_decay": number}) for number in range(15)))
    assert numbers(record) == list(range(14, 14 - POOL, -1))
    assert numbers(searched((0.5, {"model": "a"}), saves=False)) == []


def test_each_model_and_image_size_has_its_share_though_its_trials_are_not_among_the_best_ten() -> None:
    ahead = [(0.9 - number / 1000, {"model": "a", "image_size": 224}) for number in range(50)]
    behind = [(0.7 - number / 1000, {"model": "b"}) for number in range(12)]
    larger = [(0.6, {"model": "a", "image_size": 288})]
    assert numbers(searched(*ahead, *behind)) == [*range(5), *range(50, 55)]
    assert numbers(searched(*ahead, *larger)) == [*range(9), 50]  # the others' share goes to the better ones
    assert numbers(searched(*behind, *ahead[:2])) == [12, 13, *range(8)]
