"""A stand-in for the module `pynvml`: the functions that tuner calls, over cards that a test describes."""

# ruff: noqa: N802 -- the names are the library's

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30


@dataclass
class Card:
    """A GPU as NVML tells of it; what is None isn't supported. `instances` are those of MIG, None where it is off."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int | None = 80 * GIB
    used_bytes: int = 0
    busy_percent: int | None = 0
    capability: tuple[int, int] = (9, 0)
    compute_mode: int = pynvml.NVML_COMPUTEMODE_DEFAULT
    processes: dict[int, int | None] = field(default_factory=dict)
    samples: list[tuple[int, int]] = field(default_factory=list)  # time in µs, percent
    instances: "list[Card] | None" = None
    lost: bool = False


class FakeNvml:
    """NVML over `cards`; with `broken` it can't be initialised, as without a driver."""

    NVML_GPU_UTILIZATION_SAMPLES = pynvml.NVML_GPU_UTILIZATION_SAMPLES

    def __init__(self, *cards: Card, driver: str = "580.65.06", cuda: int = 13000, broken: int | None = None) -> None:
        self.cards, self.driver, self.cuda, self.broken = list(cards), driver, cuda, broken
        self.initialised = 0

    def nvmlInit(self) -> None:
        if self.broken is not None:
            raise pynvml.NVMLError(self.broken)
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:
        assert self.initialised
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        if self.cards[index].lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        every = [*self.cards, *(part for card in self.cards for part in card.instances or ())]
        found = [card for card in every if card.uuid == uuid]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found[0]

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return card.uuid

    def nvmlDeviceGetName(self, card: Card) -> str:
        return card.name

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        if card.capability < (8, 0):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        on = int(card.instances is not None)
        return [on, on]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:
        assert card.instances is not None
        if index >= len(card.instances):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return card.instances[index]

    def nvmlDeviceGetGpuInstanceId(self, instance: Card) -> int:
        return next(
            card.instances.index(instance) + 7 for card in self.cards if card.instances and instance in card.instances
        )

    def nvmlDeviceGetComputeInstanceId(self, instance: Card) -> int:
        return 0

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        if card.memory_bytes is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=card.memory_bytes, used=card.used_bytes, free=card.memory_bytes - card.used_bytes)

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> Any:
        if card.busy_percent is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=card.busy_percent, memory=0)

    def nvmlDeviceGetSamples(self, card: Card, kind: int, since: int) -> tuple[int, list[Any]]:
        assert kind == self.NVML_GPU_UTILIZATION_SAMPLES
        return 1, [SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=busy)) for at, busy in card.samples]

    def nvmlDeviceGetCudaComputeCapability(self, card: Card) -> tuple[int, int]:
        return card.capability

    def nvmlDeviceGetComputeMode(self, card: Card) -> int:
        return card.compute_mode

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.processes.items()]

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return self.cuda
