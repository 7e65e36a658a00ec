import math

import numpy as np
import pytest

from tests.search.searching import propose, run
from tuner.errors import SpaceError, StudyError
from tuner.search import BOHB, Problem, Random, SearchAlgorithm
from tuner.search.bohb import BOHBSearcher
from tuner.space import Config, Space, choice, grid_search, loguniform, qrandint, uniform

SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "width": qrandint(16, 128, 16),
    "optimizer": choice(["adam", "sgd"]),
    "momentum": uniform(0.5, 0.99).when(optimizer="sgd"),
}


def loss(config: Config) -> float:
    momentum = (config["momentum"] - 0.9) ** 2 if "momentum" in config else 0.05
    return float((math.log10(config["lr"]) + 2.5) ** 2 / 4 + (config["width"] - 64) ** 2 / 10_000 + momentum)


def build(**settings: object) -> BOHBSearcher:
    problem = Problem(Space(SPACE), mode="min", max_epochs=27, rungs=(3, 9))
    searcher = BOHB(**settings).build(problem)  # type: ignore[arg-type]
    assert isinstance(searcher, BOHBSearcher)
    return searcher


def tell(searcher: BOHBSearcher, number: int, epochs: dict[int, float]) -> None:
    config = searcher.suggest(number)
    assert config is not None
    searcher.adopt(number, config)
    for epoch, value in epochs.items():
        searcher.observe(number, epoch, value)


def test_it_tries_better_configurations_than_random_search() -> None:
    def tried(search: SearchAlgorithm, seed: int) -> float:
        configs = run(propose(search, SPACE, seed=seed), loss, 60)
        return float(np.median([loss(config) for config in configs[30:]]))

    found, blind = (np.array([tried(search, seed) for seed in range(10)]) for search in (BOHB(), Random(sobol=False)))
    assert np.median(found) < np.median(blind) / 2
    assert (found < blind).sum() >= 9


def test_values_are_plain_and_quantised() -> None:
    for config in run(propose(BOHB(random_share=0), SPACE), loss, 40):
        assert type(config["lr"]) is float
        assert type(config["width"]) is int
        assert config["width"] % 16 == 0
        assert ("momentum" in config) == (config["optimizer"] == "sgd")


def test_it_models_the_highest_epoch_that_enough_trials_reached() -> None:
    searcher = build()  # four dimensions: five points of either kind, seven trials at least
    for number in range(6):
        tell(searcher, number, {3: 1.0, 9: 1.0})
    assert searcher._level() is None
    tell(searcher, 6, {3: 1.0})
    assert searcher._level() == 3
    tell(searcher, 7, {3: 1.0, 9: 1.0})
    assert searcher._level() == 9


def test_a_share_of_the_suggestions_is_random() -> None:
    searcher = build(random_share=0.25)
    for number in range(12):
        tell(searcher, number, {3: float(number)})
    blind = [searcher.suggest(number) == searcher._blind.suggest(number) for number in range(12, 412)]
    assert 70 <= sum(blind) <= 130


def test_failed_trials_are_among_the_bad() -> None:
    searcher = build()
    for number in range(8):
        tell(searcher, number, {3: float(number)})
    searcher.end(0, "failed")
    assert searcher._ranked(3) == [1, 2, 3, 4, 5, 6, 7, 0]


def test_max_is_min_of_the_negated() -> None:
    low = run(propose(BOHB(), SPACE, mode="min"), loss, 25)
    assert low == run(propose(BOHB(), SPACE, mode="max"), lambda config: -loss(config), 25)
    assert low != run(propose(BOHB(), SPACE, mode="max"), loss, 25)


def test_a_space_of_constants_has_one_configuration() -> None:
    assert run(propose(BOHB(), {"a": 1}), lambda config: 0.0, 5) == [{"a": 1}]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (BOHB(min_points=0), "BOHB.min_points needs a whole number from 1 to 1,000,000, got 0; use 5"),
        (BOHB(candidates=-1), "BOHB.candidates needs a whole number from 1 to 1,000,000, got -1; use 64"),
        (BOHB(good_share=1.5), "BOHB.good_share needs a share from 0 to 1, got 1.5; use 0.15"),
        (BOHB(random_share=True), "BOHB.random_share needs a share from 0 to 1, got True; use 0.33"),
        (BOHB(bandwidth_factor=0), "BOHB.bandwidth_factor needs a number above 0, got 0; use 3"),
    ],
)
def test_settings_that_cannot_work_are_refused(search: BOHB, message: str) -> None:
    with pytest.raises(StudyError) as error:
        search.check(Space(SPACE))
    assert str(error.value) == message


def test_grids_are_refused() -> None:
    with pytest.raises(SpaceError, match="BOHB chooses values itself and can't take grid_search"):
        BOHB().check(Space({"x": grid_search([1, 2])}))
