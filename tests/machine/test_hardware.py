import os
from pathlib import Path

import pynvml
import pytest

from tests.fake_nvml import Card, FakeNvml
from tuner.driver.local_ray import _gpus_as_numbered
from tuner.machine.hardware import Machine, _container_cpus, _gpu_names, divided_gpus, gpu_source, this_machine


def test_the_machine_is_what_the_system_says() -> None:
    machine = this_machine()
    assert 1 <= machine.cpus <= (os.cpu_count() or 1)
    assert machine.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.processor
    assert set(machine.record()) == {"cpus", "gpus", "memory_bytes", "processor"}


def gpus_with(monkeypatch: pytest.MonkeyPatch, library: FakeNvml, **environment: str) -> int:
    monkeypatch.setattr("tuner.machine.nvml._load", lambda: library)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _gpu_names.cache_clear()
    try:
        return this_machine().gpus
    finally:
        _gpu_names.cache_clear()


def test_gpus_are_counted_without_device_files_as_on_wsl2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus_with(monkeypatch, FakeNvml(Card("GPU-1"), Card("GPU-2"))) == 2


@pytest.mark.parametrize(
    ("visible", "count"),
    [("", 0), ("-1", 0), ("0", 1), ("0,1", 2), (" 0 , ", 1), ("GPU-1", 1), ("GPU-9", 0), ("0,0", 0)],
)
def test_gpus_are_those_that_cuda_programs_may_see(monkeypatch: pytest.MonkeyPatch, visible: str, count: int) -> None:
    cards = Card("GPU-1"), Card("GPU-2")
    assert gpus_with(monkeypatch, FakeNvml(*cards), CUDA_VISIBLE_DEVICES=visible) == count


def test_a_divided_gpu_counts_for_its_instances_which_ray_hands_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(Card("GPU-1", instances=[Card("MIG-1"), Card("MIG-2")]), Card("GPU-2"))
    assert gpus_with(monkeypatch, library) == 3
    assert divided_gpus() == "MIG-1,MIG-2,GPU-2"
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert _gpus_as_numbered() == {**order, "CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2,GPU-2"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    assert _gpus_as_numbered() == order
    assert gpus_with(monkeypatch, FakeNvml(Card("GPU-1"))) == 1
    assert divided_gpus() is None


def amd_nodes(folder: Path) -> Path:
    for number, units in enumerate((0, 256, 256)):  # the first is the CPU
        (folder / str(number)).mkdir()
        (folder / str(number) / "properties").write_text(f"cpu_cores_count 8\nsimd_count {units}\nmem_banks_count 1\n")
    return folder


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 2),
        ({"HIP_VISIBLE_DEVICES": "1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 1),
        ({"HIP_VISIBLE_DEVICES": "-1"}, 0),
        ({"HIP_VISIBLE_DEVICES": "0,7"}, 1),
    ],
)
def test_gpus_of_amd_are_counted_where_there_is_no_nvml(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], count: int
) -> None:
    monkeypatch.setattr("tuner.machine.hardware.KFD", amd_nodes(tmp_path))
    library = FakeNvml(broken=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert gpus_with(monkeypatch, library, **environment) == count
    assert gpu_source() == f"{tmp_path} (AMD), 2 in all"


def test_it_is_said_where_the_count_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert gpus_with(monkeypatch, FakeNvml(Card("GPU-1"), driver="535.1")) == 1
    assert gpu_source() == "NVML, driver 535.1"
    assert gpus_with(monkeypatch, FakeNvml(broken=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)) == 0
    nothing = "no GPU is seen: NVML can't be asked: NVML Shared Library Not Found"
    assert gpu_source() == nothing
    monkeypatch.setattr("tuner.machine.hardware.DEVICE_FILES", (tmp_path,))
    assert gpu_source() == f"{nothing}; yet {tmp_path} is there: give this container the driver's libraries too"


def test_a_container_without_a_quota_has_no_limit_of_its_own() -> None:
    limit = _container_cpus()
    assert limit is None or limit >= 1


@pytest.mark.parametrize(("limit", "memory"), [(None, None), (2**20, 2**20), (2**63 - 4096, None)])
def test_memory_is_what_the_container_allows_of_what_there_is(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, memory: int | None
) -> None:
    monkeypatch.setattr(
        "tuner.machine.hardware._container_memory_bytes", lambda: limit
    )  # v1 has a number where there is no limit
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert this_machine().memory_bytes == (memory or physical)


def test_cpus_are_those_that_this_process_may_run_on() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert this_machine().cpus == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_machine_is_plain_data_in_a_runs_file() -> None:
    machine = Machine(cpus=2, gpus=1, memory_bytes=4, processor="p")
    assert machine.record() == {"cpus": 2, "gpus": 1, "memory_bytes": 4, "processor": "p"}
