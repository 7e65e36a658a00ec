import pytest

from tuner.worker.ray_inside import draining
from tuner.worker.ray_inside.draining import DrainWatch


def test_the_cluster_is_asked_once_a_second_and_a_drain_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, now = iter([False, True]), [100.0]
    monkeypatch.setattr(draining, "_is_drained", lambda: next(answers))
    monkeypatch.setattr(draining.time, "monotonic", lambda: now[0])
    watch, seen = DrainWatch(joined=True), []
    for now[0] in (100.0, 100.5, 101.5, 103.0):
        seen.append(watch.draining())
    assert seen == [False, False, True, True]


def test_a_search_on_this_machine_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "_is_drained", lambda: pytest.fail("asked"))
    assert not DrainWatch(joined=False).draining()
