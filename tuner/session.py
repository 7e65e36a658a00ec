"""The calls of a trial while it runs: `tuner.report` and `tuner.checkpoint`.

The code that runs a trial activates a `Session` around it; the trial itself doesn't know what runs it. Outside of any
session `report` prints its metrics and `checkpoint` returns None, so that a training function can be tried out by
calling it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import Any, Protocol


class Session(Protocol):
    """The implementation of `report` and `checkpoint`, provided by the code that runs a trial."""

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        """Take one epoch's metrics, and the folder of the matching checkpoint."""

    def checkpoint(self) -> Path | None:
        """The folder to go on from, None for a trial that starts from its beginning."""


_current: ContextVar[Session | None] = ContextVar("tuner_session", default=None)


@contextmanager
def activate(session: Session) -> Iterator[None]:
    """Let `report` and `checkpoint` use `session` inside the block (in this thread)."""
    token = _current.set(session)
    try:
        yield
    finally:
        _current.reset(token)


def report(
    metrics: Mapping[str, Any] | None = None, /, *, checkpoint: str | PathLike[str] | None = None, **more: Any
) -> None:
    """Report one finished epoch; call it exactly once per epoch.

    `report(loss=0.3)` and `report({"loss": 0.3})` are the same. `checkpoint` is a folder that holds everything the
    trial needs to go on from here; it is copied before `report` returns. The call does not return if the trial is
    stopped. If epochs take less than 0.2 s, several are sent at once, and the trial only waits for the answer when
    early stopping may end or pause it, after a checkpoint, and at its last epoch; so another limit may end it up to a
    second late.

    Raises TypeError if a metric's name isn't a string, or nothing was reported.
    """
    values = {**(metrics or {}), **more}
    if not values or not all(isinstance(name, str) for name in values):
        raise TypeError(f"tuner.report needs at least one metric by name, got {values!r}; call tuner.report(loss=0.3)")
    folder = None if checkpoint is None else Path(checkpoint)
    session = _current.get()
    if session is None:
        print("tuner.report outside of a study:", ", ".join(f"{name}={value}" for name, value in values.items()))
    else:
        session.report(values, folder)


def checkpoint() -> Path | None:
    """The folder that this trial last passed to `report(checkpoint=...)`, None if it starts from its beginning."""
    session = _current.get()
    return None if session is None else session.checkpoint()
