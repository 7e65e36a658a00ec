"""Drives a `SearchLoop` without Ray, one trial after another: what the real driver does, minus the processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner import Budget, NoEarlyStopping, Random, Study, uniform
from tuner.history.checkpoints import CheckpointStore, Fill
from tuner.history.events import Event, read_events
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision
from tuner.storage.folder import LocalFolder

Curve = Callable[[dict[str, Any], int], float]


def parabola(config: dict[str, Any], epoch: int) -> float:
    """Best at x = 0.3, and better with every epoch."""
    return float((config["x"] - 0.3) ** 2 + 1 / epoch)


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "trial": lambda config: None,
        "space": {"x": uniform(0, 1)},
        "metric": "loss",
        "mode": "min",
        "search": Random(sobol=False),
        "scheduler": NoEarlyStopping(),
        "budget": Budget(trials=6, max_epochs=9),
    }
    return Study("simulated", **{**settings, **changes})


def build(declared: Study, folder: Path, *, concurrency: int = 1, **options: Any) -> SearchLoop:
    return SearchLoop(declared, LocalFolder(folder), concurrency=concurrency, **options)


def events_of(folder: Path) -> list[Event]:
    return list(read_events(LocalFolder(folder)))


def drive(
    loop: SearchLoop,
    curve: Curve = parabola,
    *,
    reports: int | None = None,
    saves: bool = True,
    saving: Callable[[int], bool] = lambda number: True,
    fill: Fill = lambda folder: None,
    leave: Callable[[], bool] = lambda: False,
    metric: str | None = None,
    more: Callable[[dict[str, Any]], dict[str, float]] = lambda config: {},
) -> None:
    """Run trials one after another until the search ends, or is cut off after so many reports.

    Where `saves`, the trials for whose number `saving` holds write a checkpoint each epoch, which `fill` fills. It is
    left before its end once `leave` says so. Reported is the study's metric, or the one named, and what
    `more` gives.
    """
    left = reports if reports is not None else 10**9
    while left > 0 and not leave():
        action = loop.next_action()
        if action is None:
            if loop.finished:
                return
            continue
        trial = action.trial
        epoch = loop.record.trials[trial].last_checkpoint
        decision = Decision.CONTINUE
        while decision is Decision.CONTINUE and left > 0 and not leave():
            epoch += 1
            left -= 1
            saved = [epoch] if saves and saving(action.number) else []
            for each in saved:
                CheckpointStore(loop.folder).write(trial, each, fill)
            metrics = {metric or loop.study.metric: curve(action.config, epoch), **more(action.config)}
            decision = loop.report(trial, epoch, metrics, saved=saved, saves=bool(saved))
