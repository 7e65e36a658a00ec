"""Stands in for CUDA graphs where there are none: to replay is to compute again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tuner.train.capture.recording import Work


class Repeating:
    """A recorder whose replays call the work that they are given.

    Attributes:
        done: what it was asked for, in order
        around: called with the work in place of it
    """

    def __init__(self, around: Callable[[Work], None] | None = None, *, fails: Exception | None = None) -> None:
        self.done: list[str] = []
        self.around, self.fails = around, fails

    @contextmanager
    def warming_up(self) -> Iterator[None]:
        self.done.append("warm up")
        yield

    def record(self, work: Work) -> None:
        self.done.append("record")
        if self.fails is not None:
            raise self.fails

    def replay(self, work: Work) -> None:
        self.done.append("replay")
        if self.around is None:
            work()
        else:
            self.around(work)

    def release(self) -> None:
        self.done.append("release")
