"""Processes that take a lease, and what is said of them."""

import select
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.commands import ROOT, environment
from tuner.errors import RunFolderError
from tuner.storage.folder import Folder
from tuner.storage.identity import ProcessIdentity
from tuner.storage.lease import Holder, Pace, _written, held

QUICK = Pace(renew_seconds=0.2, expire_seconds=2.0)


class Driver:
    """A process that takes the lease; see holding.py."""

    def __init__(self, uri: str, *, take_over: bool = False, pace: Pace = QUICK, within: str = "") -> None:
        numbers = (str(pace.renew_seconds), str(pace.expire_seconds))
        command = [sys.executable, "-m", "tests.storage.holding", uri, "yes" if take_over else "no", *numbers]
        self.process = subprocess.Popen(
            [*within.split(), *command],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def go(self, at: float = 0.0) -> None:
        """Let it try at that time."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{at}\n")
        self.process.stdin.flush()

    def says(self, seconds: float = 30) -> str:
        """Its next line; fails rather than wait for ever."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], seconds)[0], "it says nothing"
        return self.process.stdout.readline().strip()

    def release(self) -> str:
        """Everything that it says until its end."""
        return self.process.communicate(timeout=300)[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def refusal(folder: Folder, **options: object) -> str:
    with pytest.raises(RunFolderError) as caught, held(folder, **options):  # type: ignore[arg-type]
        pass
    return str(caught.value)


def lease_of(folder: Folder, holder: Holder) -> None:
    """A lease as its holder left it."""
    folder.write("lease/000001.json", _written(holder))


def somebody(**identity: object) -> Holder:
    """A holder like this very process, but for what is given."""
    process = replace(ProcessIdentity.current(), **identity)  # type: ignore[arg-type]
    return Holder("of-the-test", "elsewhere", process, "2026-01-31T09:30:00+00:00")
