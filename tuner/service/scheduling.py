"""Which study gets which devices next, and why: a function of the queue, without input, output or memory.

Order: priority, then the device-hours of the study's user with a half-life of a day over the user's weight (as the
fair-share factor of batch systems, https://slurm.schedmd.com/fair_tree.html), then submission. The first study that
can't start yet gets a reservation; others start before it only if that doesn't delay it (EASY backfilling, Lifka 1995,
doi:10.1007/3-540-60153-8_35).

A study is elastic unless its devices are fixed: while it runs, it gives devices back and gets others. Users share the
devices by weighted max-min fairness (Bertsekas and Gallager 1992, Data Networks, 6.5.2): each next device goes to the
user who has least for their weight, and of this user's studies to the one that has least.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.service.model import EXTERNAL, Device, Position, State, SubmittedStudy

PAUSE_SECONDS = 15.0  # until a study that was asked to pause has freed its devices
KIND_WORDS = {"gpu": "GPU", "cpu": "CPU", EXTERNAL: "external slot"}
_WAITS = (State.QUEUED,)
_MAY_BE_PAUSED = (State.STARTING, State.RUNNING)
_FAILED = (State.REFUSED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class Share:
    """A user's recent use, in device-hours, and the weight of their share.

    `most` devices of a kind at once and `most_hours` device-hours in a week are the user's caps, None for none;
    `week_hours` are those of the last week.
    """

    device_hours: float = 0.0
    weight: float = 1.0
    most: int | None = None
    most_hours: float | None = None
    week_hours: float = 0.0

    @property
    def used(self) -> float:
        """The use for sorting: less comes first."""
        return self.device_hours / self.weight

    @property
    def cap(self) -> float:
        """How many devices of a kind the user's studies may have together now."""
        return 0 if self._spent else math.inf if self.most is None else self.most

    @property
    def _spent(self) -> bool:
        return self.most_hours is not None and self.week_hours >= self.most_hours

    def why_capped(self, user: str, kind: str) -> str:
        """Why a study of the user waits although devices may be free."""
        if self._spent:
            got = f"{user} has used {self.week_hours:.1f} device-hours in the last 7 days"
            return (
                f"{got}, and may use {self.most_hours or 0:g}; an admin changes this: tuner user cap {user} --hours N"
            )
        most = devices_in_words(self.most or 0, kind)
        return f"{user} may have {most} at once; an admin changes this: tuner user cap {user} --devices N"


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
class Resize:
    """A running study that gets `more` devices now, or gives devices back between trials until it has `keep`."""

    study: int
    keep: int
    more: tuple[Device, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What to do now; `hopeless` studies can never start, each with a sentence that says why."""

    starts: tuple[Start, ...] = ()
    resizes: tuple[Resize, ...] = ()
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

    The same arguments give the same plan. Plans that are carried out one after another soon end in one that leaves
    nothing to do, and none takes back what one before it gave; a study that gives devices back is named until it has
    done so.
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
    pools = {kind: _Pool(kind, devices, studies, usage, now, foresight or Foresight()) for kind in kinds}
    reasons = {study.id: why for study in line if (why := _not_yet(study, known, now)) is not None}
    for kind, pool in pools.items():
        pool.fill([study for study in line if study.demand.kind == kind and study.id not in reasons])
        reasons |= pool.reasons
    starts = tuple(start for pool in pools.values() for start in pool.starts)
    left = [study for study in line if study.id not in {start.study for start in starts}]
    times = {study: time for pool in pools.values() for study, time in pool.foreseen(left, reasons).items()}
    return Plan(
        starts,
        tuple(resize for pool in pools.values() for resize in pool.resizes),
        tuple(pause for pool in pools.values() for pause in pool.pauses),
        tuple(hopeless),
        tuple(Position(study.id, place, reasons[study.id], times.get(study.id)) for place, study in enumerate(left, 1)),
    )


def devices_in_words(count: int, kind: str) -> str:
    """Such as "1 GPU", "4 CPUs" or "1 external slot"."""
    return f"{count} {KIND_WORDS.get(kind, kind)}{'' if count == 1 else 's'}"


@dataclass(frozen=True, order=True)
class _Turn:
    """A study that may get more devices; of a user's the smallest `order` comes first."""

    order: tuple[float, ...]
    study: SubmittedStudy = field(compare=False)


class _Pool:
    """The devices of one kind, who has them, and what is decided about them."""

    def __init__(
        self,
        kind: str,
        devices: Iterable[Device],
        studies: Iterable[SubmittedStudy],
        usage: Mapping[int, Share],
        now: float,
        foresight: Foresight,
    ) -> None:
        self._kind, self._usage, self._now, self._foresight = kind, usage, now, foresight
        holders = [study for study in studies if study.devices and study.devices[0].kind == kind]
        taken = {(device.kind, device.index) for study in holders for device in study.devices}
        mine = sorted((device for device in devices if device.kind == kind), key=lambda device: device.index)
        self._size = len(mine)
        self._free = [device for device in mine if (device.kind, device.index) not in taken]
        self._holders = {study.id: study for study in sorted(holders, key=lambda study: study.id)}
        self._elastic = [
            study for study in self._holders.values() if not study.demand.fixed and study.state in _MAY_BE_PAUSED
        ]
        self._of_users = Counter[int]()  # devices that their studies have now
        for study in holders:
            self._of_users[study.user_id] += len(study.devices)
        self._coming: dict[int, int] = {}  # by study: devices that it gives back between trials
        self._line: list[SubmittedStudy] = []  # those that could start
        self._promised = 0  # devices that elastic studies are to get before those behind the first that doesn't fit
        self._releases = {study.id: (self._release(study), len(study.devices)) for study in holders}
        self._first: SubmittedStudy | None = None  # the first study that has to wait, which has a reservation
        self._first_has_share = False
        self.starts: list[Start] = []
        self.resizes: list[Resize] = []
        self.pauses: list[Pause] = []
        self.reasons: dict[int, str] = {}

    def fill(self, line: Sequence[SubmittedStudy]) -> None:
        """Decide about the studies that could start, the first in line first, and about those that are elastic."""
        possible = [study for study in line if study.demand.least <= self._size]
        for study in line:
            if study.demand.least > self._size:
                has = devices_in_words(self._size, self._kind)
                needs = devices_in_words(study.demand.least, self._kind)
                self.reasons[study.id] = f"needs {needs}; this server has {has}"
        self._line = list(self._nearest(possible))
        fair, self._promised = self._fair_shares()
        self._coming = {
            study.id: len(study.devices) - fair[study.id]
            for study in self._elastic
            if fair[study.id] < len(study.devices)
        }
        for study in sorted(possible, key=lambda study: study.id not in fair):
            self._decide(study, fair.get(study.id))
        paused = {pause.study for pause in self.pauses}
        for study in sorted(self._elastic, key=lambda study: -study.priority):
            if study.id not in paused:
                self._resize(study, fair[study.id])

    def _decide(self, study: SubmittedStudy, fair: int | None) -> None:
        """Start a study if that is possible now, or say why it isn't; `fair` if it has a share of the devices."""
        least, capped = study.demand.least, self._cap(study) - self._of_users[study.user_id]
        if least > capped:
            self.reasons[study.id] = self._share(study).why_capped(study.user, self._kind)
            return
        kept = self._promised if fair is None else 0
        room = len(self._free) if self._first is None else self._room_before_first(study)
        room = min(room, len(self._free) - kept)
        if room >= least:
            self._start(study, _whole_trials(min(room, capped), max(least, fair or 0), least))
        elif self._first is None:
            self._first, self._first_has_share = study, fair is not None
            self._make_room(study, len(self._free) - kept)
            self.reasons[study.id] = f"first in line: {self._lack(study)}"
        else:
            self.reasons[study.id] = self._why_behind(study, self._first.id)

    def _fair_shares(self, without: Sequence[SubmittedStudy] = ()) -> tuple[dict[int, int], int]:
        """How many devices each elastic study should have, and each waiting one that should be among them.

        No study is left with less than it needs. The first waiting one that doesn't fit ends this for those behind it;
        the number is how many more devices elastic studies are to get before that. It is as if studies that run, and
        `without` which it is asked, had freed their devices.
        """
        elastic = [study for study in self._elastic if study not in without]
        found = {study.id: study.demand.least for study in elastic}
        spare = {study.id: len(study.devices) - study.demand.least for study in elastic}
        room = len(self._free) + sum(spare.values()) + sum(len(study.devices) for study in without)
        of_users = Counter(self._of_users)
        turns: dict[int, list[_Turn]] = {}  # by user: the studies that may get more, who has least first
        for study in elastic:
            of_users[study.user_id] -= spare[study.id]
        for study in without:
            of_users[study.user_id] -= len(study.devices)
        for study in (*elastic, *self._line):
            turns.setdefault(study.user_id, []).append(self._turn(study, found.get(study.id, 0)))
        for each in turns.values():
            heapq.heapify(each)
        waits, promised = True, 0  # until the first doesn't fit
        while room > 0 and turns:
            user = min(turns, key=lambda user: self._claim(turns[user][0], of_users))
            study, has = turns[user][0].study, found.get(turns[user][0].study.id, 0)
            takes, fits = min(study.demand.least, study.demand.count - has), waits or has > 0
            if fits and takes > room:
                waits = waits and has > 0
            elif fits and 0 < takes <= self._cap(study) - of_users[user]:
                found[study.id] = has + takes
                of_users[user] += takes
                room -= takes
                promised += takes * (waits and 0 < len(study.devices) < has + takes)
                heapq.heapreplace(turns[user], self._turn(study, has + takes))
                continue
            heapq.heappop(turns[user])
            if not turns[user]:
                del turns[user]
        return found, promised

    def _nearest(self, line: Iterable[SubmittedStudy]) -> Iterator[SubmittedStudy]:
        """Of each user as many studies as could start at most."""
        seen = Counter[int]()
        for study in line:
            seen[study.user_id] += 1
            if seen[study.user_id] <= min(self._size, self._cap(study)):
                yield study

    def _share(self, study: SubmittedStudy) -> Share:
        return self._usage.get(study.user_id, Share())

    def _cap(self, study: SubmittedStudy) -> float:
        """How many devices its user may have; slots are no devices."""
        return math.inf if self._kind == EXTERNAL else self._share(study).cap

    def _turn(self, study: SubmittedStudy, has: int) -> _Turn:
        used = self._share(study).used
        return _Turn((-study.priority, has, has >= len(study.devices), used, study.submitted, study.id), study)

    def _claim(self, turn: _Turn, of_users: Mapping[int, int]) -> tuple[float, ...]:
        """For sorting: which user's turn it is. Of equals it is that of whoever has the device already."""
        priority, *rest = turn.order
        return (priority, of_users[turn.study.user_id] / self._share(turn.study).weight, *rest)

    def _resize(self, study: SubmittedStudy, fair: int) -> None:
        has, room = len(study.devices), self._room_to_grow(study)
        more = _whole_trials(
            min(room, self._cap(study) - self._of_users[study.user_id]), max(0, fair - has), study.demand.least
        )
        if more > 0 or fair < has:
            given, self._free = tuple(self._free[:more]), self._free[more:]
            self._of_users[study.user_id] += len(given)
            end, count = self._releases[study.id]
            self._releases[study.id] = (end, count + len(given))
            self.resizes.append(Resize(study.id, min(fair, has + len(given)), given))

    def _room_to_grow(self, study: SubmittedStudy) -> int:
        """How many devices a running study could get now.

        The first in line, if it has no share because it doesn't fit yet, isn't delayed as far as it is known when it
        will fit; else the running study gives devices back then.
        """
        if self._first is None or self._first_has_share or len(self._free) >= self._first.demand.least:
            return len(self._free)
        start, spare = self._reservation(self._first)
        return len(self._free) if self._releases[study.id][0] <= start else min(len(self._free), spare)

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
        self._of_users[study.user_id] += count
        self._line = [one for one in self._line if one is not study]
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
        coming = self._coming if self._first_has_share else {}  # else it is for others
        soon = [(self._now + PAUSE_SECONDS, count) for count in coming.values()]
        late = [(end, count - self._coming.get(study, 0)) for study, (end, count) in self._releases.items()]
        for end, count in sorted([*soon, *late], key=lambda release: release[0]):
            if room >= first.demand.least and end > start:
                break
            room, start = room + count, end
        return start, max(0, room - first.demand.least)

    def _make_room(self, study: SubmittedStudy, free: int) -> None:
        """Pause running studies of a lower priority, if the study then starts: the least urgent and newest first.

        `free` devices are not for others. None of those paused ends anyway before it would have paused. What they give
        back between trials comes too late.
        """
        staying = [one for one in self._holders.values() if one.state in _MAY_BE_PAUSED and not self._ends_soon(one)]
        coming = sum(len(one.devices) for one in self._holders.values() if one not in staying)
        lacking = study.demand.least - free - coming
        chosen: list[SubmittedStudy] = []
        for one in sorted(staying, key=lambda one: (one.priority, -(one.started or 0.0), -one.id)):
            if lacking <= 0:
                break
            if one.preemptible and one.priority < study.priority:
                chosen.append(one)
                lacking -= len(one.devices)
        if not chosen or lacking > 0 or study.id not in self._fair_shares(chosen)[0]:
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
        gives = "".join(
            f"; study {each} gives {devices_in_words(count, self._kind)} back as its trials end"
            for each, count in self._coming.items()
        )
        return f"it needs {devices_in_words(study.demand.least, self._kind)}, and {free} free{gives}"


def _whole_trials(possible: float, wanted: int, each: int) -> int:
    """The devices that are wanted or, where these are not possible, as many as trials of `each` can use."""
    return wanted if wanted <= possible else int(max(0, possible) // each) * each


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
