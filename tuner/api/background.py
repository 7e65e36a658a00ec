"""The handle of a search in its own process, for the notebook or script that started it.

The search's standard input stays open as long as the process that started it lives; when it is closed, the search saves
and ends. Ctrl-C in a terminal or a notebook doesn't reach the search, because it has its own session: only the waiting
process gets it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner import errors
from tuner.api.run import Run, load_run
from tuner.errors import StudyError, TunerError, describe_error
from tuner.lifecycle.interruption import GRACE_SECONDS
from tuner.lifecycle.targets import given_targets
from tuner.machine.child_process import ending, last_line, started
from tuner.machine.hardware import python_environment
from tuner.orders.steerable import Steerable
from tuner.results.representing import search_failure
from tuner.study.declaration import Study

SECONDS_BEYOND_GRACE = 60.0  # that a search may take to end after its grace period: Ray ends then
_LIVE: set[BackgroundSearch] = set()  # so that a search goes on even if nobody keeps its handle


def start_background(
    study: Study, changes: Mapping[str, Any], driving: Mapping[str, Any], *, storage: str | Path, raise_on_failure: bool
) -> BackgroundSearch:
    """Start a search; see `tuner.start`. `driving` are fields of `Driving`."""
    ready = study.with_options(**changes)  # so that errors are raised here, not seconds later
    ready.check_here(cluster=driving.get("address") is not None)
    given_targets(driving.get("notify") or ())
    grace = driving.get("grace")
    task = {
        "path": list(sys.path),
        "study": _pickled(study),
        "changes": dict(changes),
        "driving": {name: value for name, value in driving.items() if value is not None},
        "storage": str(storage),
    }
    search = BackgroundSearch(task, GRACE_SECONDS if grace is None else grace, raise_on_failure=raise_on_failure)
    search.await_begin()
    return search


def _pickled(study: Study) -> bytes:
    from tuner.worker.pickling import pickle_study

    try:
        return pickle_study(study)
    except Exception as error:
        raise StudyError(
            "a search in the background needs a study that can be sent to another process, got "
            f"{describe_error(error)}; use tuner.run"
        ) from error


class BackgroundSearch(Steerable):
    """A search that runs in the background; `tuner.start` makes one.

    As a context manager it waits for the end of the search, or saves and ends the search if the block raises. It
    accepts the same orders as a run: `stop`, `pause`, `set`, `try_`, `retry`, `note`.
    """

    def __init__(self, task: Mapping[str, Any], grace_seconds: float, *, raise_on_failure: bool) -> None:
        from ray import cloudpickle

        self._grace, self._raises = grace_seconds, raise_on_failure
        self._path: str | None = None
        self._error: tuple[str, str] | None = None
        self._begun, self._ended = threading.Event(), threading.Event()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 -- as long as the process runs
        self._process, reader = started(
            "tuner.driver.in_background",
            env=python_environment(),
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )
        _LIVE.add(self)
        threading.Thread(target=self._listen, args=(reader,), name="tuner-background", daemon=True).start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process says why it ended, or nothing
            cloudpickle.dump(dict(task), self._process.stdin)
            self._process.stdin.flush()

    # What it is

    @property
    def path(self) -> str:
        """Folder or URI of the run."""
        self.await_begin()
        assert self._path is not None
        return self._path

    @property
    def run(self) -> Run:
        """The run as it is now; it is read again each time."""
        return load_run(self.path)

    @property
    def running(self) -> bool:
        """Whether the search still runs."""
        return not self._ended.is_set()

    def __repr__(self) -> str:
        """Whether the search runs, and its run."""
        return f"<BackgroundSearch {'running' if self.running else 'ended'}: {self.run!r}>"

    # Waiting

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end of the search; returns the run. Ctrl-C ends the waiting, not the search.

        Raises:
            TimeoutError: it is still running after `timeout` seconds.
            SearchFailed: no trial succeeded, unless `raise_on_failure` was False.
            TunerError: the exception that `tuner.run` would have raised, or the process died.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the search is still running after {timeout:g} s: {self._path}")
        self._raise_error()
        failure = search_failure(self.run) if self._raises else None
        if failure is not None:
            raise failure
        return self.run

    def await_begin(self) -> None:
        """Wait until the run's folder exists. Raises what `tuner.run` would have raised before that."""
        try:
            self._begun.wait()
        except BaseException:
            self.interrupt()
            raise
        if self._path is None:
            self._raise_error()

    def interrupt(self) -> None:
        """Save and end the search, as a signal does, and wait until it has ended; `tuner.resume` goes on with it."""
        if self.running:
            self._process.terminate()
        if not self._ended.wait(self._grace + SECONDS_BEYOND_GRACE):
            self._process.kill()
            self._ended.wait()

    def __enter__(self) -> BackgroundSearch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.interrupt()
            return
        try:
            self.wait()
        except KeyboardInterrupt:
            self.interrupt()
            raise

    # Inside

    @property
    def _ordered(self) -> Run:
        return self.run

    def _listen(self, reader: int) -> None:
        """Receive the messages of the process until it ends."""
        with open(reader, encoding="utf-8") as told:
            for line in told:
                self._take(json.loads(line))
        code = self._process.wait()
        if code != 0 and self._error is None:
            self._error = ("TunerError", f"the search's process {ending(code)}{last_line(self._said)}")
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        _LIVE.discard(self)
        self._ended.set()
        self._begun.set()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "run" in message:
            self._path = message["run"]
            self._begun.set()
        if "error" in message:
            name, text = message["error"]
            self._error = (name, text)

    def _raise_error(self) -> None:
        if self._error is not None:
            name, text = self._error
            kind = getattr(errors, name, None)
            known = isinstance(kind, type) and issubclass(kind, StudyError)
            raise kind(text) if known and kind is not None else TunerError(text)
