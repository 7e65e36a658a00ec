"""The devices that a service lends a driver. They change while it searches, and only between trials.

Two files in the driver's folder, each written as a whole:

    allotment.json   by the server: a growing number, the devices that the driver may use, how many of them to keep
    held.json        by the driver: which number it has read, the devices that it may still use, whether that may change

A device of the allotment with that number which isn't in `held.json` has been given back: nothing of the driver's uses
it any more. Only then another study gets it. Whoever dies in between leaves files that say the same to the next one.
Before the first `held.json` and after the search, while it concludes, a driver's devices stay as they are.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tuner.machine.processes import confine
from tuner.storage.folder import LocalFolder

ALLOTMENT, HELD = "allotment.json", "held.json"
LOOK_SECONDS = 0.5
LARGEST_FILE = 1_000_000  # bytes


class Pins(Protocol):
    """Keeps what a driver has started to its devices."""

    def use(self, devices: Sequence[str]) -> None:
        """Use these devices and no others."""

    def unused(self, devices: Sequence[str], count: int) -> list[str]:
        """Up to `count` of the devices that no trial has, nor gets before the next `use`."""


class CpuPins:
    """CPUs, by affinity: trials that run are moved to those that are left, so that any of them can be given back."""

    def use(self, devices: Sequence[str]) -> None:
        """See `Pins`."""
        confine([int(device) for device in devices])

    def unused(self, devices: Sequence[str], count: int) -> list[str]:
        """See `Pins`."""
        return list(devices[len(devices) - count :])


class NoPins(CpuPins):
    """A part of a cluster, which itself decides where trials run: its devices have no names."""

    def use(self, devices: Sequence[str]) -> None:
        """See `Pins`."""


class Allotment:
    """The devices of one driver; `look` is called by its search several times a second.

    `each` is how many of them a trial holds, `most` how many there may ever be at once, `expected` how many there will
    be if nobody changes the search's concurrency.
    """

    def __init__(
        self, folder: LocalFolder, *, kind: str, each: float, most: int, expected: int, devices: Sequence[str]
    ) -> None:
        self.kind, self.most, self._expected = kind, most, expected
        self.pins: Pins = CpuPins() if kind == "cpu" else NoPins()
        self._folder, self._each, self._devices = folder, each, list(devices)
        self._keep, self._number = len(self._devices), 0
        self._unsaid, self._over, self._next = True, False, 0.0

    @classmethod
    def of(cls, task: Mapping[str, Any], folder: LocalFolder) -> Allotment | None:
        """That of a driver's task; None if its devices don't change."""
        return None if task.get("allotment") is None else cls(folder, **task["allotment"])

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it may use now."""
        return tuple(self._devices)

    @property
    def at_once(self) -> int:
        """How many trials may run at once, as soon as others have ended."""
        return self._fit(min(self._keep, len(self._devices)))

    @property
    def most_at_once(self) -> int:
        """How many trials may ever run at once."""
        return self._fit(self.most)

    @property
    def expected_at_once(self) -> int:
        """How many trials will run at once at most, if nobody changes the search's concurrency."""
        return self._fit(self._expected)

    def _fit(self, devices: int) -> int:
        return max(1, int(devices / self._each + 1e-9))

    def look(self, busy: int) -> bool:
        """Take what the server has changed, and give back what isn't to be kept, except for what the `busy` workers
        have. Returns whether some are still to be given back.
        """
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + LOOK_SECONDS
        self._take(self._told())
        needed = max(self._keep, math.ceil(busy * self._each - 1e-9))
        given = self.pins.unused(self._devices, max(0, len(self._devices) - needed))
        if given:
            self._devices = [device for device in self._devices if device not in given]
            self.pins.use(self._devices)
            self._unsaid = True
        self._say()
        return len(self._devices) > self._keep

    def close(self) -> None:
        """The search is over: the devices that it has are kept by what concludes it."""
        self._over = self._unsaid = True
        self._say()

    def _say(self) -> None:
        if self._unsaid:
            told = {"number": self._number, "devices": self._devices, "over": self._over}
            with suppress(OSError):  # a full disk: it is said at the next look, and nobody has the devices until then
                self._folder.write(HELD, json.dumps(told).encode())
                self._unsaid = False

    def _take(self, told: Mapping[str, Any] | None) -> None:
        if told is not None and told["number"] != self._number:
            self._number, self._keep, self._unsaid = told["number"], told["keep"], True
            if self._devices != told["devices"]:
                self._devices = list(told["devices"])
                self.pins.use(self._devices)

    def _told(self) -> Mapping[str, Any] | None:
        try:
            told: Mapping[str, Any] = json.loads(self._folder.read_at_most(ALLOTMENT, LARGEST_FILE))
        except (OSError, ValueError):  # there is none yet
            return None
        return told
