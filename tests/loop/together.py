"""Searches in which all comes together: orders, failures of each kind, a limit of the disk, killed drivers.

A driver follows each that died or was paused, as with `tuner resume`: with more room where the limit was too low, and
once for more trials where an order had stopped the search.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.loop.disturbed import BrokenPromiseError, Scene, Stay
from tests.loop.faults import Faults
from tests.loop.invariants import retried_by_users
from tests.loop.steered import LATEST, SteeredSearch, drawn
from tuner import Failures, Study
from tuner.history.events import Event, read_events
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Malformed, Order
from tuner.storage.folder import LocalFolder
from tuner.study.budget import GB

SIZE = 10_000  # bytes of a checkpoint, beside its manifest
CAUSES = ("hung", "killed for memory", "out of memory", "raised")  # kinds of faults beside those of `Faults`


class SearchOfAll(SteeredSearch):
    """`extended`: a search that an order has stopped goes on once, for more trials."""

    padding = SIZE

    def __init__(
        self, scene: Scene, folder: Path, faults: Faults, orders: dict[int, list[Order | Malformed]], *, extended: bool
    ) -> None:
        super().__init__(scene, folder, faults, orders)
        self.extended, self.reason = extended, ""
        self.disk_pauses = 0
        self.most_held = 0
        self.anew: dict[str, Any] = {}
        self.given: dict[str, Any] = {}

    def run(self) -> None:
        super().run()
        assert self.loop is not None
        if self.extended and self.loop.record.ended == "stop":
            self.given = {"trials": len(self.loop.record.trials) + 2}
            self.anew = {"anew": True}
            super().run()

    def options(self, limits: dict[str, Any]) -> dict[str, Any]:
        """The limits of the next driver; more room where the last one was paused for want of it."""
        if self.reason:
            self.reason = ""
            self.disk_pauses += 1
            self.given["disk_gb"] = 1.4 * (limits.get("disk_gb") or self._first.study.budget.disk_gb or 0.0)
        return {**limits, **self.given}

    def opening(self) -> dict[str, Any]:
        return {**super().opening(), **self.anew, "given": self.given}

    def pause(self, reason: str) -> None:
        self.reason = reason

    def _meanwhile(self, loop: SearchLoop) -> None:
        self.anew, self.given = {}, {}  # the driver has begun
        super()._meanwhile(loop)
        if self.reason:
            raise OSError(f"paused: {self.reason}")
        alone = [trial for trial in loop.running if loop.record.trials[trial].attempts.alone]
        if alone and len(loop.running) > 1:
            raise BrokenPromiseError(f"{alone} run beside others: {sorted(loop.running)}")

    def _write(self, stay: Stay, epoch: int) -> bool:
        written = super()._write(stay, epoch)
        if written:
            held = sum(self.store.size(t, e) for t in self.store.trials() for e in self.store.epochs(t))
            assert self.loop is not None
            limit = self.loop.study.budget.disk_gb
            if limit is not None and self.scene.saving == "each" and held > limit * GB and not self.reason:
                raise BrokenPromiseError(f"{held} bytes of checkpoints, the limit is {limit * GB:g}")
        return written

    def _advance(self, loop: SearchLoop, stay: Stay) -> None:
        if self.current.get(stay.start.trial) is not stay or stay.start.trial not in loop.running:
            super()._advance(loop, stay)
        elif self.faults.strikes("hung"):
            self._give_up(loop, stay)
            loop.lost(stay.start.trial, "hung", "it reported nothing for a minute", "its stacks")
        elif self.faults.strikes("killed for memory"):
            self._give_up(loop, stay)
            loop.lost(stay.start.trial, "out_of_memory", "its worker was killed for its memory")
        elif self.faults.strikes("out of memory"):
            self._give_up(loop, stay)
            loop.failed(stay.start.trial, "out_of_memory", "not even one image fits", "a traceback")
        elif self.faults.strikes("raised"):
            self._give_up(loop, stay)
            loop.failed(stay.start.trial, "error", "KeyError: 'lr'", "a traceback")
        else:
            super()._advance(loop, stay)

    def _give_up(self, loop: SearchLoop, stay: Stay) -> None:
        trial = stay.start.trial
        self._leave(stay)
        self._end_saves(trial, stay)
        self._note_saves(loop)
        self.coming.pop(trial, None)

    def _restored(self, start: Start) -> int:
        """A failed trial whose checkpoint the limit of the disk took begins anew."""
        gone = {e["epoch"] for e in self._events() if e["event"] == "checkpoint_deleted" and e["trial"] == start.trial}
        if self.newest.get(start.trial) in gone:
            del self.newest[start.trial]
        return super()._restored(start)

    def _events(self) -> Iterator[Event]:
        return read_events(LocalFolder(self.folder))


def orders_of_all(seed: int, scene: Scene) -> dict[int, list[Order | Malformed]]:
    """Up to ten orders at random steps, with the verb `retry` among them, and some in the same moment."""
    draw = random.Random(f"all orders {seed}")
    found: dict[int, list[Order | Malformed]] = {}
    for number in range(draw.randint(1, 10)):
        verb, arguments = drawn(draw, scene.study)
        chance = draw.random()
        if chance < 0.25:
            verb, arguments = "retry", draw.choice([{}, {}, {"trials": [f"{draw.randint(0, 4):05d}"]}])
        elif verb == "stop" and not arguments and chance < 0.7:
            verb, arguments = "pause", {}
        order = Order(f"order-{number}", verb, arguments, by="me@here", time=float(number))
        at = draw.choice([*found, draw.randint(0, LATEST), draw.randint(0, LATEST)])
        found.setdefault(at, []).append(order)
    return found


def scene_of_all(seed: int, scene: Scene) -> Scene:
    """The same search, with failures that are tried again and perhaps a limit of the disk."""
    draw = random.Random(f"all {seed}")
    room = draw.choice([None, 3, 5, 7, 9, 14])
    failures = Failures(
        lost=draw.randint(0, 3),
        error=draw.randint(0, 2),
        out_of_memory=draw.randint(0, 2),
        alike=draw.choice([None, 1, 2, 5]),
    )
    budget = replace(scene.study.budget, disk_gb=None if room is None else (room * (SIZE + 300) + 20_000) / GB)
    return replace(scene, study=replace(scene.study, failures=failures, budget=budget))


# What must hold


def of_tries(events: list[Event], study: Study) -> Iterator[str]:
    """No trial is tried again more often than the study says, since it began or a user had it run again."""
    allowed = study.failures
    tries: dict[str, Counter[str]] = defaultdict(Counter)
    for event in events:
        trial, kind = event.get("trial", ""), event["event"]
        for each in retried_by_users(event):
            tries[each].clear()
        if kind == "trial_lost":
            tries[trial]["lost"] += 1
        elif kind == "trial_retried":
            tries[trial][event["cause"]] += 1
        elif kind in ("trial_started", "trial_resumed"):
            for name, count in tries[trial].items():
                if count > allowed.tries(name):
                    yield f"{trial} is tried again after {count} failures, {name}; allowed are {allowed.tries(name)}"


def of_being_alone(events: list[Event]) -> Iterator[str]:
    """A trial whose memory ran out is tried again with no other one beside it."""
    running: set[str] = set()
    alone: set[str] = set()
    for event in events:
        trial, kind = event.get("trial", ""), event["event"]
        alone -= set(retried_by_users(event))
        if kind in ("study_started", "study_resumed"):
            running = set()
        elif kind in ("trial_started", "trial_resumed"):
            if running and (trial in alone or running & alone):
                yield f"{trial} starts beside {sorted(running)}, alone are to be {sorted(alone)}"
            running.add(trial)
        elif kind in ("trial_paused", "trial_ended", "trial_lost", "trial_retried"):
            running.discard(trial)
            if event.get("alone"):
                alone.add(trial)


def of_retries(events: list[Event]) -> Iterator[str]:
    """What a user has run again does run, unless a limit ends the search for all, or an order the trial."""
    waiting: set[str] = set()
    gone: set[str] = set()
    for event in events:
        trial, kind = event.get("trial", ""), event["event"]
        waiting |= set(retried_by_users(event))
        if kind in ("study_started", "study_resumed"):
            gone = set()
        elif kind in ("trial_started", "trial_resumed") or event.get("reason") in ("trials", "space"):
            yield from (f"{each} was to run again and never did" for each in gone)
            waiting.discard(trial)
        elif kind == "trial_ended" and trial in waiting:
            waiting.discard(trial)
            gone |= set() if event.get("by") == "stop" else {trial}
    yield from (f"{each} was to run again and still waits" for each in waiting)
