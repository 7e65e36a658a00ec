import math
from typing import Any

import pytest

from tests.search.searching import propose, run
from tuner.errors import SpaceError
from tuner.search import BOHB, Grid, HyperOpt, Problem, Proposals, Random, SearchAlgorithm, Searcher
from tuner.search import proposals as proposals_module
from tuner.space import Config, Space, choice, randint, sample_from, uniform
from tuner.space.space import DRAWS

ALL: list[SearchAlgorithm] = [Random(), Grid(), HyperOpt(startup_trials=3)]


class Stubborn(Searcher):
    """Has one idea."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.attempts: list[tuple[int, int]] = []

    def suggest(self, number: int, attempt: int = 0) -> Config:
        self.attempts.append((number, attempt))
        return dict(self.config)


def test_starting_points_come_first_and_are_completed_the_same_way_every_time() -> None:
    space = {"x": uniform(0, 1), "kind": choice(["a", "b"]), "y": uniform(0, 1).when(kind="a"), "c": 5}
    points: list[Config] = [{"x": 0.5, "kind": "b"}, {"kind": "a"}, {}]

    def first_four(seed: int) -> list[Config]:
        return run(propose(Random(), space, starting_points=points, seed=seed), lambda config: 0.0, 4)

    configs = first_four(0)
    assert configs[0] == {"x": 0.5, "kind": "b", "c": 5}
    assert configs[1]["kind"] == "a"
    assert set(configs[1]) == {"x", "kind", "y", "c"}
    assert first_four(0) == configs
    assert first_four(1)[1] != configs[1]


def test_equal_starting_points_are_tried_once() -> None:
    points: list[Config] = [{"n": 3}, {"n": 3}, {"n": 1}]
    configs = run(propose(Random(), {"n": randint(0, 5)}, starting_points=points), lambda config: 0.0, 10)
    assert configs[:2] == [{"n": 3}, {"n": 1}]
    assert sorted(config["n"] for config in configs) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("search", ALL, ids=repr)
def test_a_finite_space_is_exhausted_and_then_ends(search: SearchAlgorithm) -> None:
    space = Space({"n": randint(0, 4), "kind": choice(["a", "b"]), "m": randint(0, 3).when(kind="a")})
    proposals = propose(search, space)
    configs = run(proposals, lambda config: config["n"], 100)
    assert len({space.key(config) for config in configs}) == len(configs) == space.size == 16
    assert proposals.suggest(16) is None
    assert proposals.suggest(17) is None


@pytest.mark.parametrize("search", ALL, ids=repr)
def test_trials_that_run_at_once_never_share_a_configuration(search: SearchAlgorithm) -> None:
    space = Space({"n": randint(0, 30)})
    proposals = propose(search, space, trials=30)
    seen = []
    for number in range(30):  # four at once: each learns its value when the fourth after it was started
        config = proposals.suggest(number)
        assert config is not None
        seen.append(config["n"])
        if number >= 4:
            proposals.observe(number - 4, 1, float(seen[number - 4]))
            proposals.end(number - 4, "completed")
    assert sorted(seen) == list(range(30))


@pytest.mark.parametrize("search", ALL, ids=repr)
def test_no_more_than_the_budgets_trials(search: SearchAlgorithm) -> None:
    assert len(run(propose(search, {"n": randint(0, 100)}, trials=7), lambda config: 0.0, 100)) == 7


@pytest.mark.parametrize("search", ALL, ids=repr)
def test_a_space_of_constants_is_tried_once(search: SearchAlgorithm) -> None:
    assert run(propose(search, {"lr": 0.1}), lambda config: 0.0, 10) == [{"lr": 0.1}]


def test_an_infinite_looking_space_that_runs_out_ends() -> None:
    space = {"a": choice([1, 2]), "b": sample_from(lambda config: config["a"] * 2)}
    assert len(run(propose(Random(), space), lambda config: 0.0, 10)) == 2


def test_a_searcher_that_repeats_itself_is_asked_again_and_then_replaced() -> None:
    space = Space({"n": randint(0, 3)})
    searcher = Stubborn({"n": 1})
    configs = run(Proposals(Problem(space), searcher), lambda config: 0.0, 10)
    assert configs[0] == {"n": 1}
    assert sorted(config["n"] for config in configs) == [0, 1, 2]
    assert searcher.attempts[:22] == [(0, 0), *((1, attempt) for attempt in range(20)), (2, 0)]


def test_a_continuous_space_never_runs_out() -> None:
    configs = run(Proposals(Problem(Space({"x": uniform(0, 1)})), Stubborn({"x": 0.5})), lambda config: 0.0, 50)
    assert len({config["x"] for config in configs}) == 50


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("search", ALL, ids=repr)
def test_values_that_are_not_finite_are_refused(search: SearchAlgorithm, value: float) -> None:
    proposals = propose(search, {"n": randint(0, 5)})
    proposals.suggest(0)
    with pytest.raises(ValueError, match=r"a search needs finite values, got -?(nan|inf) from trial 0 at epoch 2"):
        proposals.observe(0, 2, value)


SPACE: dict[str, Any] = {
    "x": uniform(0, 1),
    "n": randint(0, 50),
    "kind": choice(["a", None, True]),
    "y": uniform(0, 1).when(kind="a"),
}


@pytest.mark.parametrize("search", [Random(), HyperOpt(startup_trials=5)], ids=repr)
@pytest.mark.parametrize("cut", [1, 4, 12, 19])
def test_a_replay_goes_on_as_if_nothing_had_happened(search: SearchAlgorithm, cut: int) -> None:
    """Three trials at once, one that fails now and then, starting points: told again, the next are the same."""
    points: list[Config] = [{"x": 0.1}, {"kind": "a"}]
    live = propose(search, SPACE, trials=40, starting_points=points, seed=5)
    told: list[tuple[Any, ...]] = []
    for number in range(cut):
        told.append(("adopt", number, live.suggest(number)))
        for running in range(max(0, number - 2), number + 1):
            told.append(("observe", running, number - running + 1, math.sin(running * 7 + number)))
            live.observe(*told[-1][1:])
        if number >= 2:
            told.append(("end", number - 2, "failed" if number % 4 == 0 else "completed"))
            live.end(*told[-1][1:])
    replayed = propose(search, SPACE, trials=40, starting_points=points, seed=5)
    for call, *arguments in told:
        getattr(replayed, call)(*arguments)
    assert [replayed.suggest(number) for number in range(cut, cut + 5)] == [
        live.suggest(number) for number in range(cut, cut + 5)
    ]


def test_a_refused_configuration_is_proposed_no_more_and_its_trial_gets_another() -> None:
    problem = Problem(Space({"x": choice([1, 2, 3])}), mode="min", seed=0, trials=2, max_epochs=1)
    proposals = Proposals(problem, Random().build(problem), starting_points=[{"x": 2}])
    assert proposals.propose(0) == {"x": 2}
    proposals.refuse({"x": 2})
    taken = proposals.suggest(0)
    assert taken in ({"x": 1}, {"x": 3})
    left = {1, 3} - {taken["x"]}  # type: ignore[index]
    assert proposals.propose(1) == {"x": left.pop()}
    proposals.refuse({"x": 1})
    proposals.refuse({"x": 3})
    assert proposals.propose(1) is None


def _near(config: Config) -> bool:
    """True for 3 of 10,000 configurations."""
    return bool(abs(config["a"] - config["b"]) < 0.00015)


@pytest.mark.parametrize("search", [Random(), Random(sobol=False), BOHB(), HyperOpt(startup_trials=3)], ids=repr)
def test_a_constraint_that_allows_very_little_does_not_end_the_search(search: SearchAlgorithm) -> None:
    space = Space({"a": uniform(0, 1), "b": uniform(0, 1)}, _near)
    configs = run(propose(search, space, trials=12, seed=1), lambda config: float(config["a"]), 12)
    assert len(configs) == 12
    assert all(map(_near, configs))


def test_a_search_ends_where_the_constraint_allows_nothing_more_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals_module, "RANDOM_DRAWS", 10_000)
    space = Space({"x": uniform(0, 1)}, lambda config: bool(config["x"] == 0.5))
    proposals = propose(Random(), space, trials=5, starting_points=[{"x": 0.5}])
    assert run(proposals, lambda config: 0.0, 5) == [{"x": 0.5}]
    assert proposals.nothing_drawn


def test_a_tight_constraint_is_asked_of_no_more_than_so_many_draws() -> None:
    asked: list[float] = []

    def constraint(config: dict[str, Any]) -> bool:
        asked.append(config["a"])
        return bool(config["a"] == 0.5)

    space = Space({name: uniform(0, 1) for name in "abcde"}, constraint)
    proposals = propose(Random(), space, trials=5, starting_points=[dict.fromkeys("abcde", 0.5)])
    assert proposals.suggest(0) is not None
    asked.clear()
    assert proposals.suggest(1) is None
    assert proposals.nothing_drawn
    assert len(asked) <= DRAWS + proposals_module.RANDOM_DRAWS + 1


@pytest.mark.parametrize("search", [Random(), Random(sobol=False)], ids=repr)
def test_a_value_that_no_file_can_hold_is_drawn_again(search: SearchAlgorithm) -> None:
    space = Space({"x": uniform(0, 1), "act": sample_from(lambda c: object() if c["x"] > 0.5 else c["x"])})
    configs = run(propose(search, space, trials=20), lambda config: 0.0, 20)
    assert len(configs) == 20
    assert all(config["act"] == config["x"] <= 0.5 for config in configs)


def test_a_search_ends_where_the_function_gives_nothing_more_that_files_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proposals_module, "RANDOM_DRAWS", 10_000)
    left = [1, 2]
    space = Space({"x": uniform(0, 1), "act": sample_from(lambda: left.pop() if left else object)})
    proposals = propose(Random(), space, trials=5)
    assert [config["act"] for config in run(proposals, lambda config: 0.0, 5)] == [2, 1]
    assert proposals.nothing_drawn == (
        "sample_from needs values that the files of a run can hold, got <class 'object'> for 'act'; use numbers, texts, "
        "or lists of them, and look up in the trial's function what they stand for"
    )


def test_a_constraint_that_allows_nothing_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals_module, "RANDOM_DRAWS", 10_000)
    space = Space({"x": uniform(0, 1)}, lambda config: False)
    with pytest.raises(SpaceError, match="constraint needs to leave some configurations, got none in 10,000 draws"):
        propose(Random(), space, trials=5).suggest(0)


def test_what_a_constraint_leaves_of_a_finite_space_is_found_without_luck() -> None:
    space = Space({"n": randint(0, 50_000)}, lambda config: bool(config["n"] in (17, 41_717)))
    configs = run(propose(Random(), space), lambda config: 0.0, 5)
    assert sorted(config["n"] for config in configs) == [17, 41_717]


def test_a_large_space_of_which_everything_allowed_was_tried_ends_soon() -> None:
    asked: list[Config] = []
    space = Space({"n": randint(0, 10**6)}, lambda config: asked.append(config) or bool(config["n"] % 5000 == 0))
    proposals = Proposals(Problem(space), Stubborn({"n": 5000}))
    for n in range(0, 10**6, 5000):
        proposals.refuse({"n": n})
    assert proposals.suggest(200) is None
    assert len(asked) <= 100_020
