import math
import time
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest

from tests.search.searching import Objective, propose, run
from tuner.errors import SpaceError, StudyError
from tuner.search import HyperOpt, Problem, Random, SearchAlgorithm
from tuner.search.hyperopt import HyperOptSearcher
from tuner.space import (
    Config,
    Domain,
    Space,
    choice,
    grid_search,
    loguniform,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from tuner.space.mode import Mode

SQUARE = {"x": uniform(-5, 5), "y": uniform(-5, 5)}


def quadratic(config: Config) -> float:
    return float((config["x"] - 1) ** 2 + (config["y"] + 2) ** 2)


def best_of(search: SearchAlgorithm, seed: int) -> float:
    return min(map(quadratic, run(propose(search, SQUARE, seed=seed, trials=50), quadratic, 50)))


def test_it_beats_random_search_clearly_on_a_quadratic() -> None:
    found = [math.log10(best_of(HyperOpt(), seed)) for seed in range(10)]
    at_random = [math.log10(best_of(Random(sobol=False), seed)) for seed in range(10)]
    assert fmean(found) < fmean(at_random) - 0.5  # three times closer in squared distance
    assert sum(ours < other for ours, other in zip(found, at_random, strict=True)) >= 8


def test_max_is_min_of_the_negated() -> None:
    low = run(propose(HyperOpt(startup_trials=4), SQUARE, mode="min"), quadratic, 15)
    high = run(propose(HyperOpt(startup_trials=4), SQUARE, mode="max"), lambda config: -quadratic(config), 15)
    wrong = run(propose(HyperOpt(startup_trials=4), SQUARE, mode="max"), quadratic, 15)
    assert low == high
    assert low[:4] == wrong[:4]
    assert low != wrong


@pytest.mark.parametrize(("mode", "best"), [("min", 1.0), ("max", 3.0)])
def test_a_trials_loss_is_the_best_of_its_epochs(mode: Mode, best: float) -> None:
    curve, other = (2.0, best, 2.5), (best, 2.0, 2.2)
    suggestions = []
    for values in (curve, other):
        proposals = propose(HyperOpt(startup_trials=1), SQUARE, mode=mode)
        proposals.suggest(0)
        for epoch, value in enumerate(values, 1):
            proposals.observe(0, epoch, value)
        proposals.suggest(1)
        proposals.observe(1, 1, 2.1)
        suggestions.append(proposals.suggest(2))
    assert suggestions[0] == suggestions[1]


@pytest.mark.parametrize(
    ("startup_trials", "trials", "expected"),
    [(None, None, 10), (None, 5, 3), (None, 30, 10), (None, 45, 15), (None, 500, 20), (1, 30, 1), (25, 30, 25)],
)
def test_start_up_suits_the_budget(startup_trials: int | None, trials: int | None, expected: int) -> None:
    """Until then suggestions are those of a search that learns nothing."""
    proposals = propose(HyperOpt(startup_trials=startup_trials), SQUARE, trials=trials)
    blind = propose(HyperOpt(startup_trials=1000), SQUARE)
    count = min(expected + 1, trials or 1000)
    configs, at_random = run(proposals, quadratic, count), run(blind, quadratic, count)
    assert configs[:expected] == at_random[:expected]
    assert configs[expected:] != at_random[expected:] or trials == expected


def test_trials_without_a_value_do_not_end_the_start_up() -> None:
    proposals = propose(HyperOpt(startup_trials=2), SQUARE)
    blind = propose(HyperOpt(startup_trials=1000), SQUARE)
    for number in range(8):
        assert proposals.suggest(number) == blind.suggest(number)
        if number % 2:
            proposals.end(number, "failed")


@pytest.mark.parametrize("seed", range(4))
def test_what_failed_is_avoided(seed: int) -> None:
    """Half of the space fails: later suggestions keep away from it."""
    space = {"kind": choice(["works", "fails"]), "x": uniform(0, 1)}
    proposals = propose(HyperOpt(startup_trials=8), space, seed=seed)
    kinds = []
    for number in range(60):
        config = proposals.suggest(number)
        assert config is not None
        kinds.append(config["kind"])
        if config["kind"] == "works":
            proposals.observe(number, 1, (config["x"] - 0.5) ** 2)
        proposals.end(number, "completed" if config["kind"] == "works" else "failed")
    assert kinds[-40:].count("fails") <= 12


def test_a_value_before_the_failure_is_forgotten() -> None:
    suggestions = []
    for early in (True, False):
        proposals = propose(HyperOpt(startup_trials=1), SQUARE)
        for number in range(3):
            proposals.suggest(number)
        if early:
            proposals.observe(1, 1, -100.0)
        proposals.end(1, "failed")
        proposals.observe(0, 1, 1.0)
        proposals.observe(2, 1, 2.0)
        suggestions.append(proposals.suggest(3))
    assert suggestions[0] == suggestions[1]


def test_inactive_dimensions_are_missing_from_hyperopts_documents() -> None:
    space = Space({"optimizer": choice(["adam", "sgd"]), "momentum": uniform(0.8, 0.99).when(optimizer="sgd")})
    searcher = HyperOpt().build(Problem(space, mode="min"))
    assert isinstance(searcher, HyperOptSearcher)
    searcher.adopt(0, {"optimizer": "adam"})
    searcher.adopt(1, {"optimizer": "sgd", "momentum": 0.8})
    first, second = (document["misc"] for document in searcher._documents.values())
    assert (first["vals"], first["idxs"]) == (
        {"optimizer": [0], "momentum": []},
        {"optimizer": [0], "momentum": []},
    )
    assert (second["vals"], second["idxs"]) == (
        {"optimizer": [1], "momentum": [0.0]},
        {"optimizer": [1], "momentum": [1]},
    )


def test_a_condition_that_no_trial_has_met_yet_is_no_obstacle() -> None:
    space = {"kind": choice(["a", "b"]), "x": uniform(0, 1).when(kind="b"), "n": choice([1, 2]).when(kind="b")}
    proposals = propose(HyperOpt(startup_trials=1), space)
    proposals.adopt(0, {"kind": "a"})
    proposals.observe(0, 1, 1.0)
    configs = run(proposals, lambda config: config.get("x", 1.0), 30, first=1)
    assert all(("x" in config) == ("n" in config) == (config["kind"] == "b") for config in configs)
    assert len(configs) == 30


def test_it_learns_a_conditional_dimension_beside_a_branch_that_is_used_up() -> None:
    """The branch without momentum has one configuration, which is bad and soon tried."""
    space = {"optimizer": choice(["adam", "sgd"]), "momentum": uniform(0, 1).when(optimizer="sgd")}

    def late_errors(search: SearchAlgorithm) -> list[float]:
        def loss(config: Config) -> float:
            return float(abs(config.get("momentum", -1) - 0.9))

        return [loss(config) for seed in range(4) for config in run(propose(search, space, seed=seed), loss, 60)[30:]]

    assert fmean(late_errors(HyperOpt())) < 0.7 * fmean(late_errors(Random()))


def test_suggestions_are_those_of_hyperopt_itself() -> None:
    """Its own space, its own documents, the same seeds: in the unit cube the sequences are equal."""
    from hyperopt import Domain as HyperoptDomain
    from hyperopt import Trials, hp, tpe

    def loss(x: float, kind: str) -> float:
        return (x - 0.3) ** 2 + (kind == "b")

    domain = HyperoptDomain(None, {"x": hp.uniform("x", 0, 1), "kind": hp.choice("kind", [0, 1, 2])})
    trials = Trials()
    expected: list[Config] = []
    for number in range(40):
        trials.refresh()
        seed = int(np.random.SeedSequence([7, number, 0]).generate_state(1)[0])
        document = tpe.suggest([number], domain, trials, seed, n_startup_jobs=6)[0]
        values = {name: value[0] for name, value in document["misc"]["vals"].items()}
        expected.append({"x": float(values["x"]), "kind": "abc"[values["kind"]]})
        document["result"] = {"status": "ok", "loss": loss(**expected[-1])}
        trials.insert_trial_docs([document])
    space = {"x": uniform(0, 1), "kind": choice(["a", "b", "c"])}
    assert run(propose(HyperOpt(startup_trials=6), space, seed=7), lambda config: loss(**config), 40) == expected


def test_scale_and_distribution_make_no_difference_in_the_unit_cube() -> None:
    sequences = []
    for domain in (uniform(0, 1), uniform(-20, 30), loguniform(1e-6, 1), randn(3, 2)):
        space = Space({"x": domain})
        units = [float(domain.encode(config["x"])) for config in run(propose(HyperOpt(), space), _near(domain), 40)]
        sequences.append(units)
    for units in sequences[1:]:
        assert units == pytest.approx(sequences[0], abs=1e-6)


def _near(domain: Domain) -> Objective:
    return lambda config: abs(domain.encode(config["x"]) - 0.7)


@pytest.mark.parametrize("domain", [qrandn(3, 2, 0.05), quniform(-1, 1, 0.01), randint(-5, 500)], ids=repr)
def test_it_closes_in_on_numbers_in_steps(domain: Domain) -> None:
    """The last 30 of 75 trials are nearer to the best value than random ones are, over six seeds."""
    loss = _near(domain)

    def late_distance(search: SearchAlgorithm) -> float:
        space = {"x": domain, "other": uniform(0, 1)}
        runs = [run(propose(search, space, seed=seed), loss, 75)[45:] for seed in range(6)]
        return median(loss(config) for configs in runs for config in configs)

    assert late_distance(HyperOpt(startup_trials=15)) < 0.75 * late_distance(Random())


def test_a_suggestion_takes_a_few_milliseconds_after_two_hundred_trials() -> None:
    numbers = {f"x{index}": uniform(0, 1) for index in range(4)}
    proposals = propose(HyperOpt(), {**numbers, "a": choice(["a", "b", "c"]), "n": randint(0, 9)})
    run(proposals, lambda config: float(config["x0"]), 200)
    seconds = []
    for number in range(200, 210):
        started = time.process_time()
        proposals.suggest(number)
        seconds.append(time.process_time() - started)
    assert median(seconds) < 0.03  # 0.005 on an idle core


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"a": grid_search([1, 2])}, r"HyperOpt chooses values itself and can't take grid_search\(\[1, 2\]\) for 'a'"),
        ({"b": sample_from(lambda config: 1)}, r"HyperOpt learns from values it chose and can't take sample_from"),
    ],
)
def test_domains_it_cannot_take_are_refused(space: dict[str, Any], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        HyperOpt().check(Space(space))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"startup_trials": 0}, "HyperOpt.startup_trials needs a whole number from 1 to 1,000,000, got 0; use 5"),
        ({"candidates": 2.5}, "HyperOpt.candidates needs a whole number from 1 to 1,000,000, got 2.5; use 24"),
        ({"gamma": 0}, "HyperOpt.gamma needs a share above 0, 1 at most, got 0; use 0.25"),
        ({"gamma": math.nan}, "HyperOpt.gamma needs a share above 0, 1 at most, got nan; use 0.25"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        HyperOpt(**settings).check(Space(SQUARE))
