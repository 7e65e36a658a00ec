"""The calls of a trial while it runs: `tuner.report` and `tuner.checkpoint`.

The code that runs a trial activates a `Session` around it; the trial itself doesn't know what runs it. Outside of any
session `report` prints its metrics and `checkpoint` returns None, so that a training function can be tried out by
calling it. A thread has the session that its context holds, else that of the trial that started it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from tuner.errors import StudyError


class Session(Protocol):
    """The implementation of `report` and `checkpoint`, provided by the code that runs a trial."""

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        """Take one epoch's metrics, and the folder of the matching checkpoint. Raises SystemExit to end the trial."""

    def checkpoint(self) -> Path | None:
        """The folder to go on from, None for a trial that starts from its beginning."""

    def ignored(self) -> None:
        """The trial's code has caught a SystemExit of `report`, and is about to report again."""


class _Activation:
    """A session while its trial's code runs, with the process and the threads that it is for."""

    def __init__(self, session: Session) -> None:
        self.session, self.process, self.over = session, os.getpid(), False
        self.earlier = WeakSet(threading.enumerate())  # threads that aren't the trial's
        self._main = threading.current_thread()
        self._told: WeakSet[threading.Thread] = WeakSet()  # the threads in which SystemExit was raised
        self._calling: WeakSet[threading.Thread] = WeakSet()
        self._reporting, self._changing = threading.Lock(), threading.Lock()

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        """Report for the calling thread; if that ends the trial, its main thread ends, too."""
        thread = threading.current_thread()
        if thread in self._told and not _is_exiting():
            if thread is self._main:
                self.session.ignored()
            raise SystemExit(0)  # of other threads, pools keep the exception and take the next task
        self._calling.add(thread)
        try:
            with self._reporting:
                self.session.report(metrics, checkpoint)
        except SystemExit:
            self._told.add(thread)
            self._end_main()
            raise
        finally:
            self._calling.discard(thread)

    @property
    def stopped(self) -> bool:
        """Whether a report has ended the trial."""
        return bool(self._told)

    def leave(self) -> None:
        """The trial's code is over; once this returns, nothing is raised in its main thread any more."""
        self.over = True  # also if SystemExit is raised while this waits
        with self._changing:
            pass

    def _end_main(self) -> None:
        """Raise SystemExit in the trial's main thread, unless a call of it raises that anyway."""
        with self._changing:
            if self.over or self._main in self._told or self._main in self._calling:
                return
            self._told.add(self._main)
            ident = ctypes.c_ulong(self._main.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))


_current: ContextVar[_Activation | None] = ContextVar("tuner_session", default=None)
_active: list[_Activation] = []  # of all threads of this process, and of the one that it was forked from


@contextmanager
def activate(session: Session) -> Iterator[None]:
    """Let `report` and `checkpoint` use `session` inside the block, in this thread and those that it starts."""
    activation = _Activation(session)
    token = _current.set(activation)
    _active.append(activation)
    try:
        try:
            yield
        finally:
            activation.leave()
    finally:
        _active.remove(activation)
        _current.reset(token)


def report(
    metrics: Mapping[str, Any] | None = None, /, *, checkpoint: str | PathLike[str] | None = None, **more: Any
) -> None:
    """Report one finished epoch; call it exactly once per epoch.

    `report(loss=0.3)` and `report({"loss": 0.3})` are the same. `checkpoint` is a folder that holds everything the
    trial needs to go on from here; it is copied before `report` returns. The call does not return if the trial is
    stopped: it raises SystemExit. If epochs take less than 0.2 s, several are sent at once, and the trial only waits
    for the answer when early stopping may end or pause it, after a checkpoint, and at its last epoch; so another limit
    may end it up to a second late.

    Raises TypeError if a metric's name isn't a string, or nothing was reported; RuntimeError in a process that the
    trial forked, and in a thread that isn't the trial's.
    """
    values = {**(metrics or {}), **more}
    if not values or not all(isinstance(name, str) for name in values):
        raise TypeError(f"tuner.report needs at least one metric by name, got {values!r}; call tuner.report(loss=0.3)")
    folder = None if checkpoint is None else Path(checkpoint)
    activation = _activation("report")
    if activation is None:
        print("tuner.report outside of a study:", ", ".join(f"{name}={value}" for name, value in values.items()))
    else:
        activation.report(values, folder)


def checkpoint() -> Path | None:
    """The folder that this trial last passed to `report(checkpoint=...)`, None if it starts from its beginning.

    Raises RuntimeError where `report` does.
    """
    activation = _activation("checkpoint")
    return None if activation is None else activation.session.checkpoint()


def chosen(metrics: Mapping[str, float], names: Sequence[str], fix: str) -> dict[str, float]:
    """Of what a trainer has measured, the metrics of these names, or all if there are no names.

    Raises StudyError for one that isn't there, and where nothing is.
    """
    missing = [name for name in names if name not in metrics]
    if missing or not metrics:
        got = f"no {', '.join(missing)}; there are {', '.join(metrics) or 'none'}" if missing else "none"
        raise StudyError(f"a report needs metrics, got {got}; {fix}")
    return {name: metrics[name] for name in names or metrics}


def _activation(call: str) -> _Activation | None:
    """That of the calling thread; None outside of any. Raises RuntimeError if it is another's."""
    found = _current.get() or _activation_of_thread(call)
    if found is not None and found.process != os.getpid():
        raise RuntimeError(
            f"tuner.{call} works in the trial's own process, got a call in process {os.getpid()}, which was forked "
            f"from it; hand values over, for example by a queue, and call it in the trial's function"
        )
    if found is not None and found.over:
        if found.stopped and not any(each.process == os.getpid() for each in _active):  # else it may be a later trial's
            raise SystemExit(0)
        raise RuntimeError(
            f"tuner.{call} works while the trial runs, got a call after its end in a thread that it had started; "
            "join the thread before the training function returns"
        )
    return found


def _activation_of_thread(call: str) -> _Activation | None:
    """The one of the trial that started the calling thread, which has a context of its own."""
    here = [each for each in _active if each.process == os.getpid()] or _active
    own = [each for each in here if threading.current_thread() not in each.earlier]
    if len(own) > 1 or (here and not own):
        got = f"{len(own)} that may have" if own else "one that was there before the trial"
        fix = "run it in contextvars.copy_context()" if own else "start a new one in each trial"
        raise RuntimeError(f"tuner.{call} works in threads that a trial started, got {got}; {fix}")
    if own:
        _current.set(own[0])  # so that the thread doesn't report to a later trial
    return own[0] if own else None


def _is_exiting() -> bool:
    """Whether the calling code is handling SystemExit: in an `except` or `finally` that it has not left."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, SystemExit):
        error = error.__context__
    return error is not None
