"""Which build of torch fits a GPU and its driver, and whether the installed one does. It only uses what NVML and torch
say, so all of it is tested with descriptions of cards.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.doctor.checks import DRIVER, Finding, failed, ok
from tuner.machine.nvml import Gpu

INDEX_URL = "https://download.pytorch.org/whl"


@dataclass(frozen=True)
class Wheel:
    """A build of torch: its cards, and its oldest driver (https://pytorch.org/get-started/locally,
    https://docs.nvidia.com/cuda/cuda-toolkit-release-notes, minor version compatibility).
    """

    tag: str
    cuda: tuple[int, int]
    driver: str
    oldest: tuple[int, int]
    newest: tuple[int, int]

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether it has kernels for the card."""
        return self.oldest <= capability <= self.newest


WHEELS = (
    Wheel("cu126", (12, 6), "525.60", (5, 0), (9, 0)),
    Wheel("cu130", (13, 0), "580.65", (7, 5), (12, 1)),
)


@dataclass(frozen=True)
class TorchBuild:
    """The torch that is installed: `cuda` and `hip` are the versions that it was built for; None for neither.

    `architectures` are like "sm_90" (kernels) and "compute_90" (compiled at first use); `problem` is why it sees no
    GPU.
    """

    version: str
    cuda: str | None
    hip: str | None
    architectures: tuple[str, ...]
    problem: str = ""


def installed_torch() -> TorchBuild:
    """The torch of this process; its GPUs are initialised."""
    import torch

    problem = ""
    try:
        torch.zeros(1, device="cuda").add_(1).item()
    except Exception as error:
        problem = str(error).strip().split("\n")[0]
    architectures = tuple((torch._C._cuda_getArchFlags() or "").split()) if torch.version.cuda else ()
    return TorchBuild(str(torch.__version__), torch.version.cuda, torch.version.hip, architectures, problem)


def judge_wheel(gpu: Gpu, build: TorchBuild) -> Finding:
    """Whether torch's build fits an NVIDIA GPU and its driver."""
    card = f"{gpu.name} (sm_{gpu.capability[0]}{gpu.capability[1]}, driver {gpu.driver})"
    if build.cuda is None:
        return failed(f"torch for a GPU has to be built for CUDA, got {build.version} for {card}", install(gpu))
    major = int(build.cuda.partition(".")[0])
    if gpu.cuda != (0, 0) and major > gpu.cuda[0]:
        driver = next((wheel.driver for wheel in WHEELS if wheel.cuda[0] == major), "a newer one")
        known = f"CUDA {gpu.cuda[0]}.{gpu.cuda[1]}"
        said = f"torch {build.version} needs a driver for CUDA {build.cuda} ({driver} or later), got {known} of {card}"
        return failed(said, f"update the driver, or {install(gpu)}")
    if gpu.capability != (0, 0) and not supports(build.architectures, gpu.capability):
        has = ", ".join(build.architectures)
        return failed(f"torch {build.version} has kernels for {has}, got {card}", install(gpu))
    if build.problem:
        return failed(f"torch {build.version} can't use {card}: {build.problem}", DRIVER)
    return ok(f"{card}, CUDA {build.cuda} of torch {build.version}")


def judge_unmanaged(build: TorchBuild) -> Finding:
    """Like `judge_wheel` without NVML: a GPU of AMD, or a container without the driver's library."""
    if build.problem:
        kind = "ROCm" if build.hip else "CUDA"
        return failed(f"torch {build.version} can't use the GPU by {kind}: {build.problem}", DRIVER)
    return ok(
        f"torch {build.version} for {'ROCm ' + build.hip if build.hip else 'CUDA ' + str(build.cuda)}, without NVML"
    )


def install(gpu: Gpu) -> str:
    """The command that installs the newest wheel for the card and its driver; else what would have to change."""
    for_card = [wheel for wheel in WHEELS if wheel.runs_on(gpu.capability)]
    usable = [wheel for wheel in for_card if wheel.cuda[0] <= gpu.cuda[0] or gpu.cuda == (0, 0)]
    if usable:
        return f"pip install --force-reinstall torch torchvision --index-url {INDEX_URL}/{usable[-1].tag}"
    if for_card:
        return f"update the driver to {for_card[0].driver} or later"
    return "no wheel has kernels for this card: run on the CPU with --gpus-per-trial 0"


def supports(architectures: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Whether kernels for one of them run on the card: those of its generation, or code compiled when it is used."""
    for name in architectures:
        kind, _, number = name.partition("_")
        version = int(number.rstrip("af"))
        built = (version // 10, version % 10)
        exact = number.endswith("a")  # features of only one card
        if kind == "compute" and not exact and built <= capability:
            return True
        if built == capability or (not exact and built[0] == capability[0] and built <= capability):
            return True
    return False
