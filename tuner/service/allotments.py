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
from tuner.service.model import Device
from tuner.storage.folder import LocalFolder

ALLOTMENT, HELD = "allotment.json", "held.json"


@dataclass(frozen=True)
class Allotment:
    """What a driver was told last: devices that it may use, by their keys, and how many of them it should keep."""

    number: int
    devices: tuple[str, ...]
    keep: int


def allotment_of(folder: Path) -> Allotment | None:
    """The allotment of a driver; None if its devices don't change, or it has not begun."""
    begun = read(folder, "task.json") or {}
    if begun.get("allotment") is None or read(folder, HELD) is None:
        return None
    told = read(folder, ALLOTMENT) or {}
    devices = tuple(told.get("devices") or begun["allotment"]["devices"])
    return Allotment(int(told.get("number", 0)), devices, int(told.get("keep", len(devices))))


def given_back(folder: Path, told: Allotment, has: tuple[Device, ...]) -> tuple[Device, ...]:
    """The devices among those that a study `has` which its driver no longer uses."""
    held: Mapping[str, Any] = read(folder, HELD) or {}
    if held.get("number") != told.number or not isinstance(held.get("devices"), list):
        return ()
    return tuple(device for device in has if device.key in told.devices and device.key not in held["devices"])


def tell(folder: Path, before: Allotment, devices: tuple[Device, ...], keep: int) -> None:
    """Tell a driver which devices it may use now, and how many it should keep, if that has changed."""
    keys = tuple(device.key for device in devices)
    if (keys, keep) != (before.devices, before.keep):
        told = {"number": before.number + 1, "devices": keys, "keep": keep}
        LocalFolder(folder).write(ALLOTMENT, json.dumps(told).encode())
