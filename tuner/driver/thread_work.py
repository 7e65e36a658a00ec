"""Work that the driver does in a thread while Ray starts; a signal doesn't have to wait for its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from tuner.lifecycle.interruption import Interruption

T = TypeVar("T")


def meanwhile(work: Callable[[], T]) -> Future[T]:
    """Begin the work; a process that ends doesn't wait for it."""
    found: Future[T] = Future()

    def perform() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # raised again by `awaited`
            found.set_exception(error)

    threading.Thread(target=perform, name="meanwhile", daemon=True).start()
    return found


def awaited(work: Future[T], interrupted: Interruption) -> T:
    """The result of the work. Raises what it raised, or KeyboardInterrupt if the search is asked to end before."""
    with interrupted.at_once():
        return work.result()
