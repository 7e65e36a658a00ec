"""The GPUs that a trial's process sees, and what it says of them, on machines that a test describes."""

from dataclasses import replace

import pytest

from tests.fake_nvml import Card, FakeNvml
from tests.worker.test_saving import ASSIGNMENT
from tuner.replay.stays import Stay
from tuner.replay.training_process import _environment
from tuner.worker.assignment import Assignment
from tuner.worker.placing import _gpus, placement_here, visible_gpus

ON_THE_CPU, ON_A_GPU = ASSIGNMENT, replace(ASSIGNMENT, gpus=1)
SHARING = replace(ASSIGNMENT, gpus=0.25, device="GPU-a")


@pytest.mark.parametrize(
    ("assignment", "sees"),
    [(ON_THE_CPU, ""), (ON_A_GPU, "0,1"), (SHARING, "GPU-a")],
    ids=["on the CPU", "with a GPU that Ray shows it", "with a part of one"],
)
def test_a_process_sees_its_trials_gpus_alone(
    monkeypatch: pytest.MonkeyPatch, assignment: Assignment, sees: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert {"CUDA_VISIBLE_DEVICES": "0,1", **visible_gpus(assignment)} == {"CUDA_VISIBLE_DEVICES": sees}
    assert _environment([Stay(assignment, 1)])["CUDA_VISIBLE_DEVICES"] == sees  # of a replay


MIXED = Card("GPU-t4", "Tesla T4"), Card("GPU-h100", "NVIDIA H100")  # for CUDA the faster H100 is number 0
ALIKE = Card("GPU-a", "NVIDIA H100"), Card("GPU-b", "NVIDIA H100")


@pytest.mark.parametrize(
    ("cards", "visible", "order", "devices", "names"),
    [
        (MIXED, "GPU-h100", None, ["cuda:1"], ["NVIDIA H100"]),
        (MIXED, "1", "PCI_BUS_ID", ["cuda:1"], ["NVIDIA H100"]),
        (MIXED, "1", None, ["cuda:1"], []),  # as CUDA numbers it: which card that is isn't known
        (MIXED, None, None, ["1 GPU"], []),
        (ALIKE, "1", None, ["cuda:1"], ["NVIDIA H100"]),
        (ALIKE, "GPU-b,GPU-a", None, ["cuda:1", "cuda:0"], ["NVIDIA H100"] * 2),
    ],
)
def test_a_trial_says_on_which_gpu_it_is_if_that_is_certain(
    monkeypatch: pytest.MonkeyPatch,
    cards: tuple[Card, ...],
    visible: str | None,
    order: str | None,
    devices: list[str],
    names: list[str],
) -> None:
    monkeypatch.setattr("tuner.machine.nvml._load", lambda: FakeNvml(*cards))
    for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    _gpus.cache_clear()
    placement = placement_here(ON_A_GPU)
    _gpus.cache_clear()
    assert (placement.devices, placement.gpus) == (devices, names)
