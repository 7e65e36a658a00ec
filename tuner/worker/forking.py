"""Processes that a trial's code forks."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.worker.output import flush_streams


@contextmanager
def no_forked_process() -> Iterator[None]:
    """A process that was forked within the block ends where it would leave it: only the trial's own goes on.

    Otherwise it would do the trial's reports a second time, and wait for answers that never come.
    """
    own = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != own:
            _end(error)
        raise
    if os.getpid() != own:
        _end()


def _end(error: BaseException | None = None) -> None:
    """End this process as Python would after its main program."""
    code = error.code if isinstance(error, SystemExit) else error
    if isinstance(error, Exception | KeyboardInterrupt):
        traceback.print_exception(error)
    flush_streams()
    os._exit(code if isinstance(code, int) else int(code is not None))
