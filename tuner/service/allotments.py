"""Changes the devices of drivers that run; `tuner.lifecycle.allotment` is the driver's side of the two files.

The database says who has a device. A study's row gets a device before its driver is told of it, and loses one only
after its driver has said that it no longer uses it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.service.executors.driver_reports import read
from tuner.service.executors.executor import trials_on
from tuner.service.model import Device
from tuner.storage.folder import LocalFolder

ALLOTMENT, HELD = "allotment.json", "held.json"


@dataclass(frozen=True)
class Allotment:
    """What a driver was told last: devices that it may use, by their keys, and how many of them it should keep.

    `each` is how many a trial holds, `most` how many its Ray can use. A search that is `over` takes no other devices,
    and has those that it `held`.
    """

    number: int
    devices: tuple[str, ...]
    keep: int
    each: float
    most: int
    over: bool
    held: Mapping[str, Any]

    @property
    def at_once(self) -> int:
        """How many trials may run at once."""
        return trials_on(min(self.keep, len(self.devices)), self.each)


def allotment_of(folder: Path) -> Allotment | None:
    """The allotment of a driver; None if its devices don't change, or it has not begun."""
    begun, held = (read(folder, "task.json") or {}).get("allotment"), read(folder, HELD)
    if begun is None or held is None:
        return None
    told = read(folder, ALLOTMENT) or {}
    devices = tuple(told.get("devices") or begun["devices"])
    number, keep, over = told.get("number", 0), told.get("keep", len(devices)), held.get("over") is True
    return Allotment(int(number), devices, int(keep), float(begun["each"]), int(begun["most"]), over, held)


def given_back(told: Allotment, has: tuple[Device, ...]) -> tuple[Device, ...]:
    """The devices among those that a study `has` which its driver doesn't use, nor will."""
    held = told.held.get("devices")
    if not isinstance(held, list) or not (told.over or told.held.get("number") == told.number):
        return ()
    return tuple(device for device in has if device.key not in held and (told.over or device.key in told.devices))


def tell(folder: Path, before: Allotment, devices: tuple[Device, ...], keep: int) -> None:
    """Tell a driver which devices it may use now, and how many it should keep, if that has changed."""
    keys = tuple(device.key for device in devices)
    if (keys, keep) != (before.devices, before.keep):
        told = {"number": before.number + 1, "devices": keys, "keep": keep}
        LocalFolder(folder).write(ALLOTMENT, json.dumps(told).encode())
