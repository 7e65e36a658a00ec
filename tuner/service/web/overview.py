"""The content of the first page: studies with their place in the queue, devices, and the user."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from tuner.service.model import OVER, DeviceUse, Position, Progress, Role, State, SubmittedStudy, User, outcome
from tuner.service.rights import has
from tuner.service.service import Service
from tuner.text import printable

HELD = (State.STARTING, State.RUNNING, State.PAUSING, State.ENDING)  # as many as devices and slots allow
WAITING = (State.CHECKING, State.PAUSED)
_ORDER = (State.ENDING, State.RUNNING, State.PAUSING, State.STARTING, State.QUEUED, State.CHECKING, State.PAUSED)
MOST_ALIVE, MOST_OVER, MOST_HELD = 200, 20, 10_000


@dataclass(frozen=True)
class StudyRow:
    """A study as a line of the page."""

    id: int
    name: str
    user: str
    state: State
    priority: int
    changed: float  # when it came to this state
    external: bool
    has_run: bool
    steerable: bool  # by who asks
    place: Position | None
    progress: Progress | None
    running: tuple[str, ...]  # trials
    tags: list[str]
    why: str  # it waits, was refused or failed; of a finished one what it found


@dataclass(frozen=True)
class Overview:
    """The page's content at one moment."""

    time: float
    user: str
    role: Role
    alive: list[StudyRow]  # under way, or among the first in line
    queued: dict[str, int]  # studies in the queue, by user
    over: list[StudyRow]
    more_over: bool
    devices: list[DeviceUse]


def overview(service: Service, user: User, text: str = "") -> Overview:
    """What the page shows now to a user; of the studies that are over those with every word of `text`."""
    places, most = {place.study: place for place in service.queue()}, min(MOST_ALIVE, service.limits.page)
    first, queued = service.first_in_line(places, most, user)
    waiting = service.studies(state=WAITING, limit=most)
    alive = {study.id: study for study in (*first, *waiting, *service.studies(state=HELD, limit=MOST_HELD))}.values()
    most_over = min(MOST_OVER, service.limits.page)
    over = service.studies(state=OVER, limit=most_over + 1, text=text)
    return Overview(
        time.time(),
        user.name,
        user.role,
        rows(service, _sorted(alive, places, user), user, places),
        queued,
        rows(service, over[:most_over], user, {}),
        len(over) > most_over,
        service.devices(),
    )


def rows(
    service: Service,
    studies: Sequence[SubmittedStudy],
    user: User,
    places: Mapping[int, Position],
) -> list[StudyRow]:
    """The rows of studies, for the present user."""
    tags = service.tags([study.id for study in studies])
    return [_row(service, study, user, places.get(study.id), tags.get(study.id, [])) for study in studies]


def _row(service: Service, study: SubmittedStudy, user: User, place: Position | None, tags: Iterable[str]) -> StudyRow:
    followed = service.followed(study.id)
    progress = service.progress(study.id)
    return StudyRow(
        id=study.id,
        name=printable(study.name),
        user=study.user,
        state=study.state,
        priority=study.priority,
        changed=study.changed,
        external=study.external,
        has_run=study.run is not None,
        steerable=has(user, Role.ADMIN) or (has(user, Role.SUBMITTER) and study.user_id == user.id),
        place=place,
        progress=progress,
        running=() if followed is None else followed.running,
        tags=[printable(tag) for tag in tags],
        why=printable(_why(study, place, progress)),
    )


def _why(study: SubmittedStudy, place: Position | None, progress: Progress | None) -> str:
    found = "" if progress is None else outcome(study.state, asdict(progress))
    return found or (place and place.reason) or study.reason or ""


def _sorted(studies: Iterable[SubmittedStudy], places: dict[int, Position], user: User) -> list[SubmittedStudy]:
    """Running studies first, the user's own before others', then waiting ones in their order."""

    def key(study: SubmittedStudy) -> tuple[int, int, bool, int]:
        place = places.get(study.id)
        return _ORDER.index(study.state), place.position if place else 0, study.user_id != user.id, study.id

    return sorted(studies, key=key)
