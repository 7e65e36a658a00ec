"""Orders at any moment of a search, with any accident, and a driver that is killed after any event."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loop.faults import Clock, Faults
from tests.loop.simulation import build, events_of, study
from tests.loop.steered import SteeredSearch, answers, drawn_orders, record_of, what_is_wrong
from tests.loop.test_faults import CHEAP, DEAR, scene
from tests.loop.test_steering import begun, finish, order
from tuner import ASHA, Budget, HyperBand, NoEarlyStopping, Study
from tuner.history import events
from tuner.loop.search_loop import SearchLoop
from tuner.orders.inbox import Inbox, put
from tuner.orders.order import Malformed, Order
from tuner.schedule import Scheduler
from tuner.storage.folder import LocalFolder


def steered_through(seed: int, searches: list[Any], folder: Path, kinds: frozenset[str]) -> list[str]:
    faults = Faults(seed, kinds, likely=0.02)
    drawn_scene = scene(seed, searches)
    search = SteeredSearch(drawn_scene, folder, faults, drawn_orders(seed, drawn_scene))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "time", Clock(faults))
        search.run()
    return [f"seed {seed}, {faults.happened}: {each}" for each in what_is_wrong(search)]


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(25, 250, 25))])
@pytest.mark.parametrize("kinds", [(), ("kill",), ("kill", "lost worker", "damage")], ids="+".join)
def test_orders_are_obeyed_once_at_any_moment_of_any_search(fast: Path, kinds: tuple[str, ...], first: int) -> None:
    for seed in range(first, first + 25):
        assert steered_through(seed, CHEAP, fast / "search", frozenset(kinds)) == []
        shutil.rmtree(fast / "search")


def test_orders_are_obeyed_in_searches_that_learn(fast: Path) -> None:
    for seed in range(10_000, 10_010):
        assert steered_through(seed, DEAR, fast / "search", frozenset({"kill"})) == []
        shutil.rmtree(fast / "search")


def test_a_driver_that_is_killed_after_any_event_has_run_a_failed_trial_again_once(fast: Path) -> None:
    declared, one = study(budget=Budget(trials=3, max_epochs=3), scheduler=NoEarlyStopping()), order("retry")
    loop = build(declared, fast / "whole", concurrency=2)
    failed, _ = begun(loop, 2)
    loop.failed(failed, "error", "KeyError: 'lr'")
    loop.obey(one)
    finish(loop)
    whole = events_of(fast / "whole")
    for kept in range(5, len(whole)):  # the failure is written
        folder = fast / str(kept)
        shutil.copytree(fast / "whole" / "events", folder / "events")
        cut_after(folder, kept)
        again = build(declared, folder, concurrency=2, history=events_of(folder))
        again.obey(one, late=again.finished)
        finish(again)
        told = [e for e in events_of(folder) if e.get("order") == one.id]
        assert [e["event"] for e in told] == ["order_obeyed"]
        assert record_of(folder, declared).trials[failed].status == "completed"


def cut_after(folder: Path, kept: int) -> None:
    """What a driver leaves that is killed after so many events."""
    (segment,) = sorted((folder / "events").iterdir())
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:kept]))


ORDERS = [order("try", config={"x": 0.25}), order("stop", trial="00001"), order("set", trials=5), order("stop")]


@pytest.mark.parametrize("scheduler", [ASHA(grace_epochs=1), HyperBand(1, 2), NoEarlyStopping()])
@pytest.mark.parametrize("one", ORDERS, ids=lambda one: f"{one.verb} {dict(one.arguments)}")
def test_a_driver_that_is_killed_after_any_event_has_obeyed_once_when_it_is_resumed(
    fast: Path, one: Order, scheduler: Scheduler
) -> None:
    declared = study(scheduler=scheduler, budget=Budget(trials=4, max_epochs=4))
    loop = build(declared, fast / "whole", concurrency=2)
    starts = begun(loop, 2)
    for trial in starts:
        loop.report(trial, 1, {"loss": 1.0}, saves=True)
    loop.obey(one)
    finish(loop, saves=False)
    whole = events_of(fast / "whole")
    for kept in range(3, len(whole)):
        folder = fast / str(kept)
        shutil.copytree(fast / "whole" / "events", folder / "events")
        cut_after(folder, kept)
        limits = record_of(folder, declared).steered.limits
        again = build(declared.with_options(**limits), folder, concurrency=2, history=events_of(folder))
        again.obey(one)  # its file is still in the inbox, unless it was deleted just before
        finish(again, saves=False)
        assert list(left_undone(again, one, folder, declared)) == [], f"cut after {kept}: {whole[kept - 1]}"


def left_undone(loop: SearchLoop, one: Order, folder: Path, declared: Study) -> Iterator[str]:
    told = answers(events_of(folder))
    if len(told) != 1:
        yield f"{len(told)} answers"
    record = loop.record
    if told[0]["event"] == "order_refused":
        if one.arguments.get("trial") is None or record.trials["00001"].ended_by == "stop":
            yield f"refused: {told[0]['message']}"
    elif one.verb == "try" and [t.config for t in record.trials.values()].count({"x": 0.25}) != 1:
        yield "not tried once"
    elif one.verb == "set" and len(record.trials) != 5:
        yield f"{len(record.trials)} trials"
    elif one.verb == "stop" and "trial" in one.arguments and record.trials["00001"].ended_by != "stop":
        yield "the trial went on"
    elif one.verb == "stop" and "trial" not in one.arguments and record.ended != "stop":
        yield f"ended by {record.ended}"


def test_a_thousand_orders_at_once_are_answered_in_a_moment(fast: Path) -> None:
    folder = LocalFolder(fast)
    for number in range(1000):
        put(folder, "note", {"text": f"number {number}"})
    (fast / "inbox" / "odd.json").write_text("{")
    now = [0.0]
    inbox, loop = Inbox(folder, clock=lambda: now[0]), build(study(), fast)
    begun_at = time.process_time()
    found = inbox.look()
    for each in found:
        loop.obey(each)
        inbox.done(each)
    print(f"1,000 orders: {time.process_time() - begun_at:.3f} s of this process")
    assert len(found) == 1000  # what may be half-written gets a second look
    assert [note.text for note in loop.record.steered.notes] == [f"number {number}" for number in range(1000)]
    now[0] += 2
    (odd,) = inbox.look()
    assert isinstance(odd, Malformed)
    assert [path.name for path in (fast / "inbox").iterdir()] == ["odd.json"]
