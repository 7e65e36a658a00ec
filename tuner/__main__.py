"""`python -m tuner`, and the command `tuner`."""

import atexit
import io
import os
import sys
from contextlib import suppress
from typing import IO, NoReturn


class _LastingFile(io.FileIO):
    """A file descriptor that drops output once nobody reads it: a search doesn't depend on its output."""

    def write(self, data: object) -> int:
        """Write everything; if that fails, write nothing from now on."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)  # type: ignore[arg-type]


def make_streams_last() -> None:
    """Make standard streams open and never fail to write, also with `2>&-`, `| head -1` or a closed terminal."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next opened file would get its number
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    sys.stdout, sys.stderr = _lasting(sys.stdout, 1), _lasting(sys.stderr, 2)


def _lasting(stream: IO[str] | None, number: int) -> IO[str]:
    lines = stream is None or getattr(stream, "line_buffering", True) or getattr(stream, "write_through", False)
    with suppress(OSError):
        if stream is not None:
            stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_LastingFile(number, "wb", closefd=False)),
        encoding=getattr(stream, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=lines,
    )


def command() -> NoReturn:
    """Run the command line, and end the process with its exit code.

    Threads are awaited and exit functions run as usual; only Python's cleanup of torch's thousand modules, which takes
    a second, is skipped.
    """
    codes: list[int] = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that can't be encoded aren't a reason to fail

    def leave() -> None:
        if codes:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(codes[0])

    atexit.register(leave)  # registered first, so it runs last
    make_streams_last()
    from tuner.cli import main

    try:
        codes.append(main())
    except SystemExit as end:  # of --help, or of arguments that can't be parsed
        if not isinstance(end.code, int):
            raise
        codes.append(end.code)
    sys.exit(codes[0])


if __name__ == "__main__":
    command()
