"""All checks of a machine: which checks run on which device and in which process, and their findings in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.doctor.checks import CHECKS, HOST, ON_CPU, ON_GPU, REINSTALL, SOFTWARE, Finding, Subject, none_here
from tuner.doctor.gpu import judge_memory
from tuner.machine.child_process import ending
from tuner.machine.hardware import mps_runs, python_environment, this_machine
from tuner.machine.nvml import Gpu, read_gpus

AT_ONCE = 4  # examiners, each of which imports torch or Ray
ENDING_SECONDS = 5.0  # of a process that has answered
IMPORT_SECONDS = 90.0  # that may take on a busy machine
MACHINE = "this machine"

Tell = Callable[[Finding], None]


@dataclass(frozen=True)
class Examination:
    """Checks that one process makes, one after another, on one device.

    Attributes:
        where: for people
        checks: names
        device: "cpu", or "cuda" if the environment shows the process only one GPU
        preload: modules that all its checks need
        environment: variables added to this process's
    """

    where: str
    checks: tuple[str, ...]
    device: str = "cpu"
    preload: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def narrowed(self, only: Collection[str]) -> Examination:
        """The examination with only the named checks; with all if none is named."""
        return replace(self, checks=tuple(name for name in self.checks if name in only)) if only else self

    def perform(self, subject: Subject, tell: Tell) -> list[Finding]:
        """Make the checks; `tell` is called with each finding as soon as it is made."""
        told: dict[str, Finding] = {}
        process = self._start(subject)
        limit = IMPORT_SECONDS + sum(CHECKS[name].seconds for name in self.checks)
        timer = threading.Timer(limit, process.kill)
        timer.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                found = replace(Finding(**json.loads(line)), where=self.where)
                told[found.check] = found
                tell(found)
            process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:  # all checks are done, but something hangs
            pass
        finally:
            timer.cancel()
            process.kill()
            code = process.wait()
            process.stdout.close()
        if code == -signal.SIGINT:  # Ctrl-C reaches all processes of the terminal
            raise KeyboardInterrupt
        made = len(told)
        for name in self.checks:
            if name not in told:
                told[name] = self._never_made(name, code, first=len(told) == made)
                tell(told[name])
        return [told[name] for name in self.checks]

    def _start(self, subject: Subject) -> subprocess.Popen[str]:
        settings = {"storage": subject.storage, "data_dir": subject.data_dir}
        request = {"preload": self.preload, "device": self.device, "settings": settings, "checks": self.checks}
        return subprocess.Popen(
            [sys.executable, "-m", "tuner.doctor.examiner", json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"OMP_NUM_THREADS": "1", **python_environment(), **self.environment},  # the steps are small
            text=True,
        )

    def _never_made(self, name: str, code: int, *, first: bool) -> Finding:
        if not first:
            return Finding("skipped", "its process ended before", "", name, self.where)
        said = f"the process that should have made this check {ending(code)}"
        return Finding("failed", said, REINSTALL if self.preload else CHECKS[name].fix, name, self.where)


def examine_machine(
    storage: str = "runs",
    data_dir: str = "data",
    *,
    only: Collection[str] = (),
    tell: Tell = lambda _: None,
) -> list[Finding]:
    """Check this machine for searches, in about 20 s; `tell` gets each finding at once, and all are returned in order.

    With `only`, just the checks of these names are made.
    """
    before = read_gpus()
    plan = [examination.narrowed(only) for examination in examinations(before, this_machine().gpus)]
    subject = Subject("cpu", storage, data_dir)
    findings = perform([each for each in plan if each.checks], subject, tell, at_once=at_once(before))
    if only:
        return findings
    last = _memory_given_back(before, read_gpus())
    for finding in last:
        tell(finding)
    return findings + last


def perform(plan: Sequence[Examination], subject: Subject, tell: Tell, *, at_once: int = AT_ONCE) -> list[Finding]:
    """Findings of all examinations, a few of which run at once, in the plan's order."""
    lock = threading.Lock()

    def tell_alone(finding: Finding) -> None:
        with lock:
            tell(finding)

    with ThreadPoolExecutor(min(at_once, max(2, os.cpu_count() or 2))) as threads:
        running: list[Future[list[Finding]]] = [
            threads.submit(examination.perform, subject, tell_alone) for examination in plan
        ]
        return [finding for future in running for finding in future.result()]


def examinations(gpus: Sequence[Gpu], count: int) -> list[Examination]:
    """What to examine on a machine with `count` GPUs; `gpus` are those that NVML describes."""
    seen = [show_alone(gpu) for gpu in gpus] or [show_alone_amd(number) for number in range(count)]
    plan = [Examination(MACHINE, HOST), Examination(MACHINE, ("ray",))]
    if not seen:
        return [*plan, Examination("CPU", SOFTWARE + ON_CPU, preload=("torch", "tuner.train"))]
    plan.append(Examination(MACHINE, SOFTWARE, preload=("torch",)))
    for number, environment in enumerate(seen):
        plan += on_gpu(number, environment, ON_GPU)
    if len(seen) > 1:
        plan.append(Examination("the GPUs", ("two processes",), "cuda", ("torch",)))
    return plan


def on_gpu(number: int, environment: Mapping[str, str], checks: tuple[str, ...]) -> list[Examination]:
    """Checks of one GPU; compiling, which takes longest, at the same time as the others."""
    shared: dict[str, Any] = {"device": "cuda", "preload": ("torch", "tuner.train"), "environment": environment}
    where = f"GPU {number}"
    return [Examination(where, checks, **shared), Examination(where, ("compile",), **shared)]


def at_once(gpus: Sequence[Gpu]) -> int:
    """How many examinations may run at the same time: one if a GPU accepts a single process."""
    exclusive = any(gpu.compute_mode == "exclusive_process" for gpu in gpus)
    return 1 if exclusive and not mps_runs() else AT_ONCE


def show_alone(gpu: Gpu) -> dict[str, str]:
    """The environment in which a process sees only this GPU."""
    return {"CUDA_VISIBLE_DEVICES": gpu.uuid}


def show_alone_amd(number: int) -> dict[str, str]:
    """The environment in which a process sees only this AMD GPU."""
    return {"HIP_VISIBLE_DEVICES": str(number)}


def _memory_given_back(before: Sequence[Gpu], after: Sequence[Gpu]) -> list[Finding]:
    """A finding for each GPU; on a machine without one, a line for everything that was not checked."""
    if not before:
        gpu_only = [name for name in (*ON_GPU, "compile") if name not in ON_CPU]
        return [replace(none_here(), check=name, where="GPU") for name in (*gpu_only, "memory given back")]
    later = {gpu.uuid: gpu for gpu in after}
    return [
        replace(judge_memory(gpu, later.get(gpu.uuid, gpu)), check="memory given back", where=f"GPU {number}")
        for number, gpu in enumerate(before)
    ]
