"""The cost of a search on this machine, before it starts: epochs, minutes, memory; measured, and as an interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.driver.grouping import key_of, most_together
from tuner.driver.rehearsal import Rehearsal, rehearse
from tuner.history.combination import STUDENT_LENGTH
from tuner.machine.hardware import this_machine
from tuner.study.declaration import DISTILLED, Study
from tuner.trial.speed import Speed
from tuner.worker.implementation import implementation_of
from tuner.worker.measuring import Measured, Measurers

TAUGHT = 2.0  # times an epoch's seconds, as the networks that it learns from answer in it, too
SAMPLES = 100  # configurations that are drawn to count their kinds
MOST_KINDS = 8  # kinds that are measured; others count like the most similar one
KIND_SECONDS = 2.5  # of training steps, for each kind
MOST_PROCESSES = 8  # processes that measure at the same time
PLAYS = 9
NARROWEST = 0.25  # half width of the interval's logarithm: a machine's speed varies that much
OPENING, CONCLUSION = 2.2, 3.0  # before the first epoch and after the last, as multiples of libraries' loading time
BUSY = 0.7  # below this share of CPU time in elapsed time, other programs use the machine

Kind = Callable[[dict[str, Any]], str]


@dataclass(frozen=True)
class Speeds:
    """The cost of trials by their kind."""

    by_kind: Mapping[str, Speed]
    kind: Kind
    ready_seconds: float

    def sharing_stays(self, study: Study, workers: int) -> Speeds:
        """The same for a search in which workers train trials together, as far as they can."""
        key, count = key_of(study), most_together(study, workers)
        shared = {kind for kind, config in kinds_of(study)[0].items() if key(config) is not None}
        by_kind = {kind: each.together(count) if kind in shared else each for kind, each in self.by_kind.items()}
        return replace(self, by_kind=by_kind)

    def of(self, config: dict[str, Any]) -> Speed:
        """The speed of the configuration's kind, or of the kind that shares most words with it."""
        kind = self.kind(config)
        if kind in self.by_kind:
            return self.by_kind[kind]
        words = set(kind.split())
        return self.by_kind[max(self.by_kind, key=lambda other: len(words & set(other.split())))]


@dataclass(frozen=True)
class SearchCost:
    """The predicted cost of a search; pairs are the ends of an interval.

    Attributes:
        epochs: of all trials
        trials: number of trials that start
        seconds: from the command to the report: low, middle and high
        workers: trials at once
        memory_bytes: of one worker
        machine_bytes: the machine's memory
        cache_bytes: decoded images
        images: for training, validation and test
        notes: what the user should know about how it was measured, in sentences
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
        """The cost as plain data."""
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


def kinds_of(study: Study) -> tuple[dict[str, dict[str, Any]], Counter[str]]:
    """The kinds of configurations in a study's space: one of each, and their number among a hundred."""
    generator = np.random.default_rng(study.seed)
    configs = study.search_space.several(SAMPLES, generator)
    kind = speeds_kind(study)
    return {kind(config): config for config in configs[::-1]}, Counter(map(kind, configs))


def speeds_kind(study: Study) -> Kind:
    """The kind of each of a study's configurations."""
    trial = study.declared_trial
    implementation = implementation_of(trial)
    return lambda config: implementation.cost_kind(trial, config)


class TrialMeasurers(Measurers):
    """Processes that measure the trials of one study after another; they end with the block."""

    def of(
        self,
        study: Study,
        configs: list[dict[str, Any]],
        workers: int,
        *,
        seconds: float,
        tell: Callable[[str], None] = lambda said: None,
    ) -> Measured:
        """The cost of these configurations' trials while as many train at once as fit on the machine."""
        resources = study.resources.resolve(gpus_present=this_machine().gpus, uses_gpu=study.uses_gpu)
        gpu = resources.gpu_count > 0
        return self.measure(
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

    def speeds(
        self, study: Study, workers: int, *, seconds: float, tell: Callable[[str], None] = lambda said: None
    ) -> tuple[Speeds | None, list[str]]:
        """The cost of the study's trials on this machine, and reasons why parts of it aren't known."""
        first, counted = kinds_of(study)
        kinds = [kind for kind, _ in counted.most_common(MOST_KINDS)]
        found = self.of(study, [first[kind] for kind in kinds], workers, seconds=seconds, tell=tell)
        by_kind = {kind: speed for kind, speed in zip(kinds, found.speeds, strict=True) if speed is not None}
        if not by_kind:
            return None, found.problems or [f"what {study.declared_trial.described} takes is unknown before it runs"]
        left = len(counted) - len(by_kind)
        notes = [f"{left} of {len(counted)} kinds of configurations count like others that are alike"] if left else []
        return Speeds(by_kind, speeds_kind(study), found.ready_seconds), notes


def measured_cost(
    study: Study, workers: int, *, tell: Callable[[str], None] = lambda said: None
) -> tuple[SearchCost | None, list[str]]:
    """The cost of the study on this machine, and reasons why parts aren't known; `tell` gets what is being measured."""
    if study.strategies:
        return None, [f"what trials on several devices take isn't measured (strategy {', '.join(study.strategies)})"]
    if not implementation_of(study.declared_trial).scores:
        return None, [f"what {study.declared_trial.described} takes is known after its first epochs"]
    with TrialMeasurers() as measurers:
        speeds, notes = measurers.speeds(study, workers, seconds=KIND_SECONDS, tell=tell)
    if speeds is None:
        return None, notes
    cost = search_cost(study, workers, speeds, notes)
    return cost, [] if cost else ["no limit says how long the search is; set trials, total_epochs or minutes"]


def search_cost(study: Study, workers: int, speeds: Speeds, notes: list[str] | None = None) -> SearchCost | None:
    """The cost of the study if trials are this fast; None if no limit determines its length."""
    speeds = speeds.sharing_stays(study, workers)
    played = [rehearse(study, workers, speeds.of, seed) for seed in range(PLAYS)]
    if not all(play.whole for play in played):
        return None
    measured = list(speeds.by_kind.values())
    machine = this_machine()
    around = (OPENING + CONCLUSION) * speeds.ready_seconds
    around += max(each.look_seconds for each in measured) / machine.cpus + _scoring(study, measured)
    seconds = _interval([play.seconds + around for play in played])
    slowest = min(each.busy for each in measured)
    busy = [
        f"other programs used this machine while it was measured; alone it is about {1 / slowest:.1f} times as fast, "
        "so run this again when they have ended"
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


def _scoring(study: Study, measured: Sequence[Speed]) -> float:
    """Seconds until the winner has answered, and if trials may be averaged, others with each model and image size.

    A network that learns from these takes `STUDENT_LENGTH` times the epochs of a trial.
    """
    each: dict[str, float] = {}
    for speed in measured:
        each[speed.once_for] = max(speed.score_seconds, each.get(speed.once_for, 0.0))
    student = TAUGHT * study.budget.max_epochs * STUDENT_LENGTH if study.combine == DISTILLED else 0
    longest = max(speed.epoch_seconds[-1] for speed in measured)
    return (sum(each.values()) if study.combine else max(each.values())) + student * longest


def _interval(seconds: list[float]) -> tuple[float, float, float]:
    """Low, middle and high of the simulated results; at least as wide as machines' speed varies."""
    logs = np.log(seconds)
    middle, spread = float(np.median(logs)), max(NARROWEST, 1.3 * float(logs.std()))
    low, high = np.exp(middle - spread), np.exp(middle + spread)
    return float(low), float(np.exp(middle)), float(high)


def _ends(played: list[Rehearsal], name: str) -> tuple[int, int]:
    values = [getattr(play, name) for play in played]
    return min(values), max(values)
