"""Kills the process of a trial that hangs, after writing the stacks of its threads.

The watch is a C thread (`faulthandler.dump_traceback_later`), so that it also works if the trial hangs in C code and
blocks Python, and it needs no driver. It can't write to object storage, and doesn't see other processes that train the
trial: for these a Python thread acts before it. If that thread can't run, the process is killed without a record of
what they did.
"""

from __future__ import annotations

import faulthandler
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from tuner.history.stacks import drop_stacks, stacks_name
from tuner.storage.folder import Folder, LocalFolder

SECONDS_TO_WRITE = 15.0  # to an object store, before the process is killed anyway
SECONDS_TO_SHOW = 1.0  # for the trial's other processes to print their stacks
IN_THE_LOG = b"What the processes that train the trial were doing is in its log. Their worker:\n"


class HangWatch:
    """Kills this process once `seconds` pass without a report; None: never. Only one at a time in a process."""

    def __init__(self, folder: Folder, trial: str, seconds: float | None) -> None:
        self._folder, self._trial, self._seconds = folder, trial, seconds
        self._file: IO[bytes] | None = None
        self._timer: threading.Timer | None = None
        self._show: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the time, or restart it."""
        if self._seconds is None:
            return
        self.stop()
        self._file = self._file or self._open()
        alone = isinstance(self._folder, LocalFolder) and self._show is None
        seconds = self._seconds if alone else self._seconds + SECONDS_TO_WRITE
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._file.fileno())
        if not alone:
            self._timer = threading.Timer(self._seconds, self._kill)
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Stop watching for now."""
        if self._seconds is None:
            return
        faulthandler.cancel_dump_traceback_later()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """The trial is over."""
        self.stop()
        if self._file is not None:
            self._file.close()
            self._file = None
            drop_stacks(self._folder, self._trial)

    @contextmanager
    def of_several(self, show: Callable[[], None]) -> Iterator[None]:
        """Within the block other processes train the trial; `show` lets them print what they do into its log."""
        self._show = show
        self.start()
        try:
            yield
        finally:
            self.stop()
            self._show = None
            self.start()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Within the block the trial waits for the driver; that time doesn't count."""
        self.stop()
        yield
        self.start()

    def _open(self) -> IO[bytes]:
        """A file in the run folder; if that isn't writable, another one, so that at least the process is killed."""
        if isinstance(self._folder, LocalFolder):
            with suppress(OSError):
                path = self._folder.inside(stacks_name(self._trial))
                path.parent.mkdir(exist_ok=True)
                path.unlink(missing_ok=True)
                return path.open("xb", buffering=0)
        return tempfile.TemporaryFile(buffering=0)

    def _kill(self) -> None:
        if self._file is None:
            return
        with suppress(Exception):  # the process is killed even if the stacks can't be written
            self._tell(self._file)
        os._exit(1)

    def _tell(self, file: IO[bytes]) -> None:
        if self._show is not None:
            self._show()
            time.sleep(SECONDS_TO_SHOW)
            file.write(IN_THE_LOG)
        faulthandler.dump_traceback(file, all_threads=True)
        if not isinstance(self._folder, LocalFolder):
            file.seek(0)
            self._folder.write(stacks_name(self._trial), file.read())
