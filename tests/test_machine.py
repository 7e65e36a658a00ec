import os
from pathlib import Path

import pytest

from tuner.machine import Machine, _container_cpus, _gpus, this_machine


def test_the_machine_is_what_the_system_says() -> None:
    machine = this_machine()
    assert 1 <= machine.cpus <= (os.cpu_count() or 1)
    assert machine.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.processor
    assert set(machine.record()) == {"cpus", "gpus", "memory_bytes", "processor"}


def test_gpus_are_the_devices_that_cuda_programs_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    present = sum(1 for node in Path("/dev").glob("nvidia[0-9]*") if node.name[6:].isdigit())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _gpus() == present
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert _gpus() == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert _gpus() == 0


def test_a_container_without_a_quota_has_no_limit_of_its_own() -> None:
    limit = _container_cpus()
    assert limit is None or limit >= 1


def test_cpus_are_those_that_this_process_may_run_on() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert this_machine().cpus == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(("visible", "most"), [("0", 1), ("0,1", 2), (" 0 , ", 1), ("GPU-1234", 1)])
def test_no_more_gpus_are_counted_than_are_visible(monkeypatch: pytest.MonkeyPatch, visible: str, most: int) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    present = _gpus()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _gpus() == min(present, most)


def test_a_machine_is_plain_data_in_a_runs_file() -> None:
    machine = Machine(cpus=2, gpus=1, memory_bytes=4, processor="p")
    assert machine.record() == {"cpus": 2, "gpus": 1, "memory_bytes": 4, "processor": "p"}
