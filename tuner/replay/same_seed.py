"""Whether a change of a hyperparameter changes anything: configurations trained for an epoch each with one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import TrialError
from tuner.machine.hardware import this_machine
from tuner.machine.temporary import OwnedFolder
from tuner.replay.replaying import provide_data
from tuner.replay.stays import Stay
from tuner.replay.training_process import trained_apart
from tuner.space import Config, NothingDrawn, Space
from tuner.space.values import same
from tuner.study.declaration import Study
from tuner.worker.assignment import Assignment

MOST = 12  # hyperparameters that are changed
PLACES = (0.5, 0.25, 0.75, 0.1, 0.9)  # of another value beside the first one's, as shares of the range

Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class SameSeed:
    """What one epoch with one seed shows.

    Attributes:
        values: of each hyperparameter that was changed: before and after
        unchanged: those whose change left every metric the same to the last bit
        reproducible: whether the first configuration, trained twice, has the same value of the study's metric; if not,
            nothing can be told
    """

    values: Mapping[str, tuple[Any, Any]]
    unchanged: tuple[str, ...]
    reproducible: bool

    @property
    def sentences(self) -> Iterator[str]:
        """For people."""
        if not self.reproducible:
            yield (
                "same seed: training needs to be the same again with one seed, got another result, so that nothing "
                "can be told; seed what draws random numbers"
            )
            return
        for name, (before, after) in self.values.items():
            told = "changed nothing in the first epoch" if name in self.unchanged else "matters"
            yield f"same seed: {name} {before!r} -> {after!r} {told}"

    def record(self) -> dict[str, Any]:
        """As plain data."""
        values = {name: list(pair) for name, pair in self.values.items()}
        return {"reproducible": self.reproducible, "changed": values, "unchanged": list(self.unchanged)}


def same_seed(study: Study, *, tell: Callable[[str], None] = lambda said: None) -> SameSeed:
    """Train the study's first configuration twice, and one more for each hyperparameter that differs in it alone.

    Only metrics that are the same both times are compared. What acts on later epochs alone changes nothing here. A
    configuration that fails counts as changed.

    Raises:
        TrialError: the first configuration fails.
        DataError: data or weights are missing.
    """
    provide_data(study)
    space, generator = study.search_space, np.random.default_rng(study.seed)
    base = space.sample(generator)
    tell("the first configuration, twice")
    first, again = (_trained(study, base) for _ in range(2))
    alike = {name for name, value in first.items() if again.get(name) == value}
    values: dict[str, tuple[Any, Any]] = {}
    unchanged = []
    for name in [name for name in space.dimensions if name in space.active(base) and name != "epochs"][:MOST]:
        other = _with_another(space, base, name, generator) if study.metric in alike else None
        if other is None:
            continue
        values[name] = (space.flatten(base)[name], space.flatten(other)[name])
        tell(f"{name} {values[name][1]!r}")
        with suppress(TrialError):
            metrics = _trained(study, other)
            unchanged += [name] if all(metrics.get(one) == first[one] for one in alike) else []
    return SameSeed(values, tuple(unchanged), study.metric in alike)


def _with_another(space: Space, base: Config, name: str, generator: np.random.Generator) -> Config | None:
    """The configuration with another value of this hyperparameter, None if the constraint allows none."""
    domain, flat = space.dimensions[name], space.flatten(base)
    if not domain.encodable:
        return None
    for place in PLACES:
        value = domain.decode((domain.encode(flat[name]) + place) % 1)
        if not same(value, flat[name]):
            with suppress(NothingDrawn):
                return space.complete(space.project(space.unflatten({**flat, name: value})), generator)
    return None


def _trained(study: Study, config: Config) -> Metrics:
    """The metrics of the first epoch. Raises TrialError if there is none."""
    resources = study.resources.resolve(gpus_present=this_machine().gpus, uses_gpu=study.uses_gpu)
    assignment = Assignment(
        trial="00000",
        config=config,
        seed=study.seed,
        epochs=study.budget.max_epochs,
        save_epochs=[],
        metric=study.metric,
        mode=study.mode,
        study_seed=study.seed,
        cpus=resources.cpu_count,
        gpus=resources.gpu_count,
        run_uri="",
        working_folder=study.working_folder,
        hung_seconds=study.failures.hung_seconds,
    )
    with OwnedFolder("same-seed") as folder:
        told = list(trained_apart(study.declared_trial, [Stay(assignment, 1)], str(folder)))
    if not told or "failure" in told[0]:
        raise TrialError(told[0]["failure"] if told else "the trial reported nothing")
    return {name: value for name, value in told[0]["metrics"].items() if value is not None}
