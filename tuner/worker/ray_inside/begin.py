"""The start of Ray's worker processes: a program that Ray starts by its path, instead of its own `setup_worker.py`.

Ray's own program starts a worker through a shell, which takes a Python whose path has a space for two words, and after
it has imported Ray itself, which takes a third of a second. If a worker needs no `runtime_env`, as in a search, this
program goes on in the same process; otherwise it starts Ray's program.
"""

from __future__ import annotations

import os
import runpy
import sys

FOR_RAYS_SETUP = ("--serialized-runtime-env-context", "--language")
RAYS_SETUP = "setup_worker.py"  # in the folder of Ray's worker program


def main(arguments: list[str]) -> None:
    """Run the worker program that `arguments` name, with the options that follow it."""
    program, options = next(each for each in arguments if each.endswith(".py")), arguments[1:]
    if not is_plain(arguments):
        setup = os.path.join(os.path.dirname(program), RAYS_SETUP)  # noqa: PTH118, PTH120 -- pathlib takes its time
        os.execv(sys.executable, [sys.executable, setup, *arguments])
    sys.argv = [program, *(option for option in options if option.partition("=")[0] not in FOR_RAYS_SETUP)]
    sys.path[0] = os.path.dirname(program)  # noqa: PTH120
    runpy.run_path(program, run_name="__main__")


def is_plain(arguments: list[str]) -> bool:
    """Whether a worker is for Python, has no `runtime_env`, and its Python gets no options."""
    return (
        arguments[0].endswith(".py")
        and "--language=PYTHON" in arguments
        and not any(option.startswith("--serialized-runtime-env-context") for option in arguments)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
