"""`python -m tuner`."""

import atexit
import os
import sys
from contextlib import suppress

from tuner.cli import main


def leave(code: int) -> None:
    """End the process as `sys.exit` does, but for taking torch and its thousand modules apart, which takes a second."""
    atexit._run_exitfuncs()
    with suppress(BrokenPipeError):  # `tuner show RUN | head`
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
