"""How many workers start together with Ray, and what they import meanwhile."""

from typing import Any

import pytest

from tuner import Budget, ImageClassifier, Random, Resources, Study, uniform
from tuner.driver.cluster import _workers
from tuner.driver.ray_inside.start import Workers
from tuner.loop.packing import Device
from tuner.machine.hardware import Machine


def train(config: dict[str, Any]) -> None:
    """Nothing."""


def study(trials: int | None = 100, **resources: Any) -> Study:
    budget = Budget(trials=trials, max_epochs=3, hours=1)
    space = {"x": uniform(0, 1)}
    return Study(
        "some",
        trial=train,
        space=space,
        metric="loss",
        mode="min",
        search=Random(),
        budget=budget,
        resources=Resources(**resources),
    )


def device(name: str, at_first: int) -> Device:
    return Device(name, name, 8e9, 8e9, most=32, at_first=at_first)


EIGHT = Machine(8, 0, 2**34, "some")
GPUS = Machine(16, 2, 2**34, "some")


@pytest.mark.parametrize(
    ("given", "machine", "limit", "devices", "count"),
    [
        (study(), EIGHT, None, (), 8),
        (study(), EIGHT, 3, (), 3),
        (study(trials=2), EIGHT, None, (), 2),
        (study(trials=None), EIGHT, None, (), 8),
        (study(cpus=3), EIGHT, None, (), 2),
        (study(cpus=16), EIGHT, None, (), 1),  # which is refused elsewhere, but never a hundred processes
        (study(cpus=2, gpus=1), GPUS, None, (), 2),
        (study(gpus=0.5), GPUS, None, (), 4),
        # Those of a packed study, more of which are soon needed on a GPU, and the one that estimates their memory.
        (study(gpus="auto"), GPUS, None, (device("GPU-1", 1), device("GPU-2", 1)), 9),
        (study(gpus="auto"), GPUS, 1, (device("GPU-1", 1),), 2),
        (study(cpus="auto"), EIGHT, None, (device("cpu", 8),), 9),
    ],
)
def test_as_many_workers_start_with_ray_as_trials_run_at_first(
    given: Study, machine: Machine, limit: int | None, devices: tuple[Device, ...], count: int
) -> None:
    assert _workers(given, machine, devices, limit).count == count


def test_workers_of_image_classifiers_import_torch_and_those_of_functions_what_every_trial_needs() -> None:
    classifier = Study(
        "some",
        trial=ImageClassifier("digits", "resnet18", weights=None),
        space={"lr": uniform(0.1, 0.2)},
        metric="val_accuracy",
    )
    assert _workers(study(), EIGHT, (), None).modules == ("ray.tune",)
    assert {"ray.tune", "tuner.train"} <= set(_workers(classifier, EIGHT, (), None).modules)


@pytest.mark.parametrize(("cpus", "threads"), [(0.5, "1"), (1, "1"), (2.5, "2"), (4, "4")])
def test_openmp_has_as_many_threads_as_a_trial_has_whole_cpus(cpus: float, threads: str) -> None:
    assert Workers(cpus=cpus).environment()["OMP_NUM_THREADS"] == threads
