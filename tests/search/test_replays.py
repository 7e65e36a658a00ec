"""Whatever a search, or the replay of one, can tell a searcher: it suggests from its space, and raises nothing."""

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.each import EAGER, domains_for
from tuner.search import Problem, Proposals, SearchAlgorithm
from tuner.space import Space

VALUES = st.floats(allow_nan=False, allow_infinity=False)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("suggest")),
        st.tuples(st.just("observe"), st.integers(0, 9), st.integers(1, 4), st.floats(-1, 1)),
        st.tuples(st.just("observe"), st.integers(0, 9), st.integers(1, 4), VALUES),
        st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(["completed", "stopped", "failed"])),
        st.tuples(st.just("restart"), st.integers(0, 9)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("algorithm", EAGER, ids=lambda algorithm: type(algorithm).__name__)
def test_no_sequence_of_a_search_makes_it_raise(algorithm: SearchAlgorithm) -> None:
    @settings(deadline=None, max_examples=60, derandomize=True)
    @given(steps=STEPS, mode=st.sampled_from(["min", "max"]), trials=st.none() | st.integers(1, 20))
    def holds(steps: list[tuple[Any, ...]], mode: Literal["min", "max"], trials: int | None) -> None:
        problem = Problem(Space(domains_for(algorithm)), mode=mode, trials=trials, max_epochs=9, rungs=(3,))
        replay(Proposals(problem, algorithm.build(problem)), problem.space, steps)

    holds()


def replay(proposals: Proposals, space: Space, steps: list[tuple[Any, ...]]) -> None:
    """Trials as a search has them: one that ended is told of no more unless it failed and runs again, epochs come in
    order, with gaps.
    """
    epochs: dict[int, int] = {}
    ended: dict[int, str] = {}
    for kind, *details in steps:
        if kind == "suggest":
            config = proposals.suggest(len(epochs))
            if config is not None:
                assert space.check(config, "suggestion") == config
                epochs[len(epochs)] = 0
            continue
        number, *rest = details
        if kind == "restart" and ended.get(number) == "failed":
            del ended[number]
            proposals.restart(number)
        if kind == "restart" or number not in epochs or number in ended:
            continue
        if kind == "observe":
            epochs[number] += rest[0]
            proposals.observe(number, epochs[number], rest[1])
        else:
            ended[number] = rest[0]
            proposals.end(number, rest[0])
