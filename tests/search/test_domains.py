"""Each kind of domain under each search algorithm."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.search.each import EACH
from tests.search.searching import propose, run
from tuner.search import BOHB, Grid, HyperOpt, MultiFidelityGP, Problem, Random, SearchAlgorithm
from tuner.space import (
    Choice,
    Domain,
    Space,
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    uniform,
)

# an own object, to be given back as it is
LAYERS = [64, 64]
TAGGED = {"depth": 3}

KINDS: dict[str, tuple[Domain, type | None]] = {
    "uniform": (uniform(-1, 1), float),
    "uniform of ints": (uniform(0, 5), float),
    "quniform": (quniform(0, 1, 0.1), float),
    "loguniform": (loguniform(1e-5, 1e-1), float),
    "qloguniform": (qloguniform(0.01, 1, 0.01), float),
    "randint": (randint(-3, 4), int),
    "large randint": (randint(0, 10**9), int),
    "qrandint": (qrandint(8, 64, 8), int),
    "lograndint": (lograndint(1, 1000), int),
    "qlograndint": (qlograndint(10, 1000, 10), int),
    "randn": (randn(10, 2), float),
    "qrandn": (qrandn(0, 1, 0.05), float),
    "choice of strings": (choice(["adam", "sgd", "adamw"]), str),
    "choice of mixed": (choice([None, True, False, 0.5, 3, "3"]), None),
    "choice of lists": (choice([[32], LAYERS, []]), list),
    "choice of dicts": (choice([TAGGED, {"depth": 5}]), dict),
    "choice of tuples": (choice([(1, 2), (3, 4)]), tuple),
    "choice of one": (choice(["only"]), str),
}
SEARCHES: list[SearchAlgorithm] = [Random(), HyperOpt(startup_trials=5), MultiFidelityGP(), BOHB(), Grid()]
FEW, MANY = 60, pytest.param(200, marks=pytest.mark.slow)


def unlike(value: Any) -> float:
    """Some value of a metric for any value of a domain."""
    return math.sin(len(repr(value)) + (value if isinstance(value, int | float) else 0) % 7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("search", SEARCHES, ids=repr)
@pytest.mark.parametrize("trials", [FEW, MANY])
def test_suggestions_are_valid_plain_and_new(search: SearchAlgorithm, kind: str, trials: int) -> None:
    domain, expected = KINDS[kind]
    space = Space({"nested": {"x": domain}})
    if isinstance(search, Grid) and not domain.size < 1000:
        pytest.skip("a grid needs a finite domain")
    configs = run(propose(search, space), lambda config: unlike(config["nested"]["x"]), trials)
    values = [config["nested"]["x"] for config in configs]
    possible = domain.size
    if kind == "qrandn":
        assert len(values) >= trials // 2  # infinite on paper, but far multiples of q don't come up
    else:
        assert len(values) == min(trials, possible)
    assert len({space.key(config) for config in configs}) == len(values)
    assert all(domain.contains(value) for value in values)
    if expected is not None:
        assert {type(value) for value in values} == {expected}
    if isinstance(domain, Choice):
        assert all(any(value is option for option in domain.options) for value in values)
    elif getattr(domain, "q", None) is not None:
        assert all(value == domain.coerce(value) for value in values)  # no 0.7000000000000001
        assert all(len(repr(value)) <= 7 for value in values)


@pytest.mark.parametrize("search", [one for one in EACH if not isinstance(one, Grid)], ids=repr)
def test_the_random_suggestions_of_each_search_give_every_step_its_share(search: SearchAlgorithm) -> None:
    space = Space({"size": quniform(32, 96, 32), "k": qrandint(32, 96, 32), "log": qloguniform(1, 4, 1)})
    searcher = search.build(Problem(space, trials=None))
    configs = [config for number in range(600) if (config := searcher.suggest(number)) is not None]
    counts = {name: Counter(config[name] for config in configs) for name in space.names}
    assert len(configs) == 600
    assert counts["size"] == pytest.approx({32.0: 200, 64.0: 200, 96.0: 200}, abs=40)
    assert counts["k"] == pytest.approx({32: 200, 64: 200, 96: 200}, abs=40)
    shares = {float(value): math.log((2 * value + 1) / (2 * value - 1)) / math.log(9) for value in (1, 2, 3, 4)}
    assert counts["log"] == pytest.approx({value: 600 * share for value, share in shares.items()}, abs=45)


numbers = st.integers(-50, 50)
domains = st.one_of(
    st.builds(lambda low, width: uniform(low, low + width), numbers, st.integers(1, 20)),
    st.builds(lambda low, width: randint(low, low + width), numbers, st.integers(1, 20)),
    st.builds(lambda low, steps, q: quniform(low * q, (low + steps) * q, q), numbers, st.integers(1, 9), st.just(0.25)),
    st.builds(lambda low, factor: loguniform(low, low * factor), st.floats(1e-6, 10), st.floats(1.5, 1e4)),
    st.builds(lambda low, width: lograndint(low, low + width), st.integers(1, 50), st.integers(1, 500)),
    st.builds(randn, numbers, st.floats(0.1, 10)),
    st.builds(choice, st.lists(st.sampled_from(["a", "b", None, True, 1.5]), min_size=1, unique=True)),
)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    parts=st.dictionaries(st.sampled_from("abcd"), domains, min_size=1),
    conditional=st.booleans(),
    search=st.sampled_from(SEARCHES[:2]),
    seed=st.integers(0, 2**32),
)
def test_any_space_gives_valid_configurations_without_a_repeat(
    parts: dict[str, Domain], conditional: bool, search: SearchAlgorithm, seed: int
) -> None:
    declared: dict[str, Any] = {"switch": choice(["on", "off"]), **parts}
    if conditional:
        declared |= {name: domain.when(switch="on") for name, domain in parts.items()}
    space = Space(declared)
    configs = run(propose(search, space, seed=seed), lambda config: unlike(list(config.values())[-1]), 20)
    assert len(configs) == min(20, space.size)
    assert len({space.key(config) for config in configs}) == len(configs)
    for config in configs:
        assert space.check(config, "suggestion") == config
        assert space.active(config) == config.keys()
