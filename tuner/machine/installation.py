"""What this installation of tuner can do: results can be read on every system, without Ray and torch."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from tuner.errors import StudyError

LIBRARIES = ("ray", "torch", "torchvision")  # of the extra `train`; others are their dependencies
SERVICE_LIBRARIES = ("fastapi", "uvicorn", "argon2", "prometheus_client")  # of the extra `service`
UNSUPPORTED = "Windows"  # Ray for it is in beta, and tuner's processes need signals, sessions and file locks of POSIX


def check_trains(what: str, *, libraries: Sequence[str] = LIBRARIES, system: str | None = None) -> None:
    """Raise StudyError if `what` (such as "a search") can't work: on Windows itself, in a light install, without
    docstrings.
    """
    if (system or platform.system()) == UNSUPPORTED:
        raise StudyError(
            f"{what} needs Linux or macOS, got Windows; install tuner in WSL2, Windows' own Linux (wsl --install)"
        )
    if sys.flags.optimize > 1 and "ray" in libraries:
        raise StudyError(
            f"{what} needs docstrings, which Ray reads as it is imported, got Python with PYTHONOPTIMIZE="
            f"{sys.flags.optimize}, or -OO; unset it, or use 1"
        )
    missing = [name for name in libraries if not is_installed(name)]
    if missing:
        needs = "Ray and torch" if "ray" in libraries else "torch"
        raise StudyError(
            f"{what} needs {needs}, got an installation without {', '.join(missing)}; pip install 'image-tuner[train]'"
        )


def check_serves(*, libraries: Sequence[str] = SERVICE_LIBRARIES, system: str | None = None) -> None:
    """Raise StudyError if no service can run: not on Linux, or without the extra `service`."""
    here = system or platform.system()
    if here != "Linux":
        raise StudyError(f"a service needs Linux, by whose /proc it knows its drivers, got {here}; run it on Linux")
    missing = [name for name in libraries if not is_installed(name)]
    if missing:
        raise StudyError(
            f"a service needs its libraries, got an installation without {', '.join(missing)}; "
            "pip install 'image-tuner[service,train]'"
        )


def is_installed(library: str) -> bool:
    """Whether a library is installed, without importing it; a folder of that name in the working directory doesn't
    count.
    """
    found = find_spec(library)
    return found is not None and found.origin is not None


def version_of(package: str) -> str | None:
    """The installed version of a package; None if it isn't installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
