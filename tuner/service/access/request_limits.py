"""Limits of requests, failed logins and open streams; all kept in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tuner.service.errors import Code, ServiceError

PER_SECONDS = 60.0  # the time over which failed logins are counted
_MOST_KEYS = 10_000  # callers that are remembered

Clock = Callable[[], float]


class RequestLimit:
    """A bucket for each caller: it holds `burst` requests and gets `rate` a second."""

    def __init__(self, rate: float, burst: int, clock: Clock = time.monotonic) -> None:
        self.rate, self.burst = rate, burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # by caller: remaining requests, and the time of this number
        self._lock = threading.Lock()

    def take(self, caller: str) -> None:
        """Count one request. Raises ServiceError if the caller has none left."""
        now = self._clock()
        with self._lock:
            left, then = self._left.pop(caller, (float(self.burst), now))
            left = min(float(self.burst), left + (now - then) * self.rate)
            allowed = left >= 1
            self._left[caller] = (left - 1 if allowed else left, now)
            if len(self._left) > _MOST_KEYS:
                self._left.pop(next(iter(self._left)))
        if not allowed:
            raise ServiceError(
                Code.TOO_MANY,
                f"one caller may send {self.rate:g} requests a second, and {self.burst} at once",
                "more",
                "wait a second, or watch a stream of events rather than ask again and again",
                retry_after=max(1.0, (1 - left) / self.rate),
            )


class FailedLogins:
    """Failed logins of an address: after `most` of them at one name even the right password has to wait there.

    After ten times as many at any names, it has to wait at every name. Elsewhere the user logs in meanwhile: strangers
    can't lock anybody out.
    """

    def __init__(self, most: int, seconds: float = PER_SECONDS, clock: Clock = time.monotonic) -> None:
        self.most, self.seconds = most, seconds
        self._clock = clock
        self._times: dict[tuple[str, str | None], deque[float]] = {}
        self._lock = threading.Lock()

    def begin(self, address: str, name: str = "") -> None:
        """Count an attempt, as failed until `succeeded` is called with the same. Raises ServiceError."""
        now, counted = self._clock(), self._counted(address, name)
        with self._lock:
            waits = [wait for key, most in counted.items() if (wait := self._wait(key, most, now)) > 0]
            if not waits:
                for key, most in counted.items():
                    self._times.setdefault(key, deque(maxlen=most)).append(now)
                while len(self._times) > _MOST_KEYS:
                    self._times.pop(next(iter(self._times)))
        if waits:
            raise ServiceError(
                Code.TOO_MANY,
                f"{self.most} logins may fail in {self.seconds:g} seconds",
                "more",
                "wait a minute; `tuner login` asks for the password again",
                retry_after=max(waits),
            )

    def succeeded(self, address: str, name: str = "") -> None:
        """Undo the count of the last attempt, which succeeded."""
        with self._lock:
            for key in self._counted(address, name):
                if times := self._times.get(key):
                    times.pop()

    def _counted(self, address: str, name: str) -> dict[tuple[str, str | None], int]:
        """What attempts are counted by, and how many may fail."""
        return {(address, name.casefold()[:100]): self.most, (address, None): 10 * self.most}

    def _wait(self, key: tuple[str, str | None], most: int, now: float) -> float:
        """Seconds until another attempt is allowed; 0 if it is allowed now."""
        times = self._times.get(key)
        return times[0] + self.seconds - now if times and len(times) == most else 0.0


class StreamLimit:
    """How many streams are open, in total and for each user."""

    def __init__(self, most: int, of_a_user: int) -> None:
        self.most, self.of_a_user = most, of_a_user
        self.open: dict[int, int] = {}  # by user's id

    @contextmanager
    def one(self, user: int) -> Iterator[None]:
        """Hold one stream for the length of the block. Raises ServiceError if no further one may be opened."""
        self._check(user)
        self.open[user] = self.open.get(user, 0) + 1
        try:
            yield
        finally:
            self.open[user] -= 1
            if not self.open[user]:
                del self.open[user]

    def _check(self, user: int) -> None:
        of_user, total = self.open.get(user, 0), sum(self.open.values())
        if of_user >= self.of_a_user or total >= self.most:
            whose, most = ("a user", self.of_a_user) if of_user >= self.of_a_user else ("the server", self.most)
            raise ServiceError(
                Code.TOO_MANY,
                f"{whose} has at most {most} streams",
                f"{most} that are open",
                "close one; all tabs of a browser can share one",
                retry_after=10.0,
            )
