"""Searches without Ray to which orders come at random moments, disturbed as in `tests.loop.disturbed`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.loop.disturbed import DisturbedSearch, Scene
from tests.loop.faults import Faults
from tests.loop.invariants import faults_of_a_run
from tuner import Study
from tuner.errors import StudyError
from tuner.history.events import Event, read_events
from tuner.history.records import RunRecord
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Malformed, Order
from tuner.storage.folder import LocalFolder

LATEST = 60  # step of a search at which an order may come


class SteeredSearch(DisturbedSearch):
    """`orders` come at the steps that are their keys; one is there until it is answered, whichever driver reads it."""

    def __init__(self, scene: Scene, folder: Path, faults: Faults, orders: dict[int, list[Order | Malformed]]) -> None:
        super().__init__(scene, folder, faults)
        self._first = scene
        self.to_come, self.inbox = dict(orders), list[Order | Malformed]()
        self.pauses = 0

    def _drive(self) -> bool:
        steered = record_of(self.folder, self._first.study).steered
        self.limits = self.options({**(steered.given or {}), **steered.limits})
        study = self._first.study.with_options(**self.limits)
        self.scene = replace(self._first, study=study, workers=steered.concurrency or self._first.workers)
        return super()._drive()

    def options(self, limits: dict[str, Any]) -> dict[str, Any]:
        """The limits that the next driver is given, of those that were set before."""
        return limits

    def opening(self) -> dict[str, Any]:
        return {**super().opening(), "limits": self.limits}

    def _search(self, loop: SearchLoop) -> None:
        self._obey(loop)
        super()._search(loop)

    def _meanwhile(self, loop: SearchLoop) -> None:
        super()._meanwhile(loop)
        for step in [step for step in self.to_come if step <= self.steps]:
            self.inbox += self.to_come.pop(step)
        self._obey(loop)

    def _obey(self, loop: SearchLoop) -> None:
        for order in list(self.inbox):
            loop.obey(order)
            self.inbox.remove(order)
            self.stays = [stay for stay in self.stays if stay.start.trial in loop.running]
            if isinstance(order, Order) and order.verb == "pause":
                self.pauses += 1
                raise OSError("paused")  # which `_drive` takes as the end of this driver, in order


def record_of(folder: Path, study: Study) -> RunRecord:
    return RunRecord(study.metric, study.mode, read_events(LocalFolder(folder)))


def drawn_orders(seed: int, scene: Scene) -> dict[int, list[Order | Malformed]]:
    """Up to six orders at random steps."""
    draw = random.Random(f"orders {seed}")
    found: dict[int, list[Order | Malformed]] = {}
    for number in range(draw.randint(1, 6)):
        verb, arguments = drawn(draw, scene.study)
        order: Order | Malformed = Order(f"order-{number}", verb, arguments, by="me@here", time=float(number))
        if draw.random() < 0.05:
            order = Malformed(f"order-{number}", "an order needs to be JSON", file="odd.json")
        found.setdefault(draw.randint(0, LATEST), []).append(order)
    return found


def drawn(draw: random.Random, study: Study) -> tuple[str, dict[str, Any]]:
    trials = study.budget.trials or 4
    return draw.choice(
        [
            ("stop", {}),
            ("stop", {"trial": f"{draw.randint(0, 4):05d}"}),
            ("stop", {"trial": f"{draw.randint(0, 4):05d}"}),
            ("pause", {}),
            ("set", {"trials": trials + draw.randint(-3, 6)}),
            ("set", {"trials": trials + 5, "concurrency": draw.randint(1, 3)}),
            ("set", {"concurrency": draw.randint(1, 3)}),
            ("set", {"target": 0.05}),
            ("try", {"config": {"x": draw.choice([0.3, 0.9, 1, 2, 2.5, draw.random()])}}),
            ("try", {"config": {"x": draw.random()}}),
            ("try", {"config": {"y": 1}}),
            ("note", {"text": "look at this", "trial": f"{draw.randint(0, 4):05d}"}),
            ("note", {"text": "all of it"}),
        ]
    )


def what_is_wrong(search: SteeredSearch) -> Iterator[str]:
    """A sentence for each thing that doesn't hold after a steered search that has come to its end."""
    events = list(read_events(LocalFolder(search.folder)))
    record = record_of(search.folder, search.scene.study)
    final = search.loop.study if search.loop else search.scene.study
    yield from faults_of_a_run(search.folder, final, max(3, search._first.workers))
    yield from _of_answers(events, search)
    yield from _of_stops(events, record)
    yield from _of_tries(events, record)
    yield from _of_concurrency(events, search._first.workers)
    yield from _of_limits(events, search._first.study, final)
    if search.loop is not None and search.loop.record.trials != record.trials:
        yield "the events tell another story than the driver's record"
    for (trial, epoch), value in search.reported.items():
        known = record.trials[trial].epochs.get(epoch)
        if known is None or known.metrics != {"loss": value}:
            yield f"epoch {epoch} of {trial} is {known and known.metrics}, reported was {value}"


def answers(events: list[Event]) -> list[Event]:
    return [event for event in events if event["event"] in ("order_obeyed", "order_refused")]


def _of_answers(events: list[Event], search: SteeredSearch) -> Iterator[str]:
    """Each order that was read has one answer."""
    counts = Counter(event["order"] for event in answers(events))
    yield from (f"{order} was answered {count} times" for order, count in counts.items() if count > 1)
    if search.inbox:
        yield f"{[order.id for order in search.inbox]} were read and not answered"


def _of_stops(events: list[Event], record: RunRecord) -> Iterator[str]:
    """A trial that was ended by an order does nothing more, and nothing is begun once the search was.

    But a checkpoint may show what a trial did before, which no event has told.
    """
    ended: set[str] = set()
    stopped = False
    ahead = ""
    for event in events:
        kind = event["event"]
        if kind == "notice" and "although its events end at epoch" in event["message"]:
            ahead = event["message"].split()[1]
            continue
        if kind == "epoch_reported" and event["trial"] == ahead:
            continue
        ahead = ""
        if kind == "order_obeyed" and event["verb"] == "stop":
            trial = event["arguments"].get("trial")
            stopped = stopped or trial is None
            ended |= {trial} - {None}
        elif event.get("anew"):
            stopped = False
        elif kind in ("trial_started", "trial_resumed", "epoch_reported"):
            if stopped:
                yield f"{kind} of {event['trial']} after the search was stopped"
            if event["trial"] in ended:
                yield f"{kind} of {event['trial']}, which an order had ended"
    for trial in ended:
        if (record.trials[trial].status, record.trials[trial].ended_by) != ("stopped", "stop"):
            yield f"{trial} was stopped by an order and is {record.trials[trial].status}"
    if stopped and record.ended not in ("stop", "failures", "target", "total_epochs"):
        yield f"the search was stopped and ended by {record.ended}"


def _of_tries(events: list[Event], record: RunRecord) -> Iterator[str]:
    """Each configuration that was ordered becomes one trial, unless the search ended before."""
    wanted = {e["order"]: e["config"] for e in events if e["event"] == "order_obeyed" and e["verb"] == "try"}
    begun = {e["order"]: e["trial"] for e in events if e["event"] == "trial_started" and "order" in e}
    for order, config in wanted.items():
        if order in begun and record.trials[begun[order]].config != config:
            yield f"{order} became another configuration"
        if order not in begun and record.ended in ("trials", "space", "min_improvement"):
            yield f"{order} became no trial though the search ended by {record.ended}"
    numbers = Counter(e["order"] for e in events if e["event"] == "trial_started" and "order" in e)
    yield from (f"{order} became {count} trials" for order, count in numbers.items() if count > 1)


def _of_concurrency(events: list[Event], workers: int) -> Iterator[str]:
    """A trial starts only where fewer run than may at that time."""
    running: set[str] = set()
    for event in events:
        kind = event["event"]
        if kind in ("study_started", "study_resumed"):
            running = set()
        elif kind == "order_obeyed" and event["verb"] == "set":
            workers = event["arguments"].get("concurrency") or workers
        elif kind in ("trial_started", "trial_resumed"):
            if len(running) >= workers:
                yield f"{event['trial']} started beside {sorted(running)}, with {workers} at once"
            running.add(event["trial"])
        elif kind in ("trial_paused", "trial_ended", "trial_lost", "trial_retried"):
            running.discard(event["trial"])


def _of_limits(events: list[Event], first: Study, final: Study) -> Iterator[str]:
    """The last driver searched within the limits as they were set last."""
    wanted = first
    for event in events:
        ordered = event["event"] == "order_obeyed" and event["verb"] == "set"
        if ordered or "given" in event:
            told = event["arguments"] if ordered else event["given"]
            limits = {name: value for name, value in told.items() if name != "concurrency"}
            try:
                wanted = wanted.with_options(**limits)
            except StudyError as error:
                yield f"limits were set that can't be: {error}"
    if wanted.budget != final.budget:
        yield f"the budget is {final.budget}, set was {wanted.budget}"
