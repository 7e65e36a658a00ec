"""A trial on a shared device, and how many it shared the device with in an epoch."""

from __future__ import annotations

from dataclasses import dataclass

UNSTEADY = 0.25  # an epoch only counts if the number of trials on its device changed by no more than this share


@dataclass
class Stay:
    """A running trial; `since` is when its epoch began, and `before` the trial-seconds of its device until then.

    `least` and `most` are the numbers of trials that the device has had since then.
    """

    device: str
    alike: str
    predicted_bytes: float | None
    since: float
    before: float
    epochs: int = 0
    least: int = 0
    most: int = 0

    def begin_epoch(self, now: float, before: float, count: int) -> None:
        """Count the trials on the device again."""
        self.since, self.before, self.least, self.most = now, before, count, count

    def at_once(self, now: float, trial_seconds: float) -> int | None:
        """Trials on the device throughout the epoch, None if their number changed too much to say."""
        mean = (trial_seconds - self.before) / (now - self.since) if now > self.since else 0.0
        steady = self.most - self.least <= max(1.0, mean * UNSTEADY) and abs(mean - round(mean)) <= UNSTEADY
        return round(mean) if steady and mean >= UNSTEADY else None
