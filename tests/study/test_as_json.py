"""Studies as JSON: there and back, and what has no plain form or can't work."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule import each as schedulers
from tests.search import each as searches
from tuner import (
    Budget,
    External,
    Failures,
    History,
    Random,
    Resources,
    Study,
    StudyError,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    study_from_json,
    study_to_json,
    uniform,
)

LOW, WIDTH = st.floats(0.01, 100), st.floats(0.1, 100)
WHOLE = st.integers(1, 1000)
PLAIN = st.one_of(st.integers(-9, 9), st.text(max_size=3), st.booleans(), st.none(), st.floats(-9, 9))
DOMAINS = st.one_of(
    st.builds(lambda low, width: uniform(low, low + width), LOW, WIDTH),
    st.builds(lambda low, width: loguniform(low, low + width), LOW, WIDTH),
    st.builds(lambda low, width: quniform(low, low + width, 1), WHOLE, WHOLE),
    st.builds(lambda low, width: qloguniform(low, low + width, 1), WHOLE, WHOLE),
    st.builds(lambda low, width: randint(low, low + width + 1), WHOLE, WHOLE),
    st.builds(lambda low, width: lograndint(low, low + width + 1), WHOLE, WHOLE),
    st.builds(lambda low, width, q: qrandint(low * q, (low + width) * q, q), WHOLE, WHOLE, st.integers(1, 9)),
    st.builds(lambda low, width, q: qlograndint(low * q, (low + width) * q, q), WHOLE, WHOLE, st.integers(2, 9)),
    st.builds(randn, LOW, WIDTH),
    st.builds(qrandn, LOW, WIDTH, st.floats(0.1, 2)),
    st.builds(choice, st.lists(PLAIN, min_size=1, max_size=4, unique_by=repr)),
    st.builds(grid_search, st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True)),
)


def study(**changes: Any) -> Study:
    defaults: dict[str, Any] = {
        "trial": External("lab"),
        "space": {"x": uniform(0, 1)},
        "metric": "loss",
        "mode": "min",
    }
    return Study("there-and-back", **{**defaults, **changes})


@settings(max_examples=60, deadline=None)
@given(st.lists(DOMAINS, min_size=1, max_size=4))
def test_each_domain_comes_back(domains: list[Any]) -> None:
    space: dict[str, Any] = {f"d{number}": domain for number, domain in enumerate(domains)}
    try:
        declared = study(space={**space, "constant": 3, "nested": {"inner": uniform(0, 1), "text": "a"}})
    except StudyError:  # values of a choice that are the same, as 1 and True
        return
    back = study_from_json(study_to_json(declared))
    assert back.search_space.dimensions == declared.search_space.dimensions
    assert back.search_space.constants == declared.search_space.constants


@pytest.mark.parametrize("search", [*searches.EACH, *searches.EAGER], ids=repr)
def test_each_search_algorithm_comes_back(search: Any) -> None:
    declared = study(search=search, space={"x": choice([1, 2, 3])})
    assert study_from_json(study_to_json(declared)).search == search


@pytest.mark.parametrize("scheduler", [*schedulers.EACH, *schedulers.EAGER], ids=repr)
def test_each_scheduler_comes_back(scheduler: Any) -> None:
    assert study_from_json(study_to_json(study(scheduler=scheduler))).scheduler == scheduler


def test_all_else_comes_back() -> None:
    declared = study(
        space={"o": choice(["adam", "sgd"]), "m": uniform(0, 1).when(o="sgd")},
        budget=Budget(trials=None, total_epochs=90, max_epochs=9),
        failures=Failures(error=2, hung_minutes=1.5),
        resources=Resources(cpus=2),
        warm_start=History(top=3),
        start_from=[{"o": "adam"}],
        seed=7,
    )
    back = study_from_json(study_to_json(declared))
    assert back.search_space.dimensions == declared.search_space.dimensions
    names = ("name", "trial", "metric", "mode", "budget", "failures", "resources", "warm_start", "seed")
    assert [getattr(back, name) for name in names] == [getattr(declared, name) for name in names]
    assert back.starting_points == declared.starting_points
    assert study_from_json(study_to_json(study(warm_start=None))).warm_start is None


def test_what_is_left_out_is_as_in_a_study() -> None:
    told = study_from_json(
        '{"name": "lab", "space": {"x": {"type": "uniform", "low": 0, "high": 1}}, "search": "Random"}'
    )
    assert told == Study("lab", trial=External(), space={"x": uniform(0, 1)}, search=Random())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nam": 1}, r"^a study takes name, .*, got 'nam'; did you mean 'name'\?$"),
        ({"space": 3}, r"^space needs an object of hyperparameters, got 3"),
        ({"space": {"x": {"type": "unifrom"}}}, r"^space.x needs a domain of uniform, .*, got 'unifrom'; did you mean"),
        ({"space": {"x": {"type": "sample_from"}}}, r"got 'sample_from'; functions have no form in JSON$"),
        ({"space": {"x": {"type": "uniform", "low": 0}}}, r"^uniform needs low, high, got none for 'high' in space.x"),
        (
            {"space": {"x": {"type": "uniform", "lo": 0}}},
            r"^space.x \(uniform\) takes low, high, got 'lo'; did you mean",
        ),
        ({"space": {"x": {"type": "uniform", "low": 1, "high": 0}}}, r"for 'x'"),
        (
            {"space": {"x": {"type": "uniform", "low": 0, "high": 1, "when": 3}}},
            r"^space.x.when needs an object, got 3",
        ),
        ({"space": {"x": {"type": "choice", "values": 3}}}, r"^choice needs a list of values, got 3"),
        ({"search": "Randon"}, r"^search needs one of .*, got 'Randon'; did you mean 'Random'\?$"),
        ({"search": "Problem"}, r"^search needs one of .*, got 'Problem'"),
        ({"search": {"type": "Random", "sobl": True}}, r"^Random takes sobol, got 'sobl'; did you mean 'sobol'\?$"),
        ({"scheduler": 3}, r"^scheduler needs a name, or an object with a \"type\" of .*, got 3$"),
        ({"budget": {"trails": 3}}, r"^budget takes trials, .*, got 'trails'; did you mean 'trials'\?$"),
        ({"budget": []}, r"^budget needs an object, got \[\]"),
        ({"trial": ""}, r"^External needs a name"),
        ({"seed": "x"}, r"^seed needs a whole number"),
        ({"start_from": 3}, r"^start_from needs a list"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    told = {"name": "lab", "space": {"x": {"type": "uniform", "low": 0, "high": 1}}, **changes}
    with pytest.raises(StudyError, match=message):
        study_from_json(json.dumps(told))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"name": NaN}', b"\xff", "[]", "3", "{}"])
def test_what_is_no_study_is_refused(text: Any) -> None:
    with pytest.raises(StudyError, match=r"^a study needs "):
        study_from_json(text)


def test_functions_have_no_form() -> None:
    with pytest.raises(StudyError, match=r"^a study in JSON has domains of plain values, got .* for 'y'"):
        study_to_json(study(space={"y": sample_from(lambda config: 1)}, search=Random()))
    with pytest.raises(StudyError, match=r"^a study in JSON has no functions, got a constraint"):
        study_to_json(study(constraint=lambda config: True))
    with pytest.raises(StudyError, match=r"^a study in JSON needs trials that a program asks for, got the function"):
        study_to_json(study(trial=lambda config: None))
