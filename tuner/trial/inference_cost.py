"""What a configuration's network costs when it answers, measured before it is trained; and limits of these costs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tuner.errors import StudyError, did_you_mean, shown
from tuner.space import Space
from tuner.space.values import is_number, recorded, value_of

# Hyperparameters that change what is computed.
OF_FORWARD = ("stem", "image_size", "pooling", "blocks", "test_time_flip", "quantization")
COSTS: Mapping[str, str] = {
    "latency_ms": "ms",
    "size_mb": "MB as a file",
    "memory_mb": "MB of memory",
    "flops": "operations",
}  # each with its unit
OF_ONNX = ("onnx", "onnxscript", "onnxruntime")  # libraries that write, quantise and run ONNX files
DEVICES = ("cpu", "cuda")
DISTURBED = 2.0  # the slowest run by the fastest one
MOST_THREADS, MOST_IMAGES = 1024, 4096


@dataclass(frozen=True)
class Latency:
    """How `latency_ms` is measured: the time until a batch of images is answered.

    Attributes:
        device: "cpu" for the exported ONNX file in onnxruntime, "cuda" for torch on a GPU
        threads: of the CPU
        batch: images at once
    """

    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    batch: int = 1

    def __post_init__(self) -> None:
        """Raise StudyError for what can't be measured."""
        if self.device not in DEVICES:
            raise StudyError(f"Latency needs device='cpu' or 'cuda', got {shown(self.device)}; choose one")
        for name, value, most in (("threads", self.threads, MOST_THREADS), ("batch", self.batch, MOST_IMAGES)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= most:
                raise StudyError(f"Latency needs a whole number from 1 to {most} as {name}, got {shown(value)}; use 1")

    @property
    def words(self) -> str:
        """As in "1 image at once, 2 threads of the CPU"."""
        images = "1 image" if self.batch == 1 else f"{self.batch} images"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{images} at once, {f'{threads} of the CPU' if self.device == 'cpu' else 'on the GPU'}"


@dataclass(frozen=True)
class InferenceCost:
    """The cost of one network.

    Attributes:
        latency_ms: median of repeated runs in the slowest of several processes, see `Latency`
        fastest_ms: that in the fastest of them
        size_mb: of the exported file; on a GPU of the weights; in 10^6 bytes
        memory_mb: that a program takes more once it has answered, in 10^6 bytes
        flops: floating-point operations for one image: two for each multiplication with an addition
    """

    latency_ms: float
    fastest_ms: float
    size_mb: float
    memory_mb: float
    flops: int

    @property
    def disturbed(self) -> bool:
        """Whether the times differ so much that others probably used the machine."""
        return self.latency_ms > DISTURBED * self.fastest_ms

    def broken(self, limits: Mapping[str, float]) -> tuple[str, ...]:
        """The names of the limits that it is above."""
        return tuple(name for name, most in limits.items() if getattr(self, name) > most)


@dataclass(frozen=True)
class KnownCosts:
    """What the networks of a study cost: its limits, how latency was measured, and a cost by `key_of` settings."""

    limits: Mapping[str, float]
    latency: Latency
    by_network: Mapping[str, InferenceCost]
    names: tuple[str, ...]  # hyperparameters of the space that decide on the network
    objective: str | None = None  # the cost that the search minimises, too

    @property
    def asked(self) -> tuple[str, ...]:
        """The costs that the study names, its objective first."""
        return tuple(dict.fromkeys([*([self.objective] if self.objective else []), *self.limits]))

    def of(self, config: Mapping[str, Any]) -> InferenceCost | None:
        """The cost of a configuration's network; None if it wasn't measured."""
        return self.by_network.get(key_of(config, self.names))

    def keeps(self, config: Mapping[str, Any]) -> bool:
        """Whether a configuration is known to keep the limits."""
        cost = self.of(config)
        return cost is not None and not cost.broken(self.limits)

    def record(self) -> dict[str, Any]:
        """The costs as plain data, for run.json."""
        networks = [{"settings": json.loads(key), **asdict(cost)} for key, cost in self.by_network.items()]
        return {
            "limits": dict(self.limits),
            "latency": asdict(self.latency),
            "names": list(self.names),
            "objective": self.objective,
            "networks": networks,
        }

    @classmethod
    def recorded(cls, told: Mapping[str, Any]) -> KnownCosts:
        """From what `record` gave. Raises KeyError, TypeError, ValueError, OverflowError or StudyError for others."""
        names = tuple(map(str, told["names"]))
        networks = {key_of(value_of(dict(each["settings"])), names): cost_of_record(each) for each in told["networks"]}
        check_limits(told["limits"])
        found = cls(dict(told["limits"]), Latency(**told["latency"]), networks, names, told.get("objective"))
        if not found.asked or found.objective not in (None, *COSTS):
            raise ValueError(f"costs are of {', '.join(COSTS)}")
        return found


def cost_of_record(told: Mapping[str, Any]) -> InferenceCost:
    """A cost from its fields as plain data; others are ignored.

    Raises KeyError, TypeError, ValueError or OverflowError for what isn't one.
    """
    latency, size, memory, flops, fastest = (float(told[name]) for name in (*COSTS, "fastest_ms"))
    if not all(map(math.isfinite, (fastest, latency, size, memory, flops))):
        raise ValueError("costs are finite")
    return InferenceCost(latency, fastest, size, memory, int(flops))


def second_value(
    costs: KnownCosts | None, name: str, config: Mapping[str, Any], metrics: Mapping[str, Any]
) -> float | None:
    """A second objective: what the configuration's network was measured to cost, or what its trial reported.

    None if it isn't known.
    """
    if costs is not None and name in costs.asked:
        known = costs.of(config)
        return None if known is None else float(getattr(known, name))
    reported = metrics.get(name)
    return float(reported) if is_number(reported) else None


def cost_in_words(cost: InferenceCost, name: str) -> str:
    """As in "12.4 ms" or "1.8e+09 operations"."""
    return f"{getattr(cost, name):.3g} {COSTS[name]}"


@dataclass(frozen=True)
class WithinLimits:
    """A constraint: the user's own, if there is one, and limits of what is known. Called with a configuration."""

    costs: KnownCosts
    own: Callable[[dict[str, Any]], bool] | None = None

    def why_not(self, config: Mapping[str, Any]) -> str | None:
        """Why limits rule a configuration out: what is wanted, and what its network has; None if they don't."""
        cost = self.costs.of(config)
        if cost is None:
            return f"limits need networks that were measured, got {shown(dict(config))}; choose among the space's"
        if not (broken := cost.broken(self.costs.limits)):
            return None
        limits = " and ".join(f"{name} {self.costs.limits[name]:g}" for name in broken)
        has = " and ".join(cost_in_words(cost, name) for name in broken)
        return (
            f"limits need {limits}, got {shown(dict(config))}, whose network has {has}; change it" if broken else None
        )

    def __call__(self, config: dict[str, Any]) -> Any:
        return self.costs.keeps(config) and (self.own is None or self.own(config))


def key_of(config: Mapping[str, Any], names: Sequence[str]) -> str:
    """A text that configurations share which have the same values of these hyperparameters."""
    return json.dumps({name: recorded(config[name]) for name in names if name in config}, sort_keys=True)


def deciding_names(space: Space, *, folds: bool) -> tuple[str, ...]:
    """The dimensions of a space that decide on the network that answers.

    With `folds` it has several networks, which share all but the last layer if only that is trained.
    """
    deciding = {"model", *OF_FORWARD, *(["finetune"] if folds else [])}
    return tuple(name for name in space.dimensions if name in deciding)


def check_limits(limits: object) -> None:
    """Raise StudyError for limits of something that isn't measured, and for values that nothing can keep."""
    if not isinstance(limits, Mapping) or not all(isinstance(name, str) for name in limits):
        raise StudyError(f"limits needs a dict of costs, got {shown(limits)}; write limits={{'latency_ms': 20}}")
    for name, most in limits.items():
        if name not in COSTS:
            raise StudyError(f"limits takes {', '.join(COSTS)}, got {name!r}; {did_you_mean(name, COSTS)}")
        if not is_number(most) or not most > 0:
            raise StudyError(f"limits needs numbers above 0, got {shown(most)} for {name!r}; correct it")
