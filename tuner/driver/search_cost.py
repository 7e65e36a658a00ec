"""The cost of a search on this machine, before it starts: epochs, minutes, memory; measured, and as an interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.driver.rehearsal import Rehearsal, rehearse
from tuner.machine import this_machine
from tuner.study import Study
from tuner.trial.speed import Speed
from tuner.worker.implementation import implementation_of
from tuner.worker.measuring import Measured, measure_apart

SAMPLES = 100  # configurations, whose kinds are counted
MOST_KINDS = 8  # that are measured; the others count like the one that is most like them
KIND_SECONDS = 2.5  # of steps for each
MOST_PROCESSES = 8  # that measure at once
PLAYS = 9
NARROWEST = 0.25  # of the logarithm: what a machine does now it does so much faster or slower later
OPENING, CONCLUSION = 2.2, 3.0  # times the seconds in which libraries load: until the first epoch, and after the last
BUSY = 0.7  # CPU time of the time that passed, below which others use the machine

Kind = Callable[[dict[str, Any]], str]


@dataclass(frozen=True)
class Speeds:
    """The cost of trials by their kind."""

    by_kind: Mapping[str, Speed]
    kind: Kind
    ready_seconds: float

    def of(self, config: dict[str, Any]) -> Speed:
        """The speed of the configuration's kind, or of the kind that shares most words with it."""
        kind = self.kind(config)
        if kind in self.by_kind:
            return self.by_kind[kind]
        words = set(kind.split())
        return self.by_kind[max(self.by_kind, key=lambda other: len(words & set(other.split())))]


@dataclass(frozen=True)
class SearchCost:
    """What a search is predicted to cost; pairs are the ends of an interval.

    Attributes:
        epochs: of all trials
        trials: that start
        seconds: from the command to the report, the middle of it between the ends
        workers: trials at once
        memory_bytes: of a worker
        machine_bytes: of memory that the machine has
        cache_bytes: decoded images
        images: for training, validation and test
        notes: what the user should know of how it was measured, in sentences
    """

    epochs: tuple[int, int]
    trials: tuple[int, int]
    seconds: tuple[float, float, float]
    workers: int
    memory_bytes: int
    machine_bytes: int
    cache_bytes: int
    images: tuple[int, int, int]
    notes: tuple[str, ...] = ()

    @property
    def minutes(self) -> tuple[float, float, float]:
        """`seconds` in minutes."""
        low, middle, high = (each / 60 for each in self.seconds)
        return low, middle, high

    def record(self) -> dict[str, Any]:
        """The same as plain data."""
        low, middle, high = (round(each, 2) for each in self.minutes)
        return {
            "epochs": list(self.epochs),
            "trials": list(self.trials),
            "minutes": {"low": low, "middle": middle, "high": high},
            "trials_at_once": self.workers,
            "memory_bytes": self.memory_bytes,
            "machine_memory_bytes": self.machine_bytes,
            "cache_bytes": self.cache_bytes,
            "images": dict(zip(("train", "validation", "test"), self.images, strict=True)),
            "notes": list(self.notes),
        }


def measured_speeds(
    study: Study, workers: int, *, seconds: float, tell: Callable[[str], None] = lambda said: None
) -> tuple[Speeds | None, list[str]]:
    """The cost of the study's trials on this machine, and the reasons why some of it isn't known."""
    first, counted = kinds_of(study)
    kinds = [kind for kind, _ in counted.most_common(MOST_KINDS)]
    found = measure(study, [first[kind] for kind in kinds], workers, seconds=seconds, tell=tell)
    by_kind = {kind: speed for kind, speed in zip(kinds, found.speeds, strict=True) if speed is not None}
    if not by_kind:
        return None, found.problems or [f"what {study.declared_trial.described} takes is unknown before it runs"]
    left = len(counted) - len(by_kind)
    notes = [f"{left} of {len(counted)} kinds of configurations count like others that are alike"] if left else []
    return Speeds(by_kind, speeds_kind(study), found.ready_seconds), notes


def kinds_of(study: Study) -> tuple[dict[str, dict[str, Any]], Counter[str]]:
    """The kinds of configurations that a study's space has: one of each, and how many there are among a hundred."""
    generator = np.random.default_rng(study.seed)
    configs = [study.search_space.sample(generator) for _ in range(SAMPLES)]
    kind = speeds_kind(study)
    return {kind(config): config for config in configs[::-1]}, Counter(map(kind, configs))


def speeds_kind(study: Study) -> Kind:
    """The kind of each of a study's configurations."""
    trial = study.declared_trial
    implementation = implementation_of(trial)
    return lambda config: implementation.cost_kind(trial, config)


def measure(
    study: Study,
    configs: list[dict[str, Any]],
    workers: int,
    *,
    seconds: float,
    tell: Callable[[str], None] = lambda said: None,
) -> Measured:
    """The cost of trials of these configurations while as many train at once as fit on the machine."""
    resources = study.resources.resolve(gpus_present=this_machine().gpus, uses_gpu=study.uses_gpu)
    gpu = resources.gpu_count > 0
    return measure_apart(
        study.declared_trial,
        configs,
        epochs=study.budget.max_epochs,
        split_seed=study.seed,
        device="cuda" if gpu else "cpu",
        threads=max(1, int(resources.cpu_count)),
        processes=1 if gpu else min(workers, MOST_PROCESSES),
        seconds=seconds,
        tell=tell,
    )


def measured_cost(
    study: Study, workers: int, *, tell: Callable[[str], None] = lambda said: None
) -> tuple[SearchCost | None, list[str]]:
    """The cost of the study on this machine, and the reasons why some of it isn't known; `tell` gets what is being
    measured.
    """
    if study.strategies:
        return None, [f"what trials on several devices take isn't measured (strategy {', '.join(study.strategies)})"]
    if not implementation_of(study.declared_trial).scores:
        return None, [f"what {study.declared_trial.described} takes is known after its first epochs"]
    speeds, notes = measured_speeds(study, workers, seconds=KIND_SECONDS, tell=tell)
    if speeds is None:
        return None, notes
    cost = search_cost(study, workers, speeds, notes)
    return cost, [] if cost else ["no limit says how long the search is; set trials, total_epochs or minutes"]


def search_cost(study: Study, workers: int, speeds: Speeds, notes: list[str] | None = None) -> SearchCost | None:
    """The cost of the study if trials are this fast; None if no limit says how long it is."""
    played = [rehearse(study, workers, speeds.of, seed) for seed in range(PLAYS)]
    if not all(play.whole for play in played):
        return None
    measured = list(speeds.by_kind.values())
    machine = this_machine()
    around = (OPENING + CONCLUSION) * speeds.ready_seconds
    around += max(each.look_seconds for each in measured) / machine.cpus + max(each.score_seconds for each in measured)
    seconds = _interval([play.seconds + around for play in played])
    slowest = min(each.busy for each in measured)
    busy = [
        f"other programs used this machine while it was measured: alone it is about {1 / slowest:.1f} times as fast"
    ]
    seeds = [f"repeats={study.repeats}: leaders under other seeds come on top of {study.budget.trials} trials"]
    return SearchCost(
        epochs=_ends(played, "epochs"),
        trials=_ends(played, "trials"),
        seconds=seconds,
        workers=workers,
        memory_bytes=max(each.memory_bytes for each in measured),
        machine_bytes=machine.memory_bytes,
        cache_bytes=sum({each.once_for: each.cache_bytes for each in measured}.values()),
        images=measured[0].images,
        notes=(
            *(notes or ()),
            *(seeds if study.repeats > 1 and study.budget.trials else ()),
            *(busy if slowest < BUSY else ()),
        ),
    )


def _interval(seconds: list[float]) -> tuple[float, float, float]:
    """Low, middle and high of the simulated results; never narrower than the speed of machines varies."""
    logs = np.log(seconds)
    middle, spread = float(np.median(logs)), max(NARROWEST, 1.3 * float(logs.std()))
    low, high = np.exp(middle - spread), np.exp(middle + spread)
    return float(low), float(np.exp(middle)), float(high)


def _ends(played: list[Rehearsal], name: str) -> tuple[int, int]:
    values = [getattr(play, name) for play in played]
    return min(values), max(values)
