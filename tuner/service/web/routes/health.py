"""Whether the server is well, and what it counts."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from tuner.service.database.studies import count
from tuner.service.model import State
from tuner.service.web.context import Shown, Web, address_of, caller_of
from tuner.service.web.routes.bodies import Health

router = APIRouter(tags=["health"])
TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/healthz")
def live() -> Health:
    """The server answers."""
    return Health()


@router.get("/readyz")
def ready(web: Shown) -> Health:
    """The server can read its database."""
    web.service.studies(limit=1)
    return Health()


@router.get("/metrics", response_class=Response, responses=TEXT)
def metrics(request: Request, web: Shown) -> Response:
    """What the server counts, for Prometheus; with a token, or from this machine."""
    if web.settings.behind_proxy or not _is_loopback(address_of(request)):
        caller_of(request)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counted(web))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Counted:
    """The service's numbers as they are when somebody asks."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def collect(self) -> list[Metric]:
        """Studies by state, devices, streams."""
        studies = GaugeMetricFamily("tuner_studies", "Studies by their state", labels=["state"])
        with self._web.service.database.reading() as connection:
            for state in State:
                studies.add_metric([state], count(connection, [state]))
        devices = GaugeMetricFamily("tuner_devices", "Devices by whether a study has them", labels=["kind", "held"])
        held = Counter((one.device.kind, "no" if one.study is None else "yes") for one in self._web.service.devices())
        for key, number in held.items():
            devices.add_metric(key, number)
        streams = GaugeMetricFamily("tuner_streams", "Streams of events that are open")
        streams.add_metric([], sum(self._web.access.streams.open.values()))
        return [studies, devices, streams]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
