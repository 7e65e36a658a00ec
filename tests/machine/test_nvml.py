import inspect
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from tests.fake_nvml import GIB, Card, FakeNvml
from tuner.machine.hardware import python_environment
from tuner.machine.nvml import (
    Gpu,
    GpuMonitor,
    GpuProcess,
    NvmlUnavailableError,
    ask_gpus,
    cuda_numbers_agree,
    read_gpus,
)

A, B, C = "GPU-aaaa1111", "GPU-aaaa2222", "GPU-cccc3333"


def seen(library: FakeNvml, visible: str | None) -> list[str]:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return [gpu.uuid for gpu in read_gpus(library, environment)]


def test_the_stand_in_has_only_functions_of_the_real_library() -> None:
    for name, method in inspect.getmembers(FakeNvml, inspect.isfunction):
        if name.startswith("nvml"):
            real = inspect.signature(getattr(pynvml, name)).parameters
            assert len(inspect.signature(method).parameters) - 1 <= len(real), name


def test_a_gpu_is_told_whole() -> None:
    card = Card(A, used_bytes=3 * GIB, busy_percent=42, processes={7: 2 * GIB, 8: None})
    (gpu,) = read_gpus(FakeNvml(card), {})
    assert gpu == Gpu(
        index=0,
        uuid=A,
        name="NVIDIA H100 80GB HBM3",
        memory_bytes=80.0 * GIB,
        used_bytes=3.0 * GIB,
        utilisation=0.42,
        capability=(9, 0),
        driver="580.65.06",
        cuda=(13, 0),
        mig=False,
        compute_mode="default",
        processes=(GpuProcess(7, 2.0 * GIB), gpu.processes[1]),
    )
    assert gpu.processes[1].pid == 8
    assert math.isnan(gpu.processes[1].used_bytes)
    assert gpu.free_bytes == 77 * GIB


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [A, B, C]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0", [A]),
        ("2,0", [C, A]),
        (" 0 , ", [A]),
        ("1gpu", [B]),
        ("1,7,0", [B]),
        ("1,-1,0", [B]),
        ("0,0", []),
        (C, [C]),
        ("GPU-cccc", [C]),
        ("GPU-aaaa", []),
        (f"{C},{A}", [C, A]),
        (f"{C},GPU-dddd,{A}", [C]),
        (f"{C},2", []),
        ("MIG-cccc", []),
    ],
)
def test_what_is_visible_is_what_cuda_would_see(visible: str | None, expected: list[str]) -> None:
    assert seen(FakeNvml(Card(A), Card(B), Card(C)), visible) == expected


@pytest.mark.parametrize(
    ("names", "order", "agree"),
    [
        (["H100", "H100"], None, True),
        (["T4"], "FASTEST_FIRST", True),
        (["T4", "H100"], None, False),  # for CUDA the H100 is number 0
        (["T4", "H100"], "FASTEST_FIRST", False),
        (["T4", "H100"], "PCI_BUS_ID", True),
        ([], None, True),
    ],
)
def test_cuda_has_the_same_numbers_if_all_gpus_are_alike_or_it_is_told(
    names: list[str], order: str | None, agree: bool
) -> None:
    library = FakeNvml(*(Card(f"GPU-{number}", name) for number, name in enumerate(names)))
    environment = {"CUDA_VISIBLE_DEVICES": "0"} | ({} if order is None else {"CUDA_DEVICE_ORDER": order})
    assert cuda_numbers_agree(library, environment) is agree


def divided() -> FakeNvml:
    parts = [Card(f"MIG-{part}", memory_bytes=10 * GIB, busy_percent=None) for part in ("1111", "1222", "2333")]
    return FakeNvml(Card(A), Card(B, instances=parts), Card(C))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [A, "MIG-1111", "MIG-1222", "MIG-2333", C]),
        ("1", ["MIG-1111"]),
        ("2", [C]),
        (B, ["MIG-1111"]),
        ("MIG-2", ["MIG-2333"]),
        ("MIG-1", []),
        ("MIG-2333,MIG-1111", ["MIG-2333", "MIG-1111"]),
        (f"MIG-{B}/8/0", ["MIG-1222"]),
    ],
)
def test_a_divided_gpu_stands_for_its_instances(visible: str | None, expected: list[str]) -> None:
    assert seen(divided(), visible) == expected


def test_an_instance_has_memory_of_its_own_and_its_cards_capability() -> None:
    gpu = read_gpus(divided(), {"CUDA_VISIBLE_DEVICES": "MIG-2"})[0]
    assert (gpu.mig, gpu.index, gpu.memory_bytes, gpu.capability) == (True, 1, 10.0 * GIB, (9, 0))
    assert math.isnan(gpu.utilisation)


def test_a_card_divided_into_nothing_is_no_gpu_and_a_lost_one_neither() -> None:
    assert seen(FakeNvml(Card(A, lost=True), Card(B, instances=[]), Card(C)), None) == [C]


def test_what_a_driver_does_not_tell_is_nan_not_an_error() -> None:
    card = Card(A, memory_bytes=None, busy_percent=None, capability=(7, 5), compute_mode=9)
    (gpu,) = read_gpus(FakeNvml(card), {})
    assert math.isnan(gpu.memory_bytes)
    assert math.isnan(gpu.free_bytes)
    assert gpu.compute_mode == "unknown"


def test_nvml_is_let_go_once_it_was_asked() -> None:
    library = FakeNvml(Card(A))
    read_gpus(library, {})
    assert library.initialised == 0


def test_without_a_driver_there_is_no_gpu_and_a_reason() -> None:
    library = FakeNvml(Card(A), broken=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert read_gpus(library, {}) == ()
    with pytest.raises(NvmlUnavailableError, match="NVML can't be asked: RM has detected an NVML/RM version mismatch"):
        ask_gpus(library, {})


def test_a_monitor_takes_the_mean_of_what_is_new() -> None:
    card = Card(A, used_bytes=5, busy_percent=90, samples=[(10, 20), (20, 40)])
    monitor = GpuMonitor(A, FakeNvml(Card(B), card))
    assert monitor.utilisation() == pytest.approx(0.3)
    card.samples.append((30, 100))
    assert monitor.utilisation() == 1.0
    assert monitor.utilisation() == 0.9
    assert monitor.memory_bytes() == 5.0
    card.memory_bytes = card.busy_percent = None
    assert math.isnan(monitor.memory_bytes())
    assert math.isnan(monitor.utilisation())


def test_a_monitor_of_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(NvmlUnavailableError, match="NVML knows no GPU GPU-cccc3333"):
        GpuMonitor(C, FakeNvml(Card(A)))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="makes a library with gcc")
def test_nvml_is_found_where_windows_puts_it(tmp_path: Path) -> None:
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text("int nvmlInit_v2(void) { return 0; } int nvmlInitWithFlags(unsigned f) { return 0; }\n")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(source)], check=True
    )
    program = (
        f"import pathlib, tuner.machine.nvml as nvml; nvml.WSL_LIBRARY = pathlib.Path({str(library)!r}); "
        "print(nvml.ask_gpus(environment={}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=python_environment(), check=False
    )
    assert (done.stdout, done.stderr) == ("()\n", "")
