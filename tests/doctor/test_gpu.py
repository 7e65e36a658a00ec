"""Judgements on described cards; what only a GPU can show is run where there is one."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.fake_nvml import GIB, Card, FakeNvml
from tuner.doctor import examination
from tuner.doctor import gpu as gpu_checks
from tuner.doctor.checks import Subject
from tuner.doctor.gpu import compiled, device_assert, graph, judge_memory, judge_sharing, sharing
from tuner.doctor.wheels import TorchBuild, install, installed_torch, judge_unmanaged, judge_wheel, supports
from tuner.machine.child_process import call_apart
from tuner.machine.nvml import Gpu, GpuProcess, read_gpus

CU130 = TorchBuild("2.14.1+cu130", "13.0", None, ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"))
CU126 = TorchBuild("2.14.1+cu126", "12.6", None, ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"))
FROM = "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl"


def card(name: str, capability: tuple[int, int], *, cuda: int = 13000, driver: str = "580.65.06", mode: int = 0) -> Gpu:
    library = FakeNvml(Card("GPU-1", name=name, capability=capability, compute_mode=mode), cuda=cuda, driver=driver)
    return read_gpus(library, {})[0]


@pytest.mark.parametrize(
    ("gpu", "build", "said", "fix"),
    [
        (
            card("H100", (9, 0), cuda=12040, driver="550.54"),
            CU130,
            "torch 2.14.1+cu130 needs a driver for CUDA 13.0 (580.65 or later), got CUDA 12.4 of "
            "H100 (sm_90, driver 550.54)",
            f"update the driver, or {FROM}/cu126",
        ),
        (
            card("V100", (7, 0)),
            CU130,
            "torch 2.14.1+cu130 has kernels for sm_75, sm_80, sm_86, sm_90, sm_100, sm_120, got "
            "V100 (sm_70, driver 580.65.06)",
            f"{FROM}/cu126",
        ),
        (
            card("RTX 5090", (12, 0)),
            CU126,
            "torch 2.14.1+cu126 has kernels for sm_50, sm_60, sm_70, sm_75, sm_80, sm_86, sm_90, got "
            "RTX 5090 (sm_120, driver 580.65.06)",
            f"{FROM}/cu130",
        ),
        (
            card("RTX 5090", (12, 0), cuda=12080, driver="570.10"),
            CU126,
            "torch 2.14.1+cu126 has kernels for sm_50, sm_60, sm_70, sm_75, sm_80, sm_86, sm_90, got "
            "RTX 5090 (sm_120, driver 570.10)",
            "update the driver to 580.65 or later",
        ),
        (
            card("K80", (3, 7)),
            CU126,
            "torch 2.14.1+cu126 has kernels for sm_50, sm_60, sm_70, sm_75, sm_80, sm_86, sm_90, got "
            "K80 (sm_37, driver 580.65.06)",
            "no wheel has kernels for this card: run on the CPU with --gpus-per-trial 0",
        ),
        (
            card("H100", (9, 0)),
            TorchBuild("2.14.1+cpu", None, None, ()),
            "torch for a GPU has to be built for CUDA, got 2.14.1+cpu for H100 (sm_90, driver 580.65.06)",
            f"{FROM}/cu130",
        ),
    ],
    ids=["driver", "old card", "new card", "new card and old driver", "ancient card", "CPU wheel"],
)
def test_a_wheel_that_does_not_fit_is_named_with_the_one_that_does(
    gpu: Gpu, build: TorchBuild, said: str, fix: str
) -> None:
    found = judge_wheel(gpu, build)
    assert (found.status, found.said, found.fix) == ("failed", said, fix)


@pytest.mark.parametrize(
    ("gpu", "build"),
    [
        (card("H100", (9, 0)), CU130),
        (card("H100", (9, 0), cuda=12040), CU126),  # minor versions are compatible
        (card("RTX 4090", (8, 9)), CU130),  # runs sm_86's kernels
        (card("H100", (9, 0), cuda=13020), CU126),
        (card("T4", (7, 5)), CU130),
        (card("unknown", (0, 0), cuda=0), CU130),
    ],
)
def test_a_wheel_that_fits_passes(gpu: Gpu, build: TorchBuild) -> None:
    assert judge_wheel(gpu, build).status == "ok"


def test_a_gpu_that_torch_cannot_use_all_the_same_is_told_with_torchs_words() -> None:
    found = judge_wheel(
        card("H100", (9, 0)), dataclasses.replace(CU130, problem="CUDA error: system not yet initialized")
    )
    assert found.status == "failed"
    assert found.said.endswith("CUDA error: system not yet initialized")


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (("sm_80",), (8, 6), True),
        (("sm_86",), (8, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_90a",), (9, 1), False),
        (("sm_100f",), (10, 3), True),
        (("sm_90", "compute_90"), (12, 0), True),
        (("sm_90", "compute_90a"), (12, 0), False),
        (("sm_120",), (12, 1), True),
    ],
)
def test_kernels_run_on_their_generation_and_ptx_on_later_ones(
    architectures: tuple[str, ...], capability: tuple[int, int], runs: bool
) -> None:
    assert supports(architectures, capability) == runs


def test_a_gpu_of_amd_is_judged_without_nvml() -> None:
    assert judge_unmanaged(TorchBuild("2.14.1+rocm7.2", None, "7.2", ())).said == (
        "torch 2.14.1+rocm7.2 for ROCm 7.2, without NVML"
    )
    assert judge_unmanaged(dataclasses.replace(CU130, problem="no driver")).said == (
        "torch 2.14.1+cu130 can't use the GPU by CUDA: no driver"
    )


@pytest.mark.parametrize(
    ("mode", "mps", "status", "said"),
    [
        (0, False, "ok", "by turns; MPS doesn't run"),
        (0, True, "ok", "by MPS"),
        (3, True, "ok", "by MPS"),
        (3, False, "notice", "H100 takes one process at a time, as its compute mode is exclusive"),
        (2, True, "failed", "H100 is closed to compute"),
    ],
)
def test_who_may_share_a_gpu(mode: int, mps: bool, status: str, said: str) -> None:
    found = judge_sharing(card("H100", (9, 0), mode=mode), mps=mps)
    assert (found.status, found.said) == (status, said)


def test_memory_that_is_not_given_back_is_told() -> None:
    before = card("H100", (9, 0))
    assert judge_memory(before, dataclasses.replace(before, used_bytes=50 * 2**20)).status == "ok"
    after = dataclasses.replace(before, used_bytes=GIB)
    assert judge_memory(before, after).said == "1024 MiB more are used than before the checks"
    other = dataclasses.replace(after, processes=(GpuProcess(7, GIB),))
    assert judge_memory(before, other).said.endswith(", and a new process is there")
    assert judge_memory(before, dataclasses.replace(before, used_bytes=float("nan"))).status == "none here"


def test_the_installed_torch_tells_what_it_was_built_for() -> None:
    build = call_apart(installed_torch, 60)
    assert (build.version, build.cuda) == (torch.__version__, torch.version.cuda)
    assert build.architectures == tuple((torch._C._cuda_getArchFlags() or "").split())
    assert bool(build.problem) == (not torch.cuda.is_available())


def test_checks_that_need_a_gpu_say_so() -> None:
    for check in (graph, device_assert):
        assert check(Subject("cpu")).status == "none here"
    assert install(card("H100", (9, 0))) == f"{FROM}/cu130"


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pipe of MPS's daemon is there."""
    (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))


def test_under_mps_no_assert_is_tripped_as_it_would_end_the_work_of_others(mps: None) -> None:
    found = device_assert(Subject("cuda"))
    assert (found.status, found.said) == (
        "none here",
        "none here: under MPS it would end whatever else computes on the GPU",
    )


def test_mps_that_runs_is_told(mps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.machine.nvml._load", lambda: FakeNvml(Card("GPU-1")))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert sharing(Subject("cuda")).said == "by MPS"


class Replaying:
    """Stands in for `torch.cuda.CUDAGraph`, whose replay takes the last step again; `wrong` ones forget to."""

    def __init__(self, step: Callable[[], None], *, wrong: bool) -> None:
        self.replay = (lambda: None) if wrong else step


@pytest.mark.parametrize("wrong", [False, True])
def test_recorded_steps_are_held_against_eager_ones(monkeypatch: pytest.MonkeyPatch, wrong: bool) -> None:
    """All but the capture itself, which needs a GPU."""
    steps: list[tuple[Any, ...]] = []
    eager = gpu_checks._eager_step

    def noted(*arguments: Any) -> None:
        steps.append(arguments)
        eager(*arguments)

    monkeypatch.setattr(gpu_checks, "_eager_step", noted)
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Replaying(lambda: eager(*steps[3]), wrong=wrong))
    monkeypatch.setattr(torch.cuda, "graph", lambda recording: nullcontext())
    apart = gpu_checks.recorded_apart("cpu")
    assert apart == (pytest.approx(1.0) if wrong else 0.0)
    assert [arguments[0] is steps[0][0] for arguments in steps] == [True] * 4 + [False] * 3


@pytest.mark.slow
def test_a_compiled_network_has_the_gradients_of_the_plain_one() -> None:
    code = "import tuner.doctor.checks as c, tuner.doctor.gpu as g; print(g.compiled(c.Subject('cpu')).said)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=300)
    assert done.stdout == "a compiled network has the same gradients\n", done.stderr  # autograd may have run here


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("check", [sharing, graph, compiled, device_assert])
def test_a_gpu_passes(check: object) -> None:
    assert call_apart(lambda: check(Subject("cuda")), 120).status == "ok"  # type: ignore[operator]


ASKS_NOTHING = """
import sys
from importlib import import_module

import torch

def asked(*_):
    sys.exit("CUDA was asked")

torch._C._cuda_getDeviceCount = torch._C._cuda_init = torch._C._cuda_getDevice = asked
for module in sys.argv[1:]:
    import_module(module)
print(torch.cuda.is_initialized(), "torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_what_is_loaded_before_the_forks_asks_nothing_of_cuda_which_works_in_no_fork_of_who_asked() -> None:
    preload = {module for each in examination.on_gpu(0, {}, ("fp32",)) for module in each.preload}
    assert "tuner.train" in preload
    command = [sys.executable, "-c", ASKS_NOTHING, *preload]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.stdout == "False False\n", finished.stderr
