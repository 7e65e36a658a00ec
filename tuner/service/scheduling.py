"""Which study gets which devices next, and why: a function of the queue, without input, output or memory.

Order: priority, then the device-hours of the study's user with a half-life of a day over the user's weight (as the
fair-share factor of batch systems, https://slurm.schedmd.com/fair_tree.html), then submission. The first study that
can't start yet gets a reservation; others start before it only if that doesn't delay it (EASY backfilling, Lifka 1995,
doi:10.1007/3-540-60153-8_35).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.service.model import EXTERNAL, Device, Position, State, SubmittedStudy

PAUSE_SECONDS = 15.0  # until a study that was asked to pause has freed its devices
KIND_WORDS = {"gpu": "GPU", "cpu": "CPU", EXTERNAL: "external slot"}
_WAITS = (State.QUEUED,)
_MAY_BE_PAUSED = (State.STARTING, State.RUNNING)
_FAILED = (State.REFUSED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class Share:
    """A user's recent use, in device-hours, and the weight of their share."""

    device_hours: float = 0.0
    weight: float = 1.0

    @property
    def used(self) -> float:
        """The use for sorting: less comes first."""
        return self.device_hours / self.weight


@dataclass(frozen=True)
class Foresight:
    """Known times: when running studies will end (seconds since 1970), and how long waiting ones take."""

    ends: Mapping[int, float] = field(default_factory=dict)
    lasts: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """A study that starts now, on these devices."""

    study: int
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Pause:
    """A study that makes room for one of a higher priority."""

    study: int
    room_for: int


@dataclass(frozen=True)
class Plan:
    """What to do now; `hopeless` studies can never start, each with a sentence that says why."""

    starts: tuple[Start, ...] = ()
    pauses: tuple[Pause, ...] = ()
    hopeless: tuple[tuple[int, str], ...] = ()
    positions: tuple[Position, ...] = ()


def plan(
    studies: Sequence[SubmittedStudy],
    devices: Sequence[Device],
    usage: Mapping[int, Share],
    now: float,
    foresight: Foresight | None = None,
) -> Plan:
    """The plan for all studies that wait, hold devices, or for whose end others wait; `usage` is by the user's id.

    The same arguments give the same plan, and a plan that was carried out gives an empty one.
    """
    known = {study.id: study for study in studies}
    waiting = sorted(
        (study for study in studies if study.state in _WAITS and not study.devices),
        key=lambda study: (-study.priority, usage.get(study.user_id, Share()).used, study.submitted, study.id),
    )
    hopeless = [(study.id, why) for study in waiting if (why := _hopeless(study, known)) is not None]
    lost = {study for study, _ in hopeless}
    line = [study for study in waiting if study.id not in lost]
    kinds = dict.fromkeys([*(device.kind for device in devices), *(study.demand.kind for study in line)])
    pools = {kind: _Pool(kind, devices, studies, now, foresight or Foresight()) for kind in kinds}
    reasons = {study.id: why for study in line if (why := _not_yet(study, known, now)) is not None}
    for kind, pool in pools.items():
        pool.fill([study for study in line if study.demand.kind == kind and study.id not in reasons])
        reasons |= pool.reasons
    starts = tuple(start for pool in pools.values() for start in pool.starts)
    left = [study for study in line if study.id not in {start.study for start in starts}]
    times = {study: time for pool in pools.values() for study, time in pool.foreseen(left, reasons).items()}
    return Plan(
        starts,
        tuple(pause for pool in pools.values() for pause in pool.pauses),
        tuple(hopeless),
        tuple(Position(study.id, place, reasons[study.id], times.get(study.id)) for place, study in enumerate(left, 1)),
    )


def devices_in_words(count: int, kind: str) -> str:
    """Such as "1 GPU", "4 CPUs" or "1 external slot"."""
    return f"{count} {KIND_WORDS.get(kind, kind)}{'' if count == 1 else 's'}"


class _Pool:
    """The devices of one kind, who has them, and what is decided about them."""

    def __init__(
        self,
        kind: str,
        devices: Iterable[Device],
        studies: Iterable[SubmittedStudy],
        now: float,
        foresight: Foresight,
    ) -> None:
        self._kind, self._now, self._foresight = kind, now, foresight
        holders = [study for study in studies if study.devices and study.devices[0].kind == kind]
        taken = {(device.kind, device.index) for study in holders for device in study.devices}
        mine = sorted((device for device in devices if device.kind == kind), key=lambda device: device.index)
        self._size = len(mine)
        self._free = [device for device in mine if (device.kind, device.index) not in taken]
        self._holders = {study.id: study for study in holders}
        self._releases = {study.id: (self._release(study), len(study.devices)) for study in holders}
        self._first: SubmittedStudy | None = None  # the first study that has to wait, which has a reservation
        self.starts: list[Start] = []
        self.pauses: list[Pause] = []
        self.reasons: dict[int, str] = {}

    def fill(self, line: Sequence[SubmittedStudy]) -> None:
        """Decide about the studies that could start, the first in line first."""
        for place, study in enumerate(line):
            if study.demand.least > self._size:
                has = devices_in_words(self._size, self._kind)
                self.reasons[study.id] = (
                    f"needs {devices_in_words(study.demand.least, self._kind)}; this server has {has}"
                )
                continue
            room = len(self._free) if self._first is None else self._room_before_first(study)
            if room >= study.demand.least:
                fair = len(self._free) // (len(line) - place)
                self._start(study, min(room, max(study.demand.least, min(study.demand.count, fair))))
            elif self._first is None:
                self._first = study
                self._make_room(study)
                self.reasons[study.id] = f"first in line: {self._lack(study)}"
            else:
                self.reasons[study.id] = self._why_behind(study, self._first.id)

    def foreseen(self, left: Iterable[SubmittedStudy], reasons: Mapping[int, str]) -> dict[int, float]:
        """When each of the remaining studies is expected to start, one after another, as far as this can be known."""
        free, found = len(self._free), dict[int, float]()
        ends = list(self._releases.values())
        heapq.heapify(ends)
        time = self._now
        for study in left:
            demand = study.demand
            if demand.kind != self._kind or demand.least > self._size or study.id not in self.reasons:
                continue
            while free < demand.least and ends:
                end, count = heapq.heappop(ends)
                time, free = max(time, end), free + count
            if free < demand.least or math.isinf(time):
                break
            found[study.id] = time
            free -= demand.least
            heapq.heappush(ends, (time + self._foresight.lasts.get(study.id, math.inf), demand.least))
        return found

    def _start(self, study: SubmittedStudy, count: int) -> None:
        given, self._free = tuple(self._free[:count]), self._free[count:]
        self.starts.append(Start(study.id, given))
        self._releases[study.id] = (self._now + self._foresight.lasts.get(study.id, math.inf), count)

    def _release(self, study: SubmittedStudy) -> float:
        """When a study's devices will be free."""
        if study.state in _MAY_BE_PAUSED:
            return max(self._now, self._foresight.ends.get(study.id, math.inf))
        if study.state is State.ENDING:
            return max(self._now, self._foresight.ends.get(study.id, self._now + PAUSE_SECONDS))
        return self._now + PAUSE_SECONDS  # it was asked to pause

    def _room_before_first(self, study: SubmittedStudy) -> int:
        """How many devices a study could have now without delaying the first in line."""
        if self._first is None:
            return len(self._free)
        start, spare = self._reservation(self._first)
        ends = self._now + self._foresight.lasts.get(study.id, math.inf)
        return len(self._free) if ends <= start and not math.isinf(start) else min(len(self._free), spare)

    def _reservation(self, first: SubmittedStudy) -> tuple[float, int]:
        """When the first in line will have its devices, and how many are left over then."""
        room, start = len(self._free), self._now
        for end, count in sorted(self._releases.values(), key=lambda release: release[0]):
            if room >= first.demand.least and end > start:
                break
            room, start = room + count, end
        return start, max(0, room - first.demand.least)

    def _make_room(self, study: SubmittedStudy) -> None:
        """Pause running studies of a lower priority, if that is enough: the least urgent and newest first.

        None of them ends anyway before it would have paused.
        """
        staying = [one for one in self._holders.values() if one.state in _MAY_BE_PAUSED and not self._ends_soon(one)]
        coming = sum(len(one.devices) for one in self._holders.values() if one not in staying)
        lacking = study.demand.least - len(self._free) - coming
        chosen: list[SubmittedStudy] = []
        for one in sorted(staying, key=lambda one: (one.priority, -(one.started or 0.0), -one.id)):
            if lacking <= 0:
                break
            if one.preemptible and one.priority < study.priority:
                chosen.append(one)
                lacking -= len(one.devices)
        if lacking > 0:
            return
        for one in chosen:
            self.pauses.append(Pause(one.id, study.id))
            self._releases[one.id] = (self._now + PAUSE_SECONDS, len(one.devices))

    def _ends_soon(self, study: SubmittedStudy) -> bool:
        """Whether it is expected to end before it would have paused; one that is overdue may take for ever."""
        return self._now <= self._foresight.ends.get(study.id, math.inf) <= self._now + PAUSE_SECONDS

    def _why_behind(self, study: SubmittedStudy, first: int) -> str:
        if study.demand.least > len(self._free):
            return f"behind study {first}, which is first in line; {self._lack(study)}"
        kept = devices_in_words(len(self._free), self._kind)
        return f"{kept} free and kept for study {first}, which is first in line"

    def _lack(self, study: SubmittedStudy) -> str:
        free = "none is" if not self._free else "1 is" if len(self._free) == 1 else f"{len(self._free)} are"
        return f"it needs {devices_in_words(study.demand.least, self._kind)}, and {free} free"


def _hopeless(study: SubmittedStudy, known: Mapping[int, SubmittedStudy]) -> str | None:
    """Why a study that comes after others will never start; None if it may."""
    for each in study.after:
        if each not in known or known[each].state in _FAILED:
            state = known[each].state if each in known else "deleted"
            return f"it was to run after study {each}, which is {state}; submit it again without that"
    return None


def _not_yet(study: SubmittedStudy, known: Mapping[int, SubmittedStudy], now: float) -> str | None:
    """Why a study can't start now even if devices are free; None if it could."""
    unfinished = [each for each in study.after if known[each].state is not State.FINISHED]
    if unfinished:
        names = ", ".join(map(str, unfinished))
        return f"runs after stud{'y' if len(unfinished) == 1 else 'ies'} {names}"
    if study.not_before > now:
        return f"its driver died; it starts again in {study.not_before - now:.0f} s"
    return None
