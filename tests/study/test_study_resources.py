"""What a study asks of a machine, and what it gets there."""

from pathlib import Path
from typing import Any

import pytest

from tests.study.test_declaration import build
from tuner import (
    Budget,
    ImageClassifier,
    Resources,
    StudyError,
)
from tuner.errors import DataError, WeightsError
from tuner.machine.hardware import Machine, this_machine

LAPTOP = Machine(cpus=8, gpus=0, memory_bytes=2**34, processor="laptop")


BOX = Machine(cpus=64, gpus=4, memory_bytes=2**38, processor="box")


@pytest.mark.parametrize(
    ("resources", "machine", "message"),
    [
        (
            Resources(cpus=16),
            LAPTOP,
            "a trial can have at most the CPUs that this machine has (8), got Resources(cpus=16); "
            "use at most 8 (also --cpus-per-trial)",
        ),
        (
            Resources(gpus=0.5),
            LAPTOP,
            "a trial can have at most the GPUs that this machine has (0), got Resources(gpus=0.5); "
            "leave gpus out, or run where there is one (also --gpus-per-trial)",
        ),
        (
            Resources(gpus=8),
            BOX,
            "a trial can have at most the GPUs that this machine has (4), got Resources(gpus=8); "
            "use at most 4 (also --gpus-per-trial)",
        ),
        (
            Resources(gpus="auto"),
            LAPTOP,
            "gpus='auto' needs a GPU that trials can share, got a machine with none; use cpus='auto', which packs "
            "trials on the CPU, or leave gpus out (also --gpus-per-trial)",
        ),
        (
            Resources(gpus="auto", strategy="ddp"),
            BOX,
            "strategy='ddp' needs a whole number of devices for each trial, got gpus='auto', by which trials share one; "
            "use gpus=2, or leave strategy out",
        ),
        (
            Resources(cpus="auto", placement="spread"),
            BOX,
            "placement='spread' needs several devices for each trial, got cpus='auto'; leave it out",
        ),
    ],
)
def test_more_than_the_machine_has_is_refused(resources: Resources, machine: Machine, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        build(resources=resources).check_machine(machine)
    assert str(caught.value) == message


def test_what_a_packed_trial_holds_is_no_number_for_device_hours() -> None:
    packed = build(resources=Resources(gpus="auto"), budget=Budget(device_hours=2))
    with pytest.raises(StudyError) as caught:
        packed.check_machine(BOX)
    assert str(caught.value) == (
        "Budget.device_hours needs the same amount of devices for each trial, got gpus='auto'; use hours, in which a "
        "search holds all GPUs of the machine"
    )


def test_more_than_the_cluster_has_is_refused_by_its_name() -> None:
    with pytest.raises(StudyError, match=r"^a trial can have at most the CPUs that the cluster has \(64\), got "):
        build(resources=Resources(cpus=65)).check_machine(BOX, where="the cluster")


def test_all_that_a_machine_has_may_be_asked_for() -> None:
    build(resources=Resources(cpus=64, gpus=4)).check_machine(BOX)
    build(resources=Resources(cpus=0.5, gpus=0.25)).check_machine(BOX)
    build(resources=Resources(gpus=0)).check_machine(LAPTOP)
    build().check_machine(LAPTOP)
    build(resources=Resources(gpus="auto")).check_machine(BOX)
    build(resources=Resources(cpus="auto")).check_machine(LAPTOP)


def test_a_check_looks_at_this_machine_unless_a_cluster_is_to_do_the_work() -> None:
    greedy = build(resources=Resources(cpus=this_machine().cpus + 1))
    with pytest.raises(StudyError, match=r"^a trial can have at most the CPUs that this machine has \("):
        greedy.check_here()
    greedy.check_here(cluster=True)


def test_a_check_looks_at_data_and_weights(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^folder:PATH needs a folder of images, got .*nowhere, which isn't one"):
        build(trial=ImageClassifier(f"folder:{tmp_path / 'nowhere'}", weights=None)).check_here()
    with pytest.raises(
        WeightsError, match=r"^weights must be pretrained, none or the path of a saved state_dict, got "
    ):
        build(trial=ImageClassifier("digits", weights=tmp_path / "nowhere.pt")).check_here(cluster=True)


def test_an_image_classifier_gets_a_gpu_where_there_is_one_and_a_function_only_if_asked() -> None:
    def train(config: dict[str, Any]) -> None:
        return

    classifier, function = build(), build(trial=train, metric="loss", mode="min")
    assert classifier.resources.resolve(gpus_present=4, uses_gpu=classifier.uses_gpu) == Resources(cpus=1, gpus=1)
    assert classifier.resources.resolve(gpus_present=0, uses_gpu=classifier.uses_gpu) == Resources(cpus=1, gpus=0)
    assert function.resources.resolve(gpus_present=4, uses_gpu=function.uses_gpu) == Resources(cpus=1, gpus=0)


def test_packed_trials_are_counted_by_their_least_share() -> None:
    assert Resources(gpus="auto").resolve(gpus_present=2, uses_gpu=True) == Resources(cpus=1, gpus=1 / 32)
    assert Resources(cpus="auto").resolve(gpus_present=2, uses_gpu=True) == Resources(cpus=1, gpus=0)
    assert [Resources(gpus="auto").packed, Resources(cpus="auto").packed, Resources().packed] == ["gpus", "cpus", None]


@pytest.mark.parametrize("kind", ["", 100])
def test_a_kind_of_gpu_is_a_name(kind: Any) -> None:
    with pytest.raises(
        StudyError, match=r"Resources\.accelerator needs Ray's name of a kind of GPU, such as 'H100', got"
    ):
        Resources(accelerator=kind)


def test_a_kind_of_gpu_is_for_a_cluster() -> None:
    chosen = build(resources=Resources(accelerator="H100"))
    told = r"chooses among the nodes of a cluster, got 'H100' for a search on this machine; leave it out"
    with pytest.raises(StudyError, match=told):
        chosen.check_here()
    chosen.check_here(cluster=True)
