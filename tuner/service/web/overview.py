"""What the first page shows: studies with their place in the queue, devices, and who asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.foreign_text import printable
from tuner.results.text import duration, short
from tuner.service.model import OVER, DeviceUse, Position, Progress, State, SubmittedStudy
from tuner.service.service import Service

ALIVE = tuple(state for state in State if state not in OVER)
_ORDER = (State.ENDING, State.RUNNING, State.PAUSING, State.STARTING, State.QUEUED, State.CHECKING, State.PAUSED)
MOST_ALIVE, MOST_OVER = 200, 20


@dataclass(frozen=True)
class StudyRow:
    """A study as a line of the page; texts that users wrote are escaped by the template."""

    id: int
    name: str
    user: str
    state: State
    priority: int
    place: int | None
    reason: str
    start: str
    done: str
    best: str
    left: str
    has_report: bool


@dataclass(frozen=True)
class DeviceRow:
    """A device and who has it."""

    name: str
    study: int | None
    user: str
    busy: float | None
    idle: bool  # though a study has it


@dataclass(frozen=True)
class Overview:
    """The page's content at one moment."""

    alive: list[StudyRow]
    over: list[StudyRow]
    devices: list[DeviceRow]

    @property
    def title(self) -> str:
        """How much is under way, for the browser's tab."""
        running = sum(row.state in (State.RUNNING, State.ENDING) for row in self.alive)
        waiting = sum(row.state is State.QUEUED for row in self.alive)
        return f"{running} running, {waiting} waiting"


def overview(service: Service) -> Overview:
    """What the page shows now."""
    places = {place.study: place for place in service.queue()}
    alive = service.studies(state=ALIVE, limit=MOST_ALIVE).items
    over = service.studies(state=OVER, limit=MOST_OVER).items
    rows = [_row(study, places.get(study.id), service.progress(study.id)) for study in _sorted(alive, places)]
    return Overview(rows, [_row(study, None, None) for study in over], [_device(use) for use in service.devices()])


def _sorted(studies: Iterable[SubmittedStudy], places: dict[int, Position]) -> list[SubmittedStudy]:
    """What runs first, then what waits in its order."""

    def key(study: SubmittedStudy) -> tuple[int, int, int]:
        place = places.get(study.id)
        return _ORDER.index(study.state), place.position if place else 0, study.id

    return sorted(studies, key=key)


def _row(study: SubmittedStudy, place: Position | None, progress: Progress | None) -> StudyRow:
    return StudyRow(
        id=study.id,
        name=printable(study.name),
        user=study.user,
        state=study.state,
        priority=study.priority,
        place=None if place is None else place.position,
        reason=printable((place and place.reason) or study.reason or ""),
        start=_moment(None if place is None else place.start),
        done=_done(progress),
        best=_best(progress),
        left=_left(progress),
        has_report=study.run is not None,
    )


def _device(use: DeviceUse) -> DeviceRow:
    name = f"{use.device.kind.upper()} {use.device.index}"
    idle = use.study is not None and use.busy is not None and use.busy < 0.05
    return DeviceRow(name, use.study, use.user or "", use.busy, idle)


def _done(progress: Progress | None) -> str:
    if progress is None:
        return ""
    ended = sum(progress.trials.get(status, 0) for status in ("completed", "stopped", "failed"))
    return f"{ended} of {progress.wanted} trials" if progress.wanted else f"{ended} trials"


def _best(progress: Progress | None) -> str:
    return "" if progress is None or progress.best is None else f"{progress.metric} {short(progress.best)}"


def _left(progress: Progress | None) -> str:
    if progress is None or progress.left is None:
        return ""
    low, _, high = progress.left
    return f"{duration(low)} to {duration(high)}"


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%H:%M UTC, %d %b")
