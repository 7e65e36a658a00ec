"""Linear algebra of small matrices uses one thread, and leaves the rest of the process as it was."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tuner.machine.one_thread import on_one_thread
from tuner.results.leading import chances_to_lead


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    with threadpool_limits(2, "blas"):
        yield


def test_the_block_has_one_thread_also_where_it_fails() -> None:
    found: list[set[int]] = []

    @on_one_thread()
    def fails() -> None:
        found.append(threads())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert (found, threads()) == ([{1}], {2})


class Seen(np.ndarray):
    """Values that see how many threads there are when they are taken."""

    threads: ClassVar[set[int]] = set()

    def __getitem__(self, key: Any) -> Any:
        Seen.threads |= threads()
        return super().__getitem__(key)


def test_the_chance_to_lead_is_worked_out_on_one() -> None:
    units = np.random.default_rng(0).random((6, 2))
    chances_to_lead(units, [1, 1], units[:, 0][None].view(Seen))
    assert Seen.threads == {1}
