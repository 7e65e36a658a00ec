"""Linear algebra of small matrices on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Within the block, or the function that it decorates, BLAS uses one thread; for matrices of some hundred rows.

    On two cores, two threads took three times the CPU time and twice as long: each waits for the other in a busy loop.
    Also, the other cores are needed for the trials. The setting holds for the whole process.
    """
    from threadpoolctl import ThreadpoolController

    with ThreadpoolController().limit(limits=1, user_api="blas"):
        yield
