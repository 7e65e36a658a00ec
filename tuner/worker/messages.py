"""Sends a trial's messages to the driver: those of quick epochs together, so that training doesn't wait for Ray.

A message takes some milliseconds to the driver and back: with epochs of one millisecond this would cost the trial most
of its time, and the driver a core. A trial is at most a second ahead of what the driver knows, and waits whenever the
answer may be something other than "go on".
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

GAP_SECONDS = 0.2  # from the driver's answer to the next messages, unless one of them is urgent
AHEAD_SECONDS = 1.0  # a trial may be this far ahead of what the driver has answered,
MOST_HELD = 200  # and this many messages


class Message(NamedTuple):
    """A message for the driver.

    Attributes:
        text: its content as JSON, written at once, because the trial may change its values afterwards
        ago: seconds from then until it was sent
    """

    text: str
    ago: float = 0.0


class Sender:
    """Sends messages in order by `send`, which takes several at once and returns when the driver wants the trial to go
    on, or raises what ends the trial here. Within `waiting()` the trial waits for the driver.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Message]], None],
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._send, self._waiting = send, waiting
        self._changed = threading.Condition()
        self._held: deque[tuple[float, str]] = deque()
        self._since: float | None = None  # when the oldest unanswered message was given
        self._sending = self._closed = False
        self._answered = 0.0
        self._ended: BaseException | None = None  # what ended the trial, or failed in sending
        self._thread: threading.Thread | None = None

    def send(self, text: str) -> None:
        """Send a message after those that are held, and return when the driver wants the trial to go on.

        Raises whatever ended the trial, now or before.
        """
        with self._waiting():
            self._take_turn()
            try:
                self._bring((time.monotonic(), text))
            finally:
                self._answer()

    def hold(self, text: str) -> None:
        """Send a message soon, with others; the trial goes on meanwhile.

        Raises whatever ended the trial since the message before.
        """
        now = time.monotonic()
        with self._changed:
            self._raise_if_ended()
            behind = self._since is not None and now - self._since > AHEAD_SECONDS
            late = behind or len(self._held) >= MOST_HELD
            if not late:
                self._held.append((now, text))
                self._since = now if self._since is None else self._since
                self._changed.notify_all()
        if late:
            self.send(text)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._work, name="reports", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Wait until the driver has answered everything. Raises whatever ended the trial."""
        with self._changed:
            self._raise_if_ended()
            if not (self._held or self._sending):
                return
        with self._waiting():
            self._take_turn()
            try:
                self._bring()
            finally:
                self._answer()

    @property
    def stopped(self) -> bool:
        """Whether the driver has ended the trial here: it takes nothing more, and everything raises SystemExit."""
        return isinstance(self._ended, SystemExit)

    def close(self) -> None:
        """Send nothing more."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify_all()

    def _take_turn(self) -> None:
        """Wait until no other thread sends. Raises whatever ended the trial."""
        with self._changed:
            while self._sending:
                self._changed.wait()
            self._raise_if_ended()
            self._sending = True

    def _bring(self, *more: tuple[float, str]) -> None:
        """Send the held messages; only the thread whose turn it is may call this."""
        with self._changed:
            messages = [*self._held, *more]
            self._held.clear()
            self._since = messages[0][0] if messages else None
        now = time.monotonic()
        try:
            if messages:
                self._send([Message(text, max(0.0, now - given)) for given, text in messages])
        except SystemExit as ended:  # also if the trial's code catches it
            self._ended = ended
            raise

    def _answer(self) -> None:
        with self._changed:
            self._sending = False
            self._answered = time.monotonic()
            self._since = self._held[0][0] if self._held else None
            self._changed.notify_all()

    def _raise_if_ended(self) -> None:
        ended = self._ended
        if ended is None:
            return
        if not isinstance(ended, SystemExit):  # tell the driver, which still listens, what failed
            self._ended = None
        raise ended

    def _work(self) -> None:
        """Send held messages as long as the trial is here."""
        while self._next():
            try:
                self._bring()
            except BaseException as ended:  # raised to the trial at its next message
                self._ended = ended
            self._answer()

    def _next(self) -> bool:
        """Wait until it is this thread's turn; False once there will be nothing more to send."""
        with self._changed:
            while not self._closed and self._ended is None:
                wait = self._answered + GAP_SECONDS - time.monotonic()
                if self._held and not self._sending and wait <= 0:
                    self._sending = True
                    return True
                self._changed.wait(wait if self._held and not self._sending else None)
            return False
