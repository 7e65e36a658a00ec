"""The start of Ray's worker processes: a program that Ray starts by its path, instead of its own `setup_worker.py`.

Ray's own program imports Ray to see a worker's `runtime_env`, and then starts, through a shell, another Python that
imports Ray again. If a worker needs none, as in a search, this program goes on in the same process; otherwise it starts
Ray's program.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    with no_collecting():
        from ray._private import utils

        utils.try_import_each_module = _uncollected(utils.try_import_each_module)
    runpy.run_path(program, run_name="__main__")


def is_plain(arguments: list[str]) -> bool:
    """Whether a worker is for Python, has no `runtime_env`, and its Python gets no options."""
    return (
        arguments[0].endswith(".py")
        and "--language=PYTHON" in arguments
        and not any(option.startswith("--serialized-runtime-env-context") for option in arguments)
    )


@contextmanager
def no_collecting() -> Iterator[None]:
    """Within the block there is no garbage collection.

    Imported modules create a hundred thousand objects that all stay: collections would take a fifth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _uncollected(load: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    def load_all(names: list[str]) -> None:
        with no_collecting():
            load(names)
        gc.freeze()  # later collections skip all objects that exist now

    return load_all


if __name__ == "__main__":
    main(sys.argv[1:])
