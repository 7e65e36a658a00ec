"""NVIDIA's MPS for one search: without it processes that share a GPU take turns on it, and nothing overlaps.

See https://docs.nvidia.com/deploy/mps. The daemon serves this search's workers alone, and ends with the search.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from tuner.driver.local_ray import GUARD_SECONDS, short_folder, start_guard
from tuner.driver.patching import environment
from tuner.machine.hardware import MPS_PROGRAM, MPS_VARIABLE, mps_runs
from tuner.machine.temporary import OwnedFolder
from tuner.study.declaration import Study

STARTING_SECONDS = 10.0
PROBE_SECONDS = 30.0
PROBE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
raise SystemExit(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0))
"""
LOG_VARIABLE = "CUDA_MPS_LOG_DIRECTORY"
_SILENT: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)


@contextmanager
def overlapping(study: Study) -> Iterator[None]:
    """Within the block MPS serves new processes if trials of the study share GPUs, and it is installed.

    A daemon that runs already is used, and left alone. If none works, trials take turns, which the search says.
    """
    program = shutil.which(MPS_PROGRAM)
    if study.resources.packed != "gpus" or program is None or mps_runs():
        yield
        return
    folder = OwnedFolder("mps", within=short_folder("control_privileged"))
    guard = start_guard(folder.path)
    assert guard.stdin is not None
    try:
        told = {MPS_VARIABLE: str(folder.path), LOG_VARIABLE: str(folder.path)}
        daemon = _started(program, told)
        guard.stdin.write(f"{daemon.pid}\n".encode())
        guard.stdin.flush()
        try:
            with environment(told) if _serves(told) else nullcontext():
                yield
        finally:
            _end(daemon)
    finally:
        guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            guard.wait(GUARD_SECONDS)  # it ends what is left of the daemon
        folder.delete()


def _started(program: str, told: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The daemon, once processes can reach it or it has ended."""
    daemon = subprocess.Popen([program, "-f"], **_SILENT, env={**os.environ, **told}, start_new_session=True)
    until = time.monotonic() + STARTING_SECONDS
    while not mps_runs(told) and daemon.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    return daemon


def _serves(told: Mapping[str, str]) -> bool:
    """Whether a process can use a GPU through the daemon, which fails in some containers and virtual machines."""
    command = [sys.executable, "-I", "-S", "-c", PROBE]
    try:
        done = subprocess.run(command, **_SILENT, env={**os.environ, **told}, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return mps_runs(told) and not done.returncode


def _end(daemon: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(daemon.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        daemon.wait(GUARD_SECONDS / 2)
