"""What can go wrong beside a search, drawn from a seed: a killed driver, a power cut, a full disk, torn writes, a clock
set back.
"""

from __future__ import annotations

import errno
import io
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tuner.storage.folder import LocalFolder

WatchDeletion = Callable[[str], None]


class Killed(BaseException):
    """The driver dies here, past every handler."""


@dataclass
class Faults:
    """Says at each step whether something goes wrong there, `most` times in all; `likely` is the chance of each step.

    `kinds` are what may happen; with none it is an undisturbed search. With `at` it happens once, at that step.
    """

    seed: int
    kinds: frozenset[str] = frozenset()
    likely: float = 0.02
    most: int = 6
    at: int | None = None
    steps: int = 0
    happened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(f"faults {self.seed}")

    def strikes(self, kind: str, likely: float | None = None) -> bool:
        """Whether this happens now."""
        if kind not in self.kinds or len(self.happened) >= self.most:
            return False
        self.steps += 1
        if self.at is not None:
            if self.steps - 1 != self.at:
                return False
        elif self.random.random() >= (self.likely if likely is None else likely):
            return False
        self.happened.append(kind)
        return True

    def may_kill(self) -> None:
        """A place at which the driver may be killed, or the power may go. Raises Killed."""
        if self.strikes("kill") or self.strikes("power"):
            raise Killed


class Clock:
    """Stands in for the module `time` where events get theirs: `step` seconds a look, and now and then an hour back."""

    def __init__(self, faults: Faults, step: float = 1) -> None:
        self._faults, self._step, self._now, self._elapsed = faults, step, 1_000_000.0, 0.0

    def time(self) -> float:
        self._now += -3600 if self._faults.strikes("clock") else self._step
        return self._now

    def monotonic(self) -> float:
        self._elapsed += self._step
        return self._elapsed


class _Device(io.RawIOBase):
    """An open file of a disk that fills up, and of a process that may be killed while it writes."""

    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__()
        self._file, self._faults, self._dead = path.open("ab", buffering=0), faults, False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, content: bytes, /) -> int:  # type: ignore[override]
        if self._dead:
            return len(content)  # what a dead process still held in its buffer
        whole = bytes(content)
        if self._faults.strikes("kill"):
            self._die(whole[: self._faults.random.choice([0, len(whole) // 2, len(whole) - 1, len(whole)])])
        if self._faults.strikes("full disk"):
            self._file.write(whole[: self._faults.random.choice([0, len(whole) // 2])])
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write(whole)
        if self._faults.strikes("kill") or self._faults.strikes("power"):
            self._die(b"")
        return len(whole)

    def abandon(self) -> None:
        """The process is gone: nothing more is written."""
        self._dead = True

    def close(self) -> None:
        self._file.close()
        super().close()

    def _die(self, last: bytes) -> None:
        self._file.write(last)
        self._dead = True
        raise Killed


class Disk(LocalFolder):
    """A run folder in which a driver can die before, amid and after each write and deletion; `watch` sees these."""

    def __init__(self, path: Path, faults: Faults, watch: WatchDeletion) -> None:
        super().__init__(path)
        self._faults, self._watch = faults, watch
        self._devices: list[_Device] = []

    def child(self, name: str) -> Disk:
        return Disk(self.path / name, self._faults, self._watch)

    def append_to(self, name: str) -> io.BufferedWriter:
        super().append_to(name).close()
        self._devices.append(_Device(self.path / name, self._faults))
        return io.BufferedWriter(self._devices[-1])

    def delete(self, name: str) -> None:
        self._faults.may_kill()
        self._watch(str(self.path / name))
        if self._faults.strikes("kill"):
            for part in self._faults.random.sample(["manifest.json", "files"], 1):
                self._delete_part(self.path / name / part)
            raise Killed
        super().delete(name)
        self._faults.may_kill()

    def abandon(self) -> None:
        """The driver is dead."""
        for device in self._devices:
            device.abandon()

    def _delete_part(self, path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
