"""Further nodes of a Ray cluster on this machine, each an address of loopback, with variables and disks of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import ROOT, environment

NEEDS_PLAIN_PATH = pytest.mark.skipif(
    " " in sys.executable, reason="Ray's own nodes start no workers by a Python whose path has a space"
)


@contextmanager
def further_node(
    cluster: str, *before: str | Path, address: str = "127.0.0.3", folder: Path | None = None, **variables: str
) -> Iterator[str]:
    """A node with a CPU for the length of the block, started in `folder` after the words `before`; yields its id."""
    process = subprocess.Popen(
        [*before, sys.executable, ROOT / "tests" / "one_node.py", cluster, address],
        cwd=folder,
        env=environment(RAY_USAGE_STATS_ENABLED="0", **variables),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name, "the node did not start"
        yield name
    finally:
        process.terminate()
        process.communicate(timeout=60)
