"""Simulated searches whose trials fail as a test says, and what is left of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.loop.simulation import events_of, study
from tuner import Budget, Failures, Study
from tuner.history.checkpoints import CheckpointStore
from tuner.history.event_lines import written
from tuner.history.events import Event
from tuner.history.records import TrialRecord
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision

Failing = Callable[[int, int, int], str | None]  # of number, tries that failed before, and epoch: the cause


@dataclass
class Stay:
    """A trial on a worker."""

    start: Start
    epoch: int


def work(loop: SearchLoop, failing: Failing, *, saves: bool = False, reports: int = 10_000) -> list[frozenset[str]]:
    """Workers that train an epoch each in turn, until the search ends or after so many reports; what ran together."""
    stays: list[Stay] = []
    together = []
    while not loop.finished and reports > 0:
        while (start := loop.next_action()) is not None:
            stays.append(Stay(start, loop.record.trials[start.trial].last_checkpoint))
        together.append(loop.running)
        for stay in list(stays):
            reports -= 1
            if train(loop, stay, failing, saves=saves) is not Decision.CONTINUE:
                stays.remove(stay)
    return together


def train(loop: SearchLoop, stay: Stay, failing: Failing, *, saves: bool) -> Decision:
    trial = stay.start.trial
    stay.epoch += 1
    record = loop.record.trials[trial]
    cause = failing(record.number, len(record.attempts.failed), stay.epoch)
    if cause in ("lost", "hung", "drained"):
        loop.lost(trial, cause, f"{cause} in epoch {stay.epoch}")
    elif cause is not None and cause != "diverged":
        loop.failed(trial, cause, f"{cause} in epoch {stay.epoch}", f"traceback of epoch {stay.epoch}")
    else:
        if saves:
            CheckpointStore(loop.folder).write(trial, stay.epoch, lambda _: None)
        value = math.nan if cause else stay.start.config["x"] + 1 / stay.epoch
        saved = [stay.epoch] if saves else []
        return loop.report(trial, stay.epoch, {"loss": value}, saved=saved, saves=saves)
    return Decision.STOP


def failures(**settings: int | None) -> Study:
    return study(failures=Failures(**settings), budget=Budget(trials=6, max_epochs=4))  # type: ignore[arg-type]


def fails_once(cause: str, number: int = 1, epoch: int = 3) -> Failing:
    return lambda trial, tries, at: cause if (trial, tries, at) == (number, 0, epoch) else None


def kinds(folder: Path, trial: str) -> list[str]:
    return [event["event"] for event in events_of(folder) if event.get("trial") == trial]


def outcome(trial: TrialRecord) -> tuple[Any, ...]:
    return trial.status, trial.cause, trial.message, [(a.kind, a.cause, a.message) for a in trial.attempts.failed]


def cut_after(folder: Path, count: int, target: Path) -> list[Event]:
    """The run as a driver leaves it that is killed after so many events."""
    (target / "events").mkdir(parents=True)
    lines = [written(event) + b"\n" for event in events_of(folder)[:count]]
    (target / "events" / "000001.jsonl").write_bytes(b"".join(lines))
    return events_of(target)


def many_ways(number: int, tries: int, epoch: int) -> str | None:
    """Trial 0 raises once, 1 is lost thrice, 2 raises twice, 3 runs out of memory, 4 diverges, 5 goes well."""
    ways = [["error"], ["lost"] * 3, ["error"] * 2, ["out_of_memory"], ["diverged"], []][number]
    return ways[tries] if tries < len(ways) and epoch == 2 else None
