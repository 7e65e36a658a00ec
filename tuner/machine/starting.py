"""The first code of the command, while Python still imports the rest: Ctrl-C prints a sentence, not a traceback.

If anything else than the command imports it, it does nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def is_command() -> bool:
    """Whether this process is `python -m tuner`, or the command `tuner`."""
    if sys.argv[0] == "-m":  # while the package is imported
        following = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
        return following[:1] == ["tuner"]
    return os.path.basename(sys.argv[0]) == "tuner"  # noqa: PTH119 -- pathlib isn't loaded yet


def leave_at_once(_number: int = signal.SIGINT, _frame: FrameType | None = None) -> NoReturn:
    """End the process, which hasn't begun anything yet."""
    try:
        os.write(2, b"tuner: interrupted before the search started; nothing was written\n")
    finally:
        os._exit(INTERRUPTED)


def take_interrupt() -> None:
    """Until `release_interrupt`, Ctrl-C ends the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave_at_once)


def release_interrupt() -> None:
    """Ctrl-C raises KeyboardInterrupt again: from here on there may be something to clean up."""
    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command():
    take_interrupt()
