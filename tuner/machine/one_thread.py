"""Linear algebra of small matrices on one thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Within the block, or the function that it decorates, BLAS uses one thread; for matrices of some hundred rows.

    On two cores, two threads took three times the CPU time and twice as long: each waits for the other in a busy loop.
    Also, the other cores are needed for the trials. The setting holds for the whole process.
    """
    with _controller(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """Of all libraries that are loaded: they come with modules. Looking for them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
