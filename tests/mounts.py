"""Commands that are run where a file system of their own is mounted, which nobody else sees."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

APART = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]


def _can_mount() -> bool:
    try:
        return subprocess.run([*APART, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode == 0
    except OSError:  # there is no `unshare`
        return False


needs_mounts = pytest.mark.skipif(not _can_mount(), reason="needs a system that lets users mount")


def run_mounted(mount: str, folder: Path, *command: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command after `mount`, words for a shell in which "$1" is the folder."""
    run = [*APART, f'{mount}; shift; exec "$@"', "sh", folder, *command]
    return subprocess.run(run, capture_output=True, text=True, check=False, **options)


def run_on_tmpfs(size: str, folder: Path, *command: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command for which the folder is a disk of this size, as `mount` takes it."""
    return run_mounted(f'mount -t tmpfs -o size={size} none "$1"', folder, *command, **options)
