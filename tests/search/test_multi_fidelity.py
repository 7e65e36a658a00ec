import math

import numpy as np
import pytest

from tests.search.searching import propose, run
from tuner.errors import SpaceError, StudyError
from tuner.search import MultiFidelityGP, Problem, Proposals, Random, Searcher
from tuner.search.multi_fidelity import FLOOR, LARGEST_MODEL, MultiFidelityGPSearcher, Told, scale
from tuner.search.observations import fidelities
from tuner.space import Config, Space, choice, grid_search, loguniform, randint, sample_from, uniform

PLANE = {"x": uniform(0, 1), "y": uniform(0, 1)}
MIXED = {
    "lr": loguniform(1e-4, 1e-1),
    "layers": randint(1, 6),
    "optimizer": choice(["adam", "sgd"]),
    "momentum": uniform(0.5, 0.99).when(optimizer="sgd"),
}


def bowl(config: Config) -> float:
    return float((config["x"] - 0.3) ** 2 + (config["y"] - 0.8) ** 2)


def mixed(config: Config) -> float:
    momentum = (config["momentum"] - 0.9) ** 2 if "momentum" in config else 0.05
    return float((math.log10(config["lr"]) + 2.5) ** 2 / 4 + (config["layers"] - 4) ** 2 / 16 + momentum)


def build(**problem: object) -> Searcher:
    settings = {"space": Space(PLANE), "max_epochs": 27, "rungs": (3, 9), **problem}
    return MultiFidelityGP().build(Problem(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(("space", "objective"), [(PLANE, bowl), (MIXED, mixed)])
def test_it_finds_better_configurations_than_a_sobol_sequence(space: dict[str, object], objective: object) -> None:
    def best(search: object, seed: int) -> float:
        return min(objective(config) for config in run(propose(search, space, seed=seed), objective, 25))  # type: ignore[operator, arg-type]

    found, blind = (np.array([best(search, seed) for seed in range(8)]) for search in (MultiFidelityGP(), Random()))
    assert np.median(found) < np.median(blind) / 4
    assert (found < blind).sum() >= 6


def test_max_is_min_of_the_negated() -> None:
    low = run(propose(MultiFidelityGP(), PLANE, mode="min"), bowl, 15)
    assert low == run(propose(MultiFidelityGP(), PLANE, mode="max"), lambda config: -bowl(config), 15)
    assert low != run(propose(MultiFidelityGP(), PLANE, mode="max"), bowl, 15)


def test_it_learns_from_trials_that_were_stopped_early() -> None:
    searcher = build()
    values = []
    for number in range(25):
        config = searcher.suggest(number)
        assert config is not None
        searcher.adopt(number, config)
        for epoch in (1, 2, 3):
            searcher.observe(number, epoch, -bowl(config) - 1 / epoch)
        searcher.end(number, "stopped")
        values.append(bowl(config))
    assert np.median(values[15:]) < 0.1 < np.median(values[:10])


def test_a_trial_that_runs_keeps_the_next_one_away() -> None:
    distances = []
    for runs in (True, False):
        searcher = build()
        for number in range(8):
            config = searcher.suggest(number)
            assert config is not None
            searcher.adopt(number, config)
            searcher.observe(number, 3, -bowl(config))
        running = searcher.suggest(8)
        assert running is not None
        searcher.adopt(8, running)
        if not runs:
            searcher.end(8, "stopped")  # without having told anything
        following = searcher.suggest(9)
        assert following is not None
        distances.append(math.dist((running["x"], running["y"]), (following["x"], following["y"])))
    assert distances[0] > 2 * distances[1]


def test_regions_where_trials_fail_are_left() -> None:
    searcher = build()
    for number in range(30):
        config = searcher.suggest(number)
        assert config is not None
        searcher.adopt(number, config)
        if config["x"] > 0.5:
            searcher.end(number, "failed")
        else:
            searcher.observe(number, 3, config["x"])
            searcher.end(number, "stopped")
    late = [searcher.suggest(number) for number in range(30, 40)]
    assert sum(config is not None and config["x"] <= 0.5 for config in late) >= 8


def test_all_trials_failed_is_no_reason_to_fail() -> None:
    searcher = build()
    for number in range(8):
        config = searcher.suggest(number)
        assert config is not None
        searcher.adopt(number, config)
        searcher.end(number, "failed")
    assert searcher.suggest(8) is not None


def test_before_the_first_rung_what_there_is_counts() -> None:
    searcher = build()
    for number in range(5):
        config = searcher.suggest(number)
        assert config is not None
        searcher.adopt(number, config)
        searcher.observe(number, 1, -bowl(config))
    assert searcher.suggest(5) is not None


def test_further_attempts_go_down_the_ranking() -> None:
    searcher = build()
    for number in range(6):
        config = searcher.suggest(number)
        assert config is not None
        searcher.adopt(number, config)
        searcher.observe(number, 3, -bowl(config))
    first, second = searcher.suggest(6), searcher.suggest(6, 1)
    assert first == searcher.suggest(6)
    assert first != second


def test_a_finite_space_is_searched_to_its_end() -> None:
    space = {"a": choice([1, 2, 3]), "b": choice(["x", "y"])}
    configs = run(propose(MultiFidelityGP(), space), lambda config: config["a"], 10)
    assert len({(config["a"], config["b"]) for config in configs}) == len(configs) == 6


def test_a_space_of_constants_has_one_configuration() -> None:
    assert run(propose(MultiFidelityGP(), {"a": 1}), lambda config: 0.0, 5) == [{"a": 1}]


def test_many_trials_are_told_to_the_model_as_a_selection_with_the_best() -> None:
    searcher = build()
    assert isinstance(searcher, MultiFidelityGPSearcher)
    generator = np.random.default_rng(0)
    for number in range(LARGEST_MODEL + 100):
        config = {"x": float(generator.random()), "y": float(generator.random())}
        searcher.adopt(number, config)
        searcher.observe(number, 3, -bowl(config))
        searcher.end(number, "stopped")
    observed = searcher._observations()
    kept, values = searcher._selection(observed), observed.values
    assert len(kept) == len(set(kept.tolist())) == LARGEST_MODEL
    assert values[kept].max() == values.max()
    config = searcher.suggest(LARGEST_MODEL + 100) or {}
    assert bowl(config) < 0.02


def test_the_selection_has_the_farthest_and_of_these_the_best() -> None:
    searcher = build()
    assert isinstance(searcher, MultiFidelityGPSearcher)
    generator = np.random.default_rng(0)
    for number in range(LARGEST_MODEL):
        searcher.adopt(number, {"x": float(generator.random()), "y": float(generator.random())})
        for epoch in (3, 9) if number % 2 else (3,):
            searcher.observe(number, epoch, float(generator.random()))
    searcher.observe(1, 27, -5.0)
    observed = searcher._observations()
    kept = set(searcher._selection(observed).tolist())
    ranked = sorted(range(len(observed.values)), key=lambda row: (-observed.epochs[row], -observed.values[row]))
    assert observed.epochs[ranked[0]] == 27
    assert kept >= set(ranked[: LARGEST_MODEL // 2])
    assert kept == set(searcher._selection(observed).tolist())


def test_what_is_told_of_trials_in_any_order_is_the_same_as_told_at_once() -> None:
    generator = np.random.default_rng(0)
    curves: dict[int, dict[int, float]] = {number: {} for number in range(60)}
    told = Told((3, 9, 27))
    for _ in range(900):
        trial = int(generator.integers(60))
        epoch = len(curves[trial]) + 1
        curves[trial][epoch] = float(generator.random())
        told.change(trial, curves[trial], over=epoch == 27)
    at_once = [
        (trial, epoch, curve[epoch])
        for trial, curve in curves.items()
        for epoch in sorted(curve)
        if epoch in (3, 9, 27) or (epoch == max(curve) > 3)
    ]
    assert list(zip(*(column.tolist() for column in told.rows()), strict=True)) == at_once
    assert told.ranked == sorted((-max(curve.values()), trial) for trial, curve in curves.items() if curve)


def test_a_running_trial_of_which_nothing_is_known_counts_and_one_that_ended_does_not() -> None:
    searcher = build()
    assert isinstance(searcher, MultiFidelityGPSearcher)
    for number in range(8):
        searcher.adopt(number, {"x": number / 8, "y": 0.5})
    for number in range(5):
        searcher.observe(number, 3, 0.1 * number)
    searcher.end(6, "stopped")
    searcher.observe(7, 1, 0.5)
    assert searcher._pending(searcher._observations()).trials.tolist() == [5, 7]


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0, 2.0], [0.0, 1.0], [1e308, 1.0, -1e308], [1e-300, 2e-300, 0.0]])
def test_scaled_values_are_finite_and_keep_their_order(values: list[float]) -> None:
    with np.errstate(over="ignore"):
        scaled, _ = scale(np.array(values))
    assert scaled.min() >= FLOOR
    assert np.isfinite(scaled).all()
    assert [scaled[i] for i in np.argsort(values)] == sorted(scaled)


def test_the_bad_half_is_all_alike() -> None:
    scaled, _ = scale(np.array([-1e9, 0.1, 0.2, 0.3, 0.9, 0.95]))
    assert scaled[:3].tolist() == [FLOOR] * 3
    assert scaled[5] > scaled[4] > FLOOR


@pytest.mark.parametrize(
    ("rungs", "max_epochs", "expected"),
    [((3, 9), 27, (3, 9, 27)), ((), 30, (3, 9, 27, 30)), ((), 1, (1,)), ((), 3, (3,))],
)
def test_it_looks_at_the_rungs_and_the_last_epoch(
    rungs: tuple[int, ...], max_epochs: int, expected: tuple[int, ...]
) -> None:
    assert fidelities(Problem(Space(PLANE), max_epochs=max_epochs, rungs=rungs)) == expected


def test_what_it_cannot_take_is_refused() -> None:
    with pytest.raises(SpaceError, match="MultiFidelityGP chooses values itself and can't take grid_search"):
        MultiFidelityGP().check(Space({"x": grid_search([1, 2])}))
    with pytest.raises(SpaceError, match="MultiFidelityGP learns from values it chose and can't take sample_from"):
        MultiFidelityGP().check(Space({"x": sample_from(lambda config: 1)}))
    with pytest.raises(StudyError, match=r"MultiFidelityGP.startup_trials needs a whole number .*, got 0; use 4"):
        MultiFidelityGP(startup_trials=0).check(Space(PLANE))
    with pytest.raises(StudyError, match=r"MultiFidelityGP.candidates needs a whole number .*, got True; use 300"):
        MultiFidelityGP(candidates=True).check(Space(PLANE))


def test_a_search_told_again_goes_on_the_same() -> None:
    problem = Problem(Space(MIXED), mode="min", max_epochs=9, rungs=(3,))
    first = Proposals(problem, MultiFidelityGP().build(problem))
    configs = run(first, mixed, 12)
    again = Proposals(problem, MultiFidelityGP().build(problem))
    for number, config in enumerate(configs):
        again.adopt(number, config)
        again.observe(number, 1, mixed(config))
        again.end(number, "completed")
    assert again.suggest(12) == first.suggest(12)
