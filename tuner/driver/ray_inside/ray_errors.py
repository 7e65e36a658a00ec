"""What Ray's exceptions say, without Ray's own words around it."""

from __future__ import annotations

import re

from ray.exceptions import RayTaskError

from tuner.driver.ray_inside.names import present
from tuner.errors import describe_error

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # for a terminal


def message_of(error: BaseException | None) -> str:
    """One line: the exception that was raised in a worker, or the first line that Ray says."""
    raised = _raised(error)
    if raised is not None:
        return describe_error(raised)
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def text_of(error: BaseException | None) -> str:
    """All that Ray says of it, such as the traceback in a worker."""
    return _COLOURS.sub("", str(error))


def _raised(error: BaseException | None) -> BaseException | None:
    """The exception that a worker's code raised, None if it was none of these."""
    found = error.cause if isinstance(error, RayTaskError) else None
    if present("raised_error"):
        from ray.air._internal.util import StartTraceback

        while isinstance(found, StartTraceback):
            found = found.__cause__
    return found if isinstance(found, BaseException) else None
