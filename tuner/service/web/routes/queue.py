"""The queue, the devices, and who used them."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query

from tuner.service.model import DeviceUse, Position, UsedDevices
from tuner.service.web.context import Shown, Viewer
from tuner.service.web.overview import Overview, overview
from tuner.service.web.routes.bodies import Listed, Words

router = APIRouter(tags=["queue"])


@router.get("/queue")
def queue(web: Shown, user: Viewer) -> Listed[Position]:
    """Where each waiting study stands, why it waits, and when it may start; the next one first."""
    return Listed(items=web.service.queue())


@router.get("/overview")
def show_overview(web: Shown, user: Viewer, text: Words = "") -> Overview:
    """All that the first page shows: studies that are under way or over, the queue, devices, and who asks."""
    return overview(web.service, user, text)


@router.get("/devices")
def devices(web: Shown, user: Viewer) -> Listed[DeviceUse]:
    """Each device, and who has it."""
    return Listed(items=web.service.devices())


@router.get("/usage")
def usage(
    web: Shown,
    user: Viewer,
    days: Annotated[float, Query(gt=0, le=3660, allow_inf_nan=False, description="of the last days")] = 7.0,
) -> Listed[UsedDevices]:
    """Device-hours of each study, those with most first."""
    return Listed(items=web.service.usage(time.time() - days * 86_400))
