from statistics import fmean
from typing import Any

import pytest

from tests.search.searching import propose, run
from tuner import (
    Optuna,
    StudyError,
    choice,
    grid_search,
    lograndint,
    qloguniform,
    qrandint,
    qrandn,
    sample_from,
    uniform,
)
from tuner.search import Problem, Random, SearchAlgorithm
from tuner.search.optuna import OptunaSearcher
from tuner.space import Config, Space

pytest.importorskip("optuna")

SPACE = {
    "x": uniform(-5, 5),
    "kind": choice(["good", "bad", "worse"]),
    "depth": uniform(0, 1).when(kind=["good", "bad"]),
}


def loss(config: Config) -> float:
    penalty = {"good": 0.0, "bad": 1.0, "worse": 2.0}[config["kind"]]
    return float((config["x"] - 2) ** 2 / 10 + penalty + abs(config.get("depth", 0.5) - 0.25))


def late_loss(search: SearchAlgorithm) -> float:
    return fmean(loss(c) for seed in range(4) for c in run(propose(search, SPACE, seed=seed), loss, 40)[25:])


def test_it_learns_with_conditions() -> None:
    assert late_loss(Optuna()) < 0.6 * late_loss(Random())


def test_another_sampler_learns_too() -> None:
    configs = run(
        propose(Optuna("GPSampler", {"n_startup_trials": 4}), {"x": uniform(-5, 5)}), lambda c: c["x"] ** 2, 10
    )
    assert min(abs(config["x"]) for config in configs[4:]) < 0.1


def test_it_maximises_where_the_study_does() -> None:
    space = {"x": uniform(0, 1)}
    up = run(propose(Optuna(), space, mode="max"), lambda config: config["x"], 40)
    down = run(propose(Optuna(), space, mode="min"), lambda config: config["x"], 40)
    assert fmean(c["x"] for c in up[20:]) > 0.8
    assert fmean(c["x"] for c in down[20:]) < 0.2


def test_a_trial_counts_with_its_best_value_as_soon_as_it_has_one_and_a_failed_one_with_the_worst() -> None:
    searcher = Optuna().build(Problem(Space({"x": uniform(0, 1)})))
    assert isinstance(searcher, OptunaSearcher)
    for number in range(4):
        searcher.adopt(number, {"x": 0.5})
    searcher.observe(3, 1, 0.9)
    searcher.end(3, "failed")
    assert searcher._values() == {}
    assert [searcher._as_optuna(trial, None).state.name for trial in (0, 3)] == ["RUNNING", "FAIL"]
    for epoch, value in ((1, 0.3), (2, 0.2)):
        searcher.observe(0, epoch, value)
    searcher.observe(1, 1, 0.7)
    assert searcher._values() == {0: 0.3, 1: 0.7, 3: 0.3}
    told = searcher._as_optuna(3, 0.3)
    assert (told.state.name, told.value, told.params) == ("COMPLETE", 0.3, {"x": 0.5})
    assert searcher.suggest(4) is not None


def test_every_kind_of_domain_is_searched_in_its_own_values() -> None:
    space = Space(
        {
            "a": qloguniform(0.01, 1, 0.01),
            "b": lograndint(1, 1025),
            "c": qrandn(0, 2, 0.5),
            "d": choice([None, (1, 2)]),
            "e": qrandint(8, 64, 8),
        }
    )
    configs = run(propose(Optuna(), space), lambda config: config["a"], 30)
    assert len({space.key(config) for config in configs}) == 30
    assert all(space.check(config, where="test") == config for config in configs)


def test_options_reach_the_sampler() -> None:
    assert run(propose(Optuna(options={"n_startup_trials": 1000}), SPACE), loss, 15) == run(
        propose(Optuna(options={"n_startup_trials": 500}), SPACE), loss, 15
    )
    assert run(propose(Optuna(options={"n_startup_trials": 3}), SPACE), loss, 15) != run(
        propose(Optuna(options={"n_startup_trials": 500}), SPACE), loss, 15
    )


@pytest.mark.parametrize(
    ("settings", "space", "message"),
    [
        ({"sampler": "CmaEsSampler"}, SPACE, "Optuna.sampler needs one of TPESampler, GPSampler, RandomSampler, got"),
        ({"options": {"seed": 3}}, SPACE, "Optuna.options needs a dict of the sampler's options without a seed, got"),
        ({"options": {"n_startup": 3}}, SPACE, "Optuna.options needs to fit TPESampler, got {'n_startup': 3}"),
        ({"options": {"group": True, "multivariate": False}}, SPACE, "Optuna.options needs to fit TPESampler, got"),
        ({}, {"x": grid_search([1])}, "Optuna chooses values itself and can't take grid_search"),
        ({}, {"x": sample_from(lambda config: 1)}, "Optuna learns from values it chose and can't take sample_from"),
    ],
)
def test_what_it_cannot_take_is_refused(settings: dict[str, Any], space: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as raised:
        Optuna(**settings).check(Space(space))
    assert str(raised.value).startswith(message)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StudyError, match=r"needs the optuna package, which is missing; pip install 'optuna>=5,<6'"):
        Optuna().check(Space(SPACE))


def test_a_space_without_dimensions_has_one_configuration() -> None:
    assert run(propose(Optuna(), {"k": 1}), lambda config: 0.0, 5) == [{"k": 1}]
