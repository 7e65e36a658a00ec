"""`python -m tuner`, and the command `tuner`."""

import atexit
import io
import os
import sys
from contextlib import suppress
from typing import NoReturn


def command() -> NoReturn:
    """Run the command line, and end the process with its exit code.

    Threads are awaited and exit functions run as ever; only taking torch and its thousand modules apart, which takes a
    second, is left out.
    """
    codes: list[int] = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that no encoding has is no reason to fail

    def leave() -> None:
        if codes:
            for stream in (sys.stdout, sys.stderr):
                with suppress(BrokenPipeError):  # nobody reads it any more
                    stream.flush()
            os._exit(codes[0])

    atexit.register(leave)  # the first one, and so the last to run
    from tuner.cli import main

    codes.append(main())
    sys.exit(codes[0])


if __name__ == "__main__":
    command()
