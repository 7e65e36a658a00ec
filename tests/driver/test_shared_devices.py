"""What packed trials share: GPUs as a fake NVML tells of them, or the CPU; and MPS, where it runs."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fake_nvml import GIB, Card, FakeNvml
from tests.loop.test_packing import Trace, needing, saturating
from tuner import ImageClassifier, Random, Resources, Study, StudyError, loguniform
from tuner.driver import Driving
from tuner.driver.cluster import connected
from tuner.driver.shared_devices import _available_bytes, share_name, shared_devices, shares
from tuner.loop.packing import Packing
from tuner.machine.hardware import Machine, mps_runs
from tuner.machine.nvml import read_gpus

BOX = Machine(cpus=64, gpus=2, memory_bytes=256 * GIB, processor="box")


def packed(**resources: Any) -> Study:
    return Study(
        "packed",
        trial=ImageClassifier("digits", weights=None),
        space={"lr": loguniform(1e-4, 1e-1)},
        search=Random(),
        resources=Resources(**resources),
    )


def test_an_80_gb_card_has_as_many_trials_as_its_free_memory_holds() -> None:
    """Of 80 GiB, 8 are used by others: 73.4 GB are left to share, in which a trial of 11 GB takes 12.9."""
    cards = FakeNvml(Card("GPU-0a", used_bytes=8 * GIB))
    devices = shared_devices(packed(gpus="auto"), BOX, read_gpus(cards, {}))
    assert [(device.name, device.model, device.most) for device in devices] == [("GPU-0a", "NVIDIA H100 80GB HBM3", 32)]
    assert devices[0].memory_bytes == pytest.approx(0.95 * 72 * GIB)
    assert Trace(Packing(devices), saturating(100)).settle(needing(11)) == 5
    assert Trace(Packing(devices), saturating(8)).settle(needing(0.5)) == 8


@pytest.mark.parametrize(("cpus", "resources", "most"), [(64, {}, 32), (16, {}, 8), (16, {"cpus": 4}, 2), (1, {}, 1)])
def test_trials_on_gpus_need_cpus_as_well(cpus: int, resources: dict[str, Any], most: int) -> None:
    cards = FakeNvml(Card("GPU-0a"), Card("GPU-0b"))
    machine = Machine(cpus=cpus, gpus=2, memory_bytes=64 * GIB, processor="box")
    devices = shared_devices(packed(gpus="auto", **resources), machine, read_gpus(cards, {}))
    assert [device.most for device in devices] == [most, most]
    assert shares(devices) == {share_name(device): 1.0 for device in devices}


def test_a_gpu_set_to_one_process_has_one_trial() -> None:
    alone, shared = Card("GPU-0a", compute_mode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS), Card("GPU-0b")
    devices = shared_devices(packed(gpus="auto"), BOX, read_gpus(FakeNvml(alone, shared), {}))
    assert [device.most for device in devices] == [1, 32]


@pytest.mark.parametrize("cards", [[], [Card("GPU-0a", memory_bytes=None)]])
def test_without_known_memory_nothing_is_shared(cards: list[Card]) -> None:
    with pytest.raises(StudyError, match=r"^gpus='auto' needs NVML to say how much memory each GPU has, got no answer"):
        shared_devices(packed(gpus="auto"), BOX, read_gpus(FakeNvml(*cards), {}))


def test_on_the_cpu_a_trial_has_a_thread_and_its_memory() -> None:
    (device,) = shared_devices(packed(cpus="auto"), BOX)
    assert (device.name, device.most, device.at_first, device.reports_process) == ("cpu", 64, 64, True)
    assert 0 < device.memory_bytes < BOX.memory_bytes
    assert device.largest_trial == BOX.memory_bytes
    assert shares([device]) == {}


MEMINFO = "MemTotal: 268435456 kB\nMemAvailable: 104857600 kB\n"  # 256 GiB, 100 of them available


def files(folder: Path, **contents: str) -> None:
    """Write some: "__" in a name stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("version", "limit", "expected"),
    [("v2", str(16 * GIB), 7), ("v1", str(16 * GIB), 7), ("v2", "max", 100), ("v1", str(2**63 - 4096), 100)],
)
def test_what_a_container_uses_already_is_not_shared_again(
    tmp_path: Path, version: str, limit: str, expected: int
) -> None:
    """Of 16 GiB 12 are used, 3 of them by files that can be dropped; the host has 100 free."""
    files(tmp_path / "proc", meminfo=MEMINFO)
    groups, stat = tmp_path / "sys/fs/cgroup", f"inactive_file {3 * GIB}\ntotal_inactive_file {3 * GIB}\nanon 1\n"
    if version == "v2":
        files(groups, memory__max=limit, memory__current=str(12 * GIB), memory__stat=stat)
    else:
        told = {"memory__limit_in_bytes": limit, "memory__usage_in_bytes": str(12 * GIB), "memory__stat": stat}
        files(groups / "memory", **told)
    assert _available_bytes(BOX, tmp_path) == expected * GIB


def test_on_a_system_that_tells_nothing_all_memory_is_shared(tmp_path: Path) -> None:
    assert _available_bytes(BOX, tmp_path) == BOX.memory_bytes


def test_packed_trials_need_the_ray_that_tuner_starts() -> None:
    study, message = (
        packed(cpus="auto"),
        r"^cpus='auto' needs Ray as tuner starts it on this machine, got address='a:1'; ",
    )
    with pytest.raises(StudyError, match=message), connected(study, Driving(address="a:1")):
        pass


def test_a_study_with_fixed_amounts_shares_nothing() -> None:
    assert shared_devices(packed(gpus=0.5), BOX) == ()
    assert shared_devices(packed(), BOX) == ()


def test_mps_is_found_by_its_pipe(tmp_path: Path) -> None:
    told = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert not mps_runs(told)
    (tmp_path / "control").touch()
    assert mps_runs(told)
