import math
from typing import Any

import pytest

from tests.search.searching import propose, run
from tuner.errors import SpaceError
from tuner.search import Grid
from tuner.space import Domain, Space, choice, grid_search, loguniform, qrandint, quniform, randint, sample_from

SPACES: list[dict[str, Any]] = [
    {"lr": grid_search([1e-4, 1e-3, 1e-2, 1e-1, 1.0]), "batch": choice([32, 64, 128])},
    {"a": randint(0, 6), "b": choice(["x", "y"])},
    {"a": quniform(0, 1, 0.25), "b": qrandint(2, 8, 2), "c": choice([True, False, None])},
    {"a": choice([[1], [2, 3]])},
    {"outer": {"a": randint(0, 4)}, "b": randint(0, 4), "constant": 7},
]


def in_order(space: dict[str, Any], trials: int = 1000) -> list[dict[str, Any]]:
    return run(propose(Grid(), space), lambda config: 0.0, trials)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_every_configuration_comes_once(space: dict[str, Any]) -> None:
    parsed = Space(space)
    keys = [parsed.key(config) for config in in_order(space)]
    assert len(keys) == len(set(keys)) == parsed.size
    assert set(keys) == {parsed.key(config) for config in parsed.grid()}


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_no_value_comes_again_before_the_others_of_its_hyperparameter_did(space: dict[str, Any]) -> None:
    parsed = Space(space)
    configs = [parsed.flatten(config) for config in in_order(space)]
    largest = max(int(domain.size) for domain in parsed.dimensions.values())
    for name, domain in parsed.dimensions.items():
        count = int(domain.size)
        for first in range(0, largest - count + 1, count):
            values = [repr(config[name]) for config in configs[first : first + count]]
            assert len(set(values)) == count


def test_the_order_by_hand() -> None:
    # (1, 1), then the farthest corner; the values left; then again one of each, far from what was seen
    configs = in_order({"a": choice([1, 2, 3]), "b": choice([1, 2, 3])})
    assert [(config["a"], config["b"]) for config in configs] == [
        *[(1, 1), (3, 3), (2, 2)],
        *[(1, 3), (3, 1), (1, 2)],
        *[(2, 1), (2, 3), (3, 2)],
    ]


def test_a_grid_that_is_stopped_has_seen_all_regions() -> None:
    points = [(config["a"], config["b"]) for config in in_order({"a": randint(0, 8), "b": randint(0, 8)})]

    def largest_gap(tried: int) -> float:
        return max(min(math.dist((a, b), point) for point in points[:tried]) for a in range(8) for b in range(8))

    assert {(a // 4, b // 4) for a, b in points[:8]} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert largest_gap(8) == math.sqrt(5)  # 3.7 on average for eight at random
    assert largest_gap(16) == math.sqrt(2)  # 2.4


def test_a_starting_point_is_not_repeated_and_counts_as_seen() -> None:
    space = {"a": choice([1, 2, 3]), "b": choice([1, 2, 3])}
    proposals = propose(Grid(), space, starting_points=[{"a": 3, "b": 3}])
    configs = run(proposals, lambda config: 0.0, 20)
    assert configs[:2] == [{"a": 3, "b": 3}, {"a": 1, "b": 1}]
    assert len(configs) == 9


def test_conditional_dimensions_are_absent_where_they_do_not_count() -> None:
    space = {"kind": choice(["a", "b"]), "x": choice([1, 2, 3]).when(kind="a")}
    configs = in_order(space)
    assert sorted(map(repr, configs)) == [
        "{'kind': 'a', 'x': 1}",
        "{'kind': 'a', 'x': 2}",
        "{'kind': 'a', 'x': 3}",
        "{'kind': 'b'}",
    ]
    assert {config["kind"] for config in configs[:2]} == {"a", "b"}


def test_the_seed_does_not_matter_and_configurations_are_the_callers_to_change() -> None:
    space = {"outer": {"a": randint(0, 4)}, "b": randint(0, 4)}
    changed = propose(Grid(), space, seed=1)
    configs = []
    for number in range(16):
        config = changed.suggest(number)
        assert config is not None
        configs.append(repr(config))
        config["outer"]["a"] = 99
    assert configs == [repr(config) for config in in_order(space)]


@pytest.mark.parametrize("domain", [loguniform(0.1, 1), sample_from(lambda config: 1)])
def test_an_infinite_dimension_is_refused(domain: Domain) -> None:
    with pytest.raises(SpaceError, match=r"Grid needs a finite set of values, got .* for 'x'; use grid_search"):
        Grid().check(Space({"x": domain}))


def test_a_grid_too_large_to_list_is_refused() -> None:
    with pytest.raises(SpaceError, match="Grid takes up to 100,000 configurations, got 1,000,000; list fewer"):
        Grid().check(Space({"x": randint(0, 1000), "y": randint(0, 1000)}))


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (4, 5)])
def test_a_third_of_the_walk_has_seen_every_value_of_each_dimension(rows: int, columns: int) -> None:
    configs = in_order({"a": randint(0, rows), "b": choice([f"{column}" for column in range(columns)])})
    third = configs[: rows * columns // 3]
    assert {config["a"] for config in third} == set(range(rows))
    assert {config["b"] for config in third} == {f"{column}" for column in range(columns)}
    assert len({repr(config) for config in configs}) == len(configs) == rows * columns
