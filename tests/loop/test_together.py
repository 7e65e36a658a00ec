"""Orders, failures of each kind, a limit of the disk and killed drivers, all in the same searches."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loop.faults import Clock, Faults
from tests.loop.steered import what_is_wrong
from tests.loop.test_faults import CHEAP, DEAR, scene
from tests.loop.together import CAUSES, SearchOfAll, of_being_alone, of_retries, of_tries, orders_of_all, scene_of_all
from tuner.history import events
from tuner.history.events import read_events
from tuner.storage.folder import LocalFolder

KINDS = frozenset({*CAUSES, "kill", "lost worker", "damage", "clock"})


def search_of_all(seed: int, searches: list[Any], folder: Path) -> SearchOfAll:
    faults = Faults(seed, KINDS, likely=(0.01, 0.03, 0.06)[seed % 3], most=10)
    drawn = scene_of_all(seed, scene(seed, searches))
    search = SearchOfAll(drawn, folder, faults, orders_of_all(seed, drawn), extended=seed % 2 == 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "time", Clock(faults))
        search.run()
    return search


def wrong_with_all(search: SearchOfAll) -> Iterator[str]:
    told = list(read_events(LocalFolder(search.folder)))
    yield from what_is_wrong(search)
    yield from of_tries(told, search.scene.study)
    yield from of_being_alone(told)
    yield from of_retries(told)


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(60, 600, 60))])
def test_all_that_can_come_together(fast: Path, first: int) -> None:
    for seed in range(first, first + 60):
        search = search_of_all(seed, CHEAP, fast / "search")
        assert [f"seed {seed}, {search.faults.happened}: {each}" for each in wrong_with_all(search)] == []
        shutil.rmtree(fast / "search")


def test_all_that_can_come_together_in_searches_that_learn(fast: Path) -> None:
    for seed in range(10_000, 10_010):
        search = search_of_all(seed, DEAR, fast / "search")
        assert [f"seed {seed}, {search.faults.happened}: {each}" for each in wrong_with_all(search)] == []
        shutil.rmtree(fast / "search")
