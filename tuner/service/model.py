"""The service's data model: studies and their states, users and their roles, devices, limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

from tuner.errors import StudyError, did_you_mean, shown
from tuner.results.wording import short
from tuner.service.errors import Code, ServiceError
from tuner.space.values import LARGEST_EXACT


class State(StrEnum):
    """Where a submitted study stands."""

    CHECKING = "checking"  # its file is loaded in a process with limits
    REFUSED = "refused"
    QUEUED = "queued"
    STARTING = "starting"  # a driver was started, and has no run folder yet
    RUNNING = "running"
    PAUSING = "pausing"  # the driver was asked to save and to end
    PAUSED = "paused"
    ENDING = "ending"  # was asked to finish or is concluding: winner, report
    FINISHED = "finished"
    FAILED = "failed"  # no trial succeeded, or its driver died too often
    CANCELLED = "cancelled"


OVER = frozenset({State.REFUSED, State.FINISHED, State.FAILED, State.CANCELLED})

# A change of state names the state it leaves; any other is refused.
MAY_BECOME: Mapping[State, frozenset[State]] = {
    State.CHECKING: frozenset({State.QUEUED, State.REFUSED, State.CANCELLED}),
    State.REFUSED: frozenset(),
    State.QUEUED: frozenset({State.STARTING, State.PAUSED, State.CANCELLED, State.FAILED}),
    State.STARTING: frozenset(
        {State.RUNNING, State.QUEUED, State.PAUSING, State.ENDING, State.FAILED, State.CANCELLED}
    ),
    State.RUNNING: frozenset(
        {State.PAUSING, State.ENDING, State.FINISHED, State.FAILED, State.CANCELLED, State.QUEUED}
    ),
    State.PAUSING: frozenset({State.PAUSED, State.QUEUED, State.ENDING, State.FINISHED, State.FAILED, State.CANCELLED}),
    State.PAUSED: frozenset({State.QUEUED, State.CANCELLED, State.ENDING}),
    State.ENDING: frozenset({State.FINISHED, State.FAILED, State.CANCELLED, State.QUEUED}),
    State.FINISHED: frozenset({State.QUEUED}),  # extended
    State.FAILED: frozenset({State.QUEUED}),  # retried
    State.CANCELLED: frozenset(),
}


class Role(StrEnum):
    """What a user may do; each role may do what those before it may."""

    VIEWER = "viewer"  # look
    WORKER = "worker"  # ask and tell
    SUBMITTER = "submitter"  # submit, and steer your own studies: running code as the server's user
    ADMIN = "admin"  # everybody's studies, users, devices


@dataclass(frozen=True)
class User:
    """A user of the service; `weight` is their share of the devices compared with other users.

    `most_devices` and `most_hours` are their caps.
    """

    id: int
    name: str
    role: Role
    weight: float = 1.0
    created: float = 0.0
    disabled: bool = False
    most_devices: int | None = None  # of a kind at once; None: no cap
    most_hours: float | None = None  # device-hours in seven days


EXTERNAL = "external"  # kind of the slots in which searches run whose trials workers ask for: they hold no device


@dataclass(frozen=True)
class Device:
    """A GPU, or a CPU of this machine, that drivers get; `index` is what CUDA or the kernel calls it."""

    kind: str  # "gpu" or "cpu"; EXTERNAL for a slot of a study whose trials run elsewhere
    index: int
    name: str = ""

    @property
    def key(self) -> str:
        """What the server and a driver call it: a GPU as in CUDA_VISIBLE_DEVICES, a CPU by its number."""
        return self.name or str(self.index)


@dataclass(frozen=True)
class Demand:
    """The devices that a study can use: up to `count` of a kind at once, and at least `least`.

    It gives devices back while it runs, and gets others, unless it is `fixed`.
    """

    kind: str = "cpu"
    count: int = 1
    least: int = 1
    fixed: bool = False


@dataclass(frozen=True)
class Submission:
    """What a client sends: a study file, the modules beside it that it imports, and how it should run.

    `files` are the contents by their path relative to the study file's folder; `main` is the study file's. `options`
    are those of `Study.with_options` and the driver's, by their names, as `tuner run` takes them.
    """

    main: str
    files: Mapping[str, bytes]
    priority: int = 0  # -10 to 10; above 0 for admins
    preemptible: bool = False  # paused for studies of a higher priority, goes on later
    devices: int | None = None  # this many at once; None: what the study's file says, at most all
    after: tuple[int, ...] = ()  # ids of studies that must have finished first
    options: Mapping[str, Any] = field(default_factory=dict)
    external: bool = False  # `main` is a study in JSON, whose trials workers ask for


OF_DRIVERS = ("concurrency", "wandb", "mlflow", "nice", "grace", "notify")  # options that `tuner run` takes, too
OF_SEARCHES = ("concurrency", "notify")  # of these, what a search takes whose trials workers ask for


def of_study(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that change the study."""
    return {name: value for name, value in options.items() if name not in OF_DRIVERS}


def of_driver(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that say how it is run."""
    return {name: value for name, value in options.items() if name in OF_DRIVERS}


@dataclass(frozen=True)
class SubmittedStudy:
    """A study of the queue, as its row says."""

    id: int
    name: str
    user: str
    state: State
    priority: int
    preemptible: bool
    demand: Demand
    after: tuple[int, ...]
    submitted: float  # seconds since 1970, UTC, as all times here
    changed: float  # when it came to this state
    started: float | None = None
    ended: float | None = None
    run: str | None = None  # its run folder, once it has one
    reason: str | None = None  # why it is refused, failed or paused, or waits: a sentence
    devices: tuple[Device, ...] = ()  # that its driver has now
    deaths: int = 0  # of its driver since it last made progress
    options: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the check found: see `checking`
    external: bool = False  # its trials run outside: ask and tell
    user_id: int = 0
    limits: Mapping[str, float] = field(default_factory=dict)  # of the budget, set since: for its next driver
    not_before: float = 0.0  # its next driver is not started earlier
    attempt: int = 0  # drivers started so far
    main: str = ""  # its study file, in its bundle
    room_for: int | None = None  # the study that it was paused for; it goes on by itself
    progress: Mapping[str, Any] = field(default_factory=dict)  # of `Progress`, as it was stored last


@dataclass(frozen=True)
class Position:
    """Where a waiting study stands in the queue, counted from 1, why it waits, and when it may start."""

    study: int
    position: int
    reason: str
    start: float | None  # seconds since 1970, predicted; None if nothing can be said


@dataclass(frozen=True)
class Progress:
    """How far the search of a study has come, from its events."""

    metric: str
    mode: str
    best: float | None  # of the metric
    best_trial: str | None
    trials: Mapping[str, int]  # by status
    epochs: int
    updated: float  # when its last event happened
    wanted: int | None = None  # trials in all, where a limit says so
    left: tuple[float, float, float] | None = None  # seconds that it still takes: 10 %, 50 % and 90 % of what may be
    still: str | None = None  # which running trials have reported nothing for long, in words


@dataclass(frozen=True)
class UsedDevices:
    """Device-hours that a study held since a time, and what became of it."""

    study: int
    name: str
    user: str
    kind: str  # "gpu" or "cpu"
    device_hours: float
    state: State


def place_of(cursor: str | None) -> int:
    """The number after which a page goes on, 0 for the first page. Raises ServiceError for what is no cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 16 and int(cursor) <= LARGEST_EXACT):
        raise ServiceError(Code.REFUSED, "a cursor is what the page before gave", shown(cursor), "leave it out")
    return int(cursor)


@dataclass(frozen=True)
class Change:
    """Something that viewers should read again: a study in a new state, or with new events ("progress")."""

    study: int
    kind: Literal["state", "progress", "priority", "deleted"]
    state: State


@dataclass(frozen=True)
class Limits:
    """How much one service takes, as `tuner serve --limit NAME=VALUE` says; each is tested on both sides."""

    study_file_bytes: int = 1_000_000
    bundle_bytes: int = 20_000_000
    bundle_files: int = 200
    body_bytes: int = 1_000_000  # of a request in JSON that is no submission
    checks_per_user: int = 200  # studies of a user that are being checked, or wait for that
    queued_per_user: int = 1_000
    queued: int = 10_000
    streams: int = 500
    streams_per_user: int = 20
    connections_per_address: int = 600  # a proxy's, that of all who come through it, has no limit
    requests_per_second: float = 20.0  # of one token or session
    burst: int = 100  # requests of one token at once
    failed_logins: int = 5  # a minute, at a name from an address; ten times as many from an address
    check_seconds: float = 60.0
    check_bytes: int = 2_000_000_000  # of memory
    page: int = 200  # entries
    external_at_once: int = 32  # searches whose trials workers ask for; each is a process of 100 MB or so
    free_bytes: int = 100_000_000  # of the disk: with less, no study is taken


@dataclass(frozen=True)
class DeviceUse:
    """A device and who has it; `busy` is its utilisation in the last seconds, 0 to 1, where it can be read."""

    device: Device
    study: int | None
    user: str | None
    trial: str | None
    busy: float | None


def outcome(state: str, progress: Mapping[str, Any]) -> str:
    """What a finished study found, from its `Progress` as a mapping; empty for others, and if nothing is known."""
    if state != State.FINISHED or progress.get("best") is None:
        return ""
    ended = sum(progress["trials"].values())
    return f"{progress['metric']} {short(progress['best'])}, trial {progress['best_trial']} of {ended}"


LIMIT_NAMES = tuple(field.name for field in fields(Limits))
_MOST = {"page": Limits.page, "bundle_files": 1_000}  # the most that requests may contain at any server
_FROM_ZERO = ("external_at_once", "free_bytes")


def limits_of(told: Iterable[str]) -> Limits:
    """The limits with those that were given, each as NAME=VALUE. Raises StudyError."""
    found: dict[str, float] = {}
    for each in told:
        name, _, text = each.partition("=")
        if name not in LIMIT_NAMES:
            raise StudyError(f"--limit needs the name of a limit, got {shown(name)}; {did_you_mean(name, LIMIT_NAMES)}")
        found[name] = _limit(name, text)
    return Limits(**found)  # type: ignore[arg-type]


def _limit(name: str, text: str) -> float:
    default = getattr(Limits, name)
    least, most = 0 if name in _FROM_ZERO else 1, _MOST.get(name, 10**15)
    try:
        value = type(default)(text.replace("_", ""))
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        kind = "number" if isinstance(default, float) else "whole number"
        upto = f" to {most:,}" if name in _MOST else ""
        rule = f"--limit {name} needs a {kind} from {least}{upto}"
        raise StudyError(f"{rule}, got {shown(text)}; its default is {default}")
    found: float = value
    return found
