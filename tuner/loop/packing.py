"""How many trials share a device, and to which device a trial goes; both follow only from the run's events.

A trial may start on a device that has memory for it beside the trials there. The number of trials at once is found by
trying: one at first, then twice as many as long as all together report more images per second. Alike configurations are
compared, each in its own epochs. If memory runs out, the number is lowered by one for good. Because only events are
used, a search that goes on after an interruption knows all that the earlier driver knew.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.history.events import Event, finite
from tuner.loop.throughput import Rate, Stay, trials_at_once
from tuner.trial import MemoryEstimate

RATES_KEPT = 100  # the newest ones, for each number of trials at once
MARGIN = 1.1  # factor on memory, for fragmentation: gaps between an allocator's blocks
CPU = "cpu"  # name of the device that stands for all CPUs of a machine
NO_MPS, UNKNOWN, AT_ONCE = "no_mps", "memory_unknown", "at_once_"  # codes of notices; the number follows the last one
CUT_SHORT = 1.5  # factor: a trial that ran out of memory would have needed this many times what it took


@dataclass(frozen=True)
class Device:
    """A device that trials share: a GPU, or all CPUs of the machine.

    Attributes:
        name: a GPU's UUID; "cpu"
        model: its name for people; devices of the same model are equally fast
        total_bytes: memory that it has
        memory_bytes: memory that its trials together may take
        alone_bytes: the most memory that a trial alone on it can have; None if that is `memory_bytes`
        most: the most trials at once that are allowed
        at_first: trials at once while their speed is unknown
        process_bytes: what a trial's process takes in addition to the estimate, such as a CUDA context
        reports_process: whether the peak that trials report includes `process_bytes`
        overlaps: whether several processes compute at the same time, as with MPS, and not in turns
    """

    name: str
    model: str
    total_bytes: float
    memory_bytes: float
    most: int
    at_first: int = 1
    process_bytes: float = 0.0
    reports_process: bool = False
    overlaps: bool = True
    alone_bytes: float | None = None

    @property
    def largest_trial(self) -> float:
        """Bytes of the largest trial that could run on it, its process included."""
        return self.memory_bytes if self.alone_bytes is None else self.alone_bytes

    def named(self, article: str) -> str:
        """For sentences, as "the H100", or "this machine" where it is all of its CPUs."""
        return "this machine" if self.name == CPU else f"{article} {self.model}"

    def record(self) -> dict[str, Any]:
        """As plain data, for the driver's first event."""
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """Where a trial goes: the device, its share of the device's memory, and what is recorded about it in the events."""

    device: Device
    share: float
    predicted_bytes: float | None
    alike: str

    @property
    def fields(self) -> dict[str, Any]:
        """Further fields of the event with which the trial starts."""
        return {"device": self.device.name, "predicted_bytes": self.predicted_bytes, "alike": self.alike}


@dataclass(frozen=True)
class Wait:
    """Nothing can start now: the trial's memory isn't known yet, or there is no room beside those that run."""


@dataclass(frozen=True)
class Refusal:
    """A configuration that needs more memory than a whole device has, even with one image at a time."""

    least_bytes: int
    device: Device

    def __str__(self) -> str:
        """For the user."""
        there, device = self.device.largest_trial, self.device.named("the")
        return (
            f"a configuration needs a device that holds one image at a time, got {self.least_bytes / 1e9:.1f} GB for "
            f"the {there / 1e9:.1f} GB of {device}; such configurations are skipped; leave them out of the space to "
            "search faster"
        )


@dataclass
class Packing:
    """Follows a run's events by `apply`, and says where another trial may start.

    `devices` are the present ones; events about other devices count if those are similar (`_kinds`).

    Long because what is on a device and what may join it are read and changed together, by one event after another.
    """

    devices: Sequence[Device]
    unknown: str = ""  # why the memory of some trials isn't known
    _running: dict[str, Stay] = field(init=False, default_factory=dict)
    _trial_seconds: dict[str, tuple[float, float]] = field(init=False, default_factory=dict)  # by device
    _rates: dict[int, deque[Rate]] = field(init=False, default_factory=dict)  # by number of trials at once
    _peaks: dict[str, float] = field(init=False, default_factory=dict)  # memory to reserve for similar trials
    _retries: dict[str, float] = field(init=False, default_factory=dict)
    _losses: dict[str, int] = field(init=False, default_factory=dict)  # of trials whose memory ran out
    _correction: float = field(init=False, default=1.0)
    _ceiling: float = field(init=False, default=math.inf)
    _known: Any = field(init=False, default=None)  # the devices that evidence is of
    _told: set[str] = field(init=False, default_factory=set)  # codes of notices
    _told_number: int | None = field(init=False, default=None)
    _found: int | None = field(init=False, default=None, compare=False)  # None if rates have come since

    def apply(self, event: Event) -> None:
        """Take one event of the run, also one of an earlier driver."""
        handler = getattr(self, "_on_" + event["event"], None)
        if handler is not None:
            handler(event)

    # What to do

    @property
    def at_once(self) -> int:
        """Trials that one device may have now, unless it is allowed fewer."""
        if self._found is None:
            most, overlaps = max(device.most for device in self.devices), all(d.overlaps for d in self.devices)
            self._found = trials_at_once(self._rates, self.devices[0].at_first, most, overlaps=overlaps)
        return int(max(1, min(self._found, self._ceiling)))

    def place(self, estimate: MemoryEstimate, trial: str = "") -> Place | None:
        """Where a trial that needs this much memory may start: the device with most room; None if it has to wait."""
        free = [device for device in self.devices if self._has_room(device, self._need(device, estimate, trial))]
        if not free:
            return None
        device = max(free, key=self._free_bytes)  # the first of equals
        need, fair = self._need(device, estimate, trial), device.memory_bytes / self.at_once
        share = min(1.0, max(need, fair) / device.total_bytes) if self.at_once > 1 else 1.0
        return Place(device, share, estimate.peak_bytes, estimate.alike)

    @property
    def has_room(self) -> bool:
        """Whether a trial as small as the smallest that runs on some device may start there.

        The next trial is chosen only then: results that arrive before there is room may change the choice.
        """
        return any(self._has_room(device, self._smallest_need(device)) for device in self.devices)

    def fits(self, estimate: MemoryEstimate) -> bool:
        """Whether a trial could run alone on a device, one image at a time; True if that isn't known."""
        least = estimate.least_bytes
        return least is None or any(device.process_bytes + least <= device.largest_trial for device in self.devices)

    def shares(self, trial: str) -> bool:
        """Whether the trial runs beside others on its device."""
        stay = self._running.get(trial)
        return stay is not None and self._count(stay.device) > 1

    @property
    def largest(self) -> Device:
        """The device with most memory."""
        return max(self.devices, key=lambda device: device.largest_trial)

    @property
    def _shared(self) -> bool:
        """Whether a device has several trials now."""
        return any(self._count(device.name) > 1 for device in self.devices)

    def news(self) -> tuple[str, str] | None:
        """A notice for the user and its code, which keeps it from being repeated; None if there is none."""
        device, number = self.devices[0], self.at_once
        if NO_MPS not in self._told and self._shared and not device.overlaps:
            return (
                "several trials share a GPU and take turns on it, which is hardly faster than one after another; their "
                "work would overlap under NVIDIA's MPS, which isn't installed here or doesn't work",
                NO_MPS,
            )
        if self.unknown and UNKNOWN not in self._told:
            return (
                f"a trial has {device.named('a')} to itself until a similar one has been measured: {self.unknown}",
                UNKNOWN,
            )
        if number != (self._told_number or device.at_first):
            why = ", as memory ran out with more" if number == self._ceiling else ""
            return f"trials at once on {device.named('each')} from now on: {number}{why}", f"{AT_ONCE}{number}"
        return None

    def _has_room(self, device: Device, need: float) -> bool:
        count = self._count(device.name)
        return count == 0 or (count < min(self.at_once, device.most) and need <= self._free_bytes(device))

    def _free_bytes(self, device: Device) -> float:
        return device.memory_bytes - sum(self._needs(device))

    def _smallest_need(self, device: Device) -> float:
        return min(self._needs(device), default=0.0)

    def _needs(self, device: Device) -> list[float]:
        """The memory that is reserved for each trial that runs on a device."""
        return [
            self._need(device, MemoryEstimate(_whole(stay.predicted_bytes), alike=stay.alike), trial)
            for trial, stay in self._running.items()
            if stay.device == device.name
        ]

    def _need(self, device: Device, estimate: MemoryEstimate, trial: str) -> float:
        """The memory reserved for a trial: what similar ones took, or the corrected estimate, or everything if it is
        unknown.

        Twice as much if it ran out of memory beside others, all of the device if that happened again.
        """
        losses = self._losses.get(trial, 0)
        if losses > 1:
            return device.memory_bytes
        if estimate.alike in self._peaks and estimate.alike:
            need = self._peaks[estimate.alike]
        elif estimate.peak_bytes is None:
            return device.memory_bytes
        else:
            need = (device.process_bytes + estimate.peak_bytes) * self._correction * MARGIN
        return min(device.memory_bytes, need * 2.0**losses)

    def _count(self, device: str) -> int:
        return sum(stay.device == device for stay in self._running.values())

    # What happened

    def _on_study_started(self, event: Event) -> None:
        self._running.clear()
        self._trial_seconds.clear()
        devices = event.get("devices")
        if devices is not None and _kinds(devices) != self._known:
            self._rates.clear()
            self._found = None
            self._peaks.clear()
            self._correction, self._ceiling, self._known = 1.0, math.inf, _kinds(devices)

    _on_study_resumed = _on_study_started

    def _on_notice(self, event: Event) -> None:
        code = event.get("code") or ""
        self._told.add(code)
        if code.startswith(AT_ONCE) and code.removeprefix(AT_ONCE).isdecimal():
            self._told_number = int(code.removeprefix(AT_ONCE))

    def _on_trial_started(self, event: Event) -> None:
        self._leave(event)
        device = event.get("device")
        if device is not None:
            before = self._add_up(device, event["time"])
            stay = Stay(device, event.get("alike", ""), event.get("predicted_bytes"), event["time"], before)
            self._running[event["trial"]] = stay
            stay.begin_epoch(event["time"], before, self._count(device))
            self._look_at_number(device)

    _on_trial_resumed = _on_trial_started

    def _on_epoch_reported(self, event: Event) -> None:
        stay = self._running.get(event["trial"])
        if stay is None:
            return
        ran_out = self._ran_out(event["trial"], event["metrics"].get("oom_retries"))
        told = event["metrics"]
        self._compare_memory(stay, told.get("memory_peak_bytes"), told.get("memory_reserved_bytes"), cut_short=ran_out)
        if ran_out:
            self._shrink(stay)
        self._note_rate(stay, event)

    def _on_trial_lost(self, event: Event) -> None:
        stay = self._running.get(event["trial"])
        if stay is not None and event.get("cause") == "out_of_memory":
            self._shrink(stay)
            self._losses[event["trial"]] = self._losses.get(event["trial"], 0) + 1
        self._leave(event)

    _on_trial_ended = _on_trial_lost

    def _on_trial_paused(self, event: Event) -> None:
        self._leave(event)

    def _on_trial_retried(self, event: Event) -> None:
        """A trial that ran out of memory although no other trial was beside it now gets all of a device."""
        if event.get("cause") == "out_of_memory" and not event.get("used"):
            self._losses[event["trial"]] = max(2, self._losses.get(event["trial"], 0))
        self._leave(event)

    def _leave(self, event: Event) -> None:
        stay = self._running.get(event["trial"])
        if stay is not None:
            self._add_up(stay.device, event["time"])
            del self._running[event["trial"]]
            self._look_at_number(stay.device)

    def _look_at_number(self, device: str) -> None:
        count = self._count(device)
        for stay in self._running.values():
            if stay.device == device:
                stay.least, stay.most = min(stay.least, count), max(stay.most, count)

    def _add_up(self, device: str, now: float) -> float:
        """Seconds of all trials on a device together, up to now."""
        seconds, until = self._trial_seconds.get(device, (0.0, now))
        seconds += self._count(device) * max(0.0, now - until)
        self._trial_seconds[device] = seconds, now
        return seconds

    def _note_rate(self, stay: Stay, event: Event) -> None:
        """How fast an epoch was, and with how many trials on its device."""
        seconds, now = self._add_up(stay.device, event["time"]), event["time"]
        rate, busy = event["metrics"].get("images_per_second"), event["metrics"].get("device_utilisation")
        at_once = stay.at_once(now, seconds)
        if at_once is not None and finite(rate) and rate > 0:
            unit = stay.alike, stay.epochs == 0
            rates = self._rates.setdefault(at_once, deque(maxlen=RATES_KEPT))
            rates.append(Rate(unit, rate, busy if finite(busy) else math.nan))
            self._found = None
        stay.begin_epoch(now, seconds, self._count(stay.device))
        stay.epochs += 1

    def _shrink(self, stay: Stay) -> None:
        """Memory ran out on a device: fewer trials from now on, if there were several."""
        count = self._count(stay.device)
        if count > 1:
            self._ceiling = min(self._ceiling, count - 1)

    def _ran_out(self, trial: str, retries: Any) -> bool:
        """Whether steps of the trial had to be repeated since its last report because memory ran out."""
        before = self._retries.get(trial, 0)
        self._retries[trial] = retries if finite(retries) else before
        return self._retries[trial] > before

    def _compare_memory(self, stay: Stay, reported: Any, reserved: Any, *, cut_short: bool) -> None:
        """Learn from a trial's peak how much memory similar trials take, and how much too low estimates are.

        Memory that torch keeps on a GPU beyond the peak is not free for other trials, but it doesn't change other
        estimates.
        """
        if not finite(reported):
            return
        device = next((device for device in self.devices if device.name == stay.device), self.devices[0])
        process = 0 if device.reports_process else device.process_bytes
        peak = reported * (CUT_SHORT if cut_short else 1) + process
        kept = reserved + process if finite(reserved) else 0.0
        self._peaks[stay.alike] = max(peak * MARGIN, kept, self._peaks.get(stay.alike, 0.0))
        if stay.predicted_bytes is not None:
            self._correction = max(self._correction, peak / (device.process_bytes + stay.predicted_bytes))


@dataclass
class Admission:
    """Says of one trial after another whether it may start now, and where.

    `estimate` says what memory a configuration takes, None while that isn't known yet.
    """

    packing: Packing
    estimate: Callable[[dict[str, Any]], MemoryEstimate | None]

    def of(self, trial: str, config: dict[str, Any], *, new: bool) -> Place | Wait | Refusal:
        """Where a trial goes, or why it can't start; a trial that has trained before is never refused."""
        estimate = self.estimate(config)
        if estimate is None:
            return Wait()
        self.packing.unknown = self.packing.unknown or estimate.unknown
        if new and estimate.least_bytes is not None and not self.packing.fits(estimate):
            return Refusal(estimate.least_bytes, self.packing.largest)
        return self.packing.place(estimate, trial) or Wait()


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _kinds(devices: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """The properties that another device must share with these, so that measurements there count here."""
    return sorted({(device["model"], device["overlaps"]) for device in devices})
