"""Ctrl-C, SIGTERM, SIGHUP and other requests to end a search, handled at a moment when it can end."""

from __future__ import annotations

import faulthandler
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RAY_IS_GONE = "Ray is gone"
GRACE_SECONDS = 25.0  # batch systems send SIGKILL 30 s after SIGTERM
_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
STDERR = 2
NOTICE_SECONDS = 5.0  # after an exception, for its cause to become a request to end
_SAME_PRESS_SECONDS = 0.3  # a terminal's Ctrl-C arrives twice if a parent passes it on


class SearchLeft(BaseException):
    """Leaves Ray Tune's loop, past its handlers for Exception; the events hold all that is needed to go on."""


class Interruption:
    """A request to end a search: the first request gives the reason, and starts the grace period.

    A signal only raises if nothing is lost: within `at_once` and `breakable`. A second Ctrl-C sets `hurried`; a third
    one is an ordinary KeyboardInterrupt.
    """

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.grace_seconds = grace_seconds
        self.reason: str | None = None
        self.hurried = False
        self._asked = threading.Event()
        self._lock = threading.RLock()  # a signal's handler may run while this thread holds it
        self._asked_at = self._pressed_at = -math.inf
        self._raises_at_once = self._breakable = self._break_in = self._installed = False

    def is_set(self) -> bool:
        """Whether the search should end."""
        return self._asked.is_set()

    def seconds_left(self) -> float:
        """Seconds left of the grace period, 0 if it is over; infinite before the first request."""
        if not self.is_set():
            return math.inf
        return max(0.0, self._asked_at + self.grace_seconds - time.monotonic())

    def seconds_since(self) -> float:
        """Seconds since the first request; 0 before it."""
        return time.monotonic() - self._asked_at if self.is_set() else 0.0

    def ask(self, reason: str) -> None:
        """Ask the search to end, from any thread; only the first reason counts."""
        with self._lock:
            if not self.is_set():
                self.reason, self._asked_at = reason, time.monotonic()
                self._asked.set()

    def stop_if_asked(self) -> None:
        """Raise KeyboardInterrupt if there was a request; for the time before anything is written."""
        if self.is_set():
            raise KeyboardInterrupt(f"interrupted ({self.reason}) before the search started; nothing was written")

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within the block a signal raises KeyboardInterrupt, as `stop_if_asked` does."""
        self._raises_at_once = True
        try:
            self.stop_if_asked()
            yield
        finally:
            self._raises_at_once = False

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Within the block `break_in` raises SearchLeft in this thread, even while it waits.

        Any exception caused by the end of Ray becomes SearchLeft, too.
        """
        self.take_signals()
        self._breakable = True
        try:
            yield
        except Exception as error:
            if self._asked.wait(NOTICE_SECONDS):
                raise SearchLeft from error
            raise
        finally:
            self._breakable = False

    def break_in(self) -> None:
        """From another thread: leave the `breakable` block, if there is one and signals are handled."""
        if self._breakable and self._installed:
            self._break_in = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def handle(self, number: int, _: FrameType | None) -> None:
        """The signal handler."""
        if self._break_in:
            self._break_in = False
            if self._breakable:
                raise SearchLeft
            return
        asked_before = self.is_set()
        self.ask(_NAMES[signal.Signals(number)])
        if number == signal.SIGTERM:
            self._put_off_the_end()
        if number == signal.SIGINT:
            self._pressed(again=asked_before)
        if self._raises_at_once:
            self.stop_if_asked()

    def _put_off_the_end(self) -> None:
        """A thread in C ends the process after twice the grace period, unless this is called again before.

        So SIGTERM also ends a driver in which one call keeps Python's lock, and with it the watchdog waiting.
        """
        faulthandler.dump_traceback_later(2 * self.grace_seconds, exit=True, file=STDERR)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Within the block a thread puts the end off as long as threads come to run."""
        over = threading.Event()

        def show() -> None:
            while not over.wait(self.grace_seconds / 2):
                if self.is_set():
                    self._put_off_the_end()

        thread = threading.Thread(target=show, name="tuner-alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            faulthandler.cancel_dump_traceback_later()

    def _pressed(self, *, again: bool) -> None:
        now = time.monotonic()
        same, self._pressed_at = now - self._pressed_at < _SAME_PRESS_SECONDS, now
        if same or not again:
            return
        if self.hurried:
            raise KeyboardInterrupt("stopped at once; `resume` goes on from what was saved")
        self.hurried = True

    def take_signals(self) -> None:
        """Handle the signals; call it again after Ray has started, because Ray's C++ code takes over SIGTERM."""
        if self._installed:
            self._install()

    def _install(self) -> dict[signal.Signals, object]:
        """Install the handler; returns the signals' earlier handlers."""
        before: dict[signal.Signals, object] = {}
        for number in _NAMES:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # ignored, as under nohup
            before[number] = signal.signal(number, self.handle)
        self._installed = True
        return before


@contextmanager
def interruptions(grace_seconds: float = GRACE_SECONDS) -> Iterator[Interruption]:
    """Signals ask the search of this block to end; in Python only the main thread can handle them."""
    interruption = Interruption(grace_seconds)
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = interruption._install()
    try:
        with interruption._alive():
            yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
