"""All checks: their names, the functions that make them, what they find, and what to do if they crash."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

DRIVER = "update the GPU's driver, or run on the CPU with --gpus-per-trial 0"
OFF = "none is needed: training works without it"
REINSTALL = "reinstall torch and torchvision together, as https://pytorch.org/get-started/locally says"
Status = Literal["ok", "notice", "failed", "none here", "skipped"]


@dataclass(frozen=True)
class Subject:
    """What is examined.

    Attributes:
        device: "cpu", or "cuda" in a process that sees one GPU
        storage: folder of the runs
        data_dir: folder of the data sets
    """

    device: str = "cpu"
    storage: str = "runs"
    data_dir: str = "data"


@dataclass(frozen=True)
class Check:
    """One check, a function of a `Subject` that gives a `Finding`.

    Attributes:
        function: "module:function", imported only in the process that makes the check
        fix: what to do if it crashes, raises or hangs
        severity: the status of a crash
        seconds: that it may take, also on a busy machine, before it counts as hanging
        needed: whether later checks on the same device are skipped if it fails
        technique: the technique of `tuner.machine.techniques` that training doesn't use if it fails
    """

    name: str
    function: str
    fix: str
    severity: Status = "failed"
    seconds: float = 60.0
    needed: bool = False
    technique: str | None = None


_ALL = (
    Check("python", "tuner.doctor.host:python", "install Python 3.11 or later"),
    Check("disk", "tuner.doctor.host:disk", "free some space, or choose another disk with --storage"),
    Check("temporary", "tuner.doctor.host:temporary", "set TMPDIR to a folder that can be written to"),
    Check("shared memory", "tuner.doctor.host:shared_memory", "mount /dev/shm", "notice"),
    Check("data folder", "tuner.doctor.host:data_folder", "choose another with --data-dir"),
    Check("ports", "tuner.doctor.host:ports", "let programs open ports on 127.0.0.1"),
    Check("network", "tuner.doctor.host:network", "use weights=None or a file where there is no network", "notice", 20),
    Check("compiler", "tuner.doctor.host:compiler", "install gcc and Python's headers", "notice", technique="compile"),
    Check("GPU driver", "tuner.doctor.host:gpus", DRIVER, "notice"),
    Check("ray", "tuner.driver.cluster:ray_starts", "reinstall ray[tune]", seconds=120),
    Check("torch", "tuner.doctor.software:torch_fits", REINSTALL, seconds=120, needed=True),
    Check("cache", "tuner.doctor.software:cache", "set TUNER_CACHE to a folder on another disk"),
    Check("wheel", "tuner.doctor.gpu:wheel", DRIVER, seconds=120, needed=True),
    Check("sharing", "tuner.doctor.gpu:sharing", DRIVER),
    Check("fp32", "tuner.doctor.trial_steps:fp32", DRIVER, seconds=120, needed=True),
    Check("bf16", "tuner.doctor.trial_steps:bf16", "use precision='fp32'", "notice", 120, technique="bf16"),
    Check("fp16", "tuner.doctor.trial_steps:fp16", "use precision='fp32'", "notice", 120, technique="fp16"),
    Check(
        "resume", "tuner.doctor.trial_steps:resume", "use NoEarlyStopping(), so that no trial is paused", seconds=120
    ),
    Check("memory", "tuner.doctor.trial_steps:memory", "use a batch_size that surely fits", seconds=120),
    Check("graph", "tuner.doctor.gpu:graph", OFF, "notice", 120, technique="graph"),
    Check("assert", "tuner.doctor.gpu:device_assert", "check labels before a search", seconds=120),
    Check("compile", "tuner.doctor.gpu:compiled", OFF, "notice", 300, technique="compile"),
    Check("two processes", "tuner.doctor.trial_steps:two_processes", "use one device for a trial", "notice", 120),
)
CHECKS = {check.name: check for check in _ALL}

HOST = ("python", "disk", "temporary", "shared memory", "data folder", "ports", "network", "compiler", "GPU driver")
SOFTWARE = ("torch", "cache")
ON_CPU = ("fp32", "bf16", "fp16", "resume", "memory", "two processes")
ON_GPU = ("wheel", "sharing", "fp32", "bf16", "fp16", "resume", "memory", "graph", "assert")
BEFORE_A_SEARCH = ("compiler", "wheel", "fp32", "bf16", "fp16", "resume", "graph")


@dataclass(frozen=True)
class Finding:
    """One line of `tuner doctor`.

    Attributes:
        status: a search works with "notice", less well; it doesn't with "failed"
        said: what was found
        fix: what to do; empty if nothing
        check: name of the check; set later, like the next
        where: "this machine", "CPU", "GPU 0"
    """

    status: Status
    said: str
    fix: str = ""
    check: str = ""
    where: str = ""

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def ok(said: str) -> Finding:
    """All is well."""
    return Finding("ok", said)


def notice(said: str, fix: str) -> Finding:
    """A search works, less well than it could."""
    return Finding("notice", said, fix)


def failed(said: str, fix: str) -> Finding:
    """A search won't work."""
    return Finding("failed", said, fix)


def none_here(said: str = "none here") -> Finding:
    """There is nothing to check on this machine."""
    return Finding("none here", said)
