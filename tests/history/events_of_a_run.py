"""Events as a driver writes them, with times of the test's own choosing."""

from typing import Any

from tuner.history.events import Event
from tuner.history.records import RunRecord


def event(kind: str, time: float = 0.0, **fields: Any) -> Event:
    return {"event": kind, "time": time, **fields}


def started(number: int, time: float = 0.0, config: dict[str, Any] | None = None, from_epoch: int = 0) -> Event:
    settings = {"x": number} if config is None else config
    name = f"{number:05d}"
    return event(
        "trial_started", time, trial=name, number=number, config=settings, seed=number + 100, from_epoch=from_epoch
    )


def reported(number: int, epoch: int, time: float = 0.0, decision: str = "continue", /, **metrics: Any) -> Event:
    return event("epoch_reported", time, trial=f"{number:05d}", epoch=epoch, metrics=metrics, decision=decision)


def computed(number: int, images: int, time: float, seconds: float, left: float) -> Event:
    """Features of so many of 1,200 images."""
    told = {"model": "mobilenet_v2", "images": images, "total": 1200, "seconds": seconds, "seconds_left": left}
    return event("features_computed", time, trial=f"{number:05d}", **told)


def ended(number: int, status: str, time: float = 0.0, **why: str | None) -> Event:
    return event("trial_ended", time, trial=f"{number:05d}", status=status, **why)


def saved(number: int, epoch: int) -> Event:
    return event("checkpoint_saved", trial=f"{number:05d}", epoch=epoch)


def fold(*events: Event, mode: str = "max") -> RunRecord:
    return RunRecord("accuracy", mode, events)
