"""GPUs that a service doesn't lend this search are kept from its Ray: an actor holds each of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError


class GpuPins:
    """The `Pins` of GPUs; by CUDA_VISIBLE_DEVICES Ray sees all that the search may ever get."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._holders: dict[str, Any] = {}  # by the GPU's name
        self._coming: dict[Any, Any] = {}  # actors that wait for a GPU, by what tells which one it is
        present = int(ray.cluster_resources().get("GPU", 0))
        if present > len(devices):
            self._ask(present)
            ray.wait(list(self._coming), num_returns=present)
            self._note()
            self.use(devices)

    def use(self, devices: Sequence[str]) -> None:
        """See `Pins`."""
        for device in devices:
            if (holder := self._holders.pop(device, None)) is not None:
                ray.kill(holder)

    def unused(self, devices: Sequence[str], count: int) -> list[str]:
        """See `Pins`: GPUs that an actor has got, as Ray gives a GPU to nobody else before a trial there has ended."""
        self._note()
        found = [device for device in devices if device in self._holders]
        self.use(found[count:])
        self._ask(count - len(found) - len(self._coming))
        for waiting in list(self._coming)[max(0, count - len(found)) :]:
            ray.kill(self._coming.pop(waiting))
        return found[:count]

    def _ask(self, count: int) -> None:
        for _ in range(count):
            actor = ray.remote(_Holder).options(num_cpus=0, num_gpus=1).remote()
            self._coming[actor.device.remote()] = actor

    def _note(self) -> None:
        ready = ray.wait(list(self._coming), num_returns=len(self._coming), timeout=0)[0] if self._coming else []
        for told in ready:
            holder = self._coming.pop(told)
            with suppress(RayError):  # it was killed: another is asked for at the next look
                self._holders[ray.get(told)] = holder


class _Holder:
    """Does nothing with its GPU, and doesn't open it."""

    def device(self) -> str:
        """The GPU's name, as in CUDA_VISIBLE_DEVICES."""
        return str(ray.get_runtime_context().get_accelerator_ids()["GPU"][0])
