"""Checks of the machine, without torch or Ray."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
import sysconfig
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from tuner.doctor.checks import Finding, Subject, failed, none_here, notice, ok
from tuner.machine.hardware import gpu_source, this_machine

LEAST_PYTHON = (3, 11)
WRITTEN_BYTES = 8 * 2**20  # a small model's checkpoint
SCARCE_BYTES = 2 * 2**30  # a search of tens of trials writes about as much
LEAST_SHARED_BYTES = 256 * 2**20  # Ray's object store and some more
WEIGHTS_HOST = "https://download.pytorch.org"
GIB = 2**30


def python(subject: Subject) -> Finding:
    """Python is new enough, and its standard library is whole."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < LEAST_PYTHON:
        return failed(f"tuner needs Python 3.11 or later, got {version}", "install a newer one")
    missing = [name for name in ("sqlite3", "ssl", "lzma", "ctypes", "bz2") if importlib.util.find_spec(name) is None]
    if missing:
        return failed(f"Python {version} was built without {', '.join(missing)}", "install a whole one")
    return ok(f"{version} in {sys.prefix}")


def disk(subject: Subject) -> Finding:
    """A checkpoint can be written to the storage folder, or to where that will be created."""
    return _room(Path(subject.storage), "--storage")


def temporary(subject: Subject) -> Finding:
    """A checkpoint can be written to the temporary directory."""
    return _room(Path(tempfile.gettempdir()), "TMPDIR")


def data_folder(subject: Subject) -> Finding:
    """Data sets can be read, or downloaded if the folder doesn't exist yet."""
    folder = Path(subject.data_dir)
    if folder.is_dir() and os.access(folder, os.R_OK | os.X_OK):
        sets = sorted(path.name for path in folder.iterdir() if path.is_dir())
        return ok(f"{folder.absolute()} has {', '.join(sets[:5]) or 'nothing yet'}")
    if folder.exists():
        return failed(f"data needs a folder that can be read, got {str(folder)!r}", "choose another with --data-dir")
    return _room(folder, "--data-dir")


def shared_memory(subject: Subject) -> Finding:
    """Ray's object store and NCCL have room in /dev/shm."""
    if not Path("/dev/shm").is_dir():
        return none_here("no /dev/shm here")
    free = shutil.disk_usage("/dev/shm").free
    if free < LEAST_SHARED_BYTES:
        said = f"/dev/shm should have {LEAST_SHARED_BYTES // 2**20} MiB free, got {free / 2**20:.0f} MiB"
        return notice(said, "start the container with --shm-size=1g, or delete what fills it")
    return ok(f"/dev/shm has {free / GIB:.1f} GiB free")


def ports(subject: Subject) -> Finding:
    """Programs of this machine reach each other on 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"tuner")
            answer = accepted.recv(5)
    return ok("programs reach each other on 127.0.0.1") if answer == b"tuner" else failed("127.0.0.1 loses data", "")


def network(subject: Subject) -> Finding:
    """ImageNet weights can be downloaded."""
    request = urllib.request.Request(WEIGHTS_HOST, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except urllib.error.HTTPError:  # it answers
        pass
    except OSError as error:
        fix = "use weights=None or a file, or set https_proxy; weights that are downloaded already need no network"
        return notice(f"{WEIGHTS_HOST} can't be reached ({getattr(error, 'reason', error)})", fix)
    return ok(f"{WEIGHTS_HOST} answers")


def compiler(subject: Subject) -> Finding:
    """torch.compile needs a C compiler and Python's headers on a GPU as well."""
    found = next(
        (name for name in (os.environ.get("CC", ""), "gcc", "cc", "clang") if name and shutil.which(name)), None
    )
    if found is None:
        return notice("torch.compile needs a C compiler, got none in PATH; it is off", "install gcc")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        fix = "install Python's headers (python3-dev or python3-devel)"
        return notice(f"torch.compile needs Python's headers, got no {header}; it is off", fix)
    return ok(f"{found}, with Python's headers")


def gpus(subject: Subject) -> Finding:
    """Where the count of GPUs comes from."""
    count = this_machine().gpus
    if count:
        return ok(f"{count} GPU{'s' if count > 1 else ''} by {gpu_source()}")
    source = gpu_source()
    if "; yet " in source:
        return notice(source, "start the container with --gpus all")
    return none_here(f"none here ({source})")


def _room(folder: Path, option: str) -> Finding:
    """Write as many bytes as a checkpoint has to the disk of `folder`."""
    present = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    fix = f"free some of it, or choose another folder with {option}"
    try:
        with tempfile.TemporaryFile(dir=present) as file:
            file.write(bytes(WRITTEN_BYTES))
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(present).free
    except OSError as error:
        why = f"an error from {present} ({error.strerror or error})"
        return failed(f"{folder} has to take {WRITTEN_BYTES // 2**20} MiB, got {why}", fix)
    if free < SCARCE_BYTES:
        return notice(f"{present} has {free / GIB:.2f} GiB free, which checkpoints of a search may fill", fix)
    return ok(f"{present} takes files, {free / GIB:.0f} GiB free")
