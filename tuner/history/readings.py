"""What the trials of a run have read of their configurations, as far as they say."""

from __future__ import annotations

from tuner.history.event_lines import Event


class Readings:
    """The names that any trial has read, and those that it asked for and didn't have, from `epoch_reported`.

    Trials of older runs, image classifiers, and trials that a user's own program runs don't say: `silent`.
    """

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.absent: dict[str, None] = {}
        self.silent = False
        self._telling: set[str] = set()  # trials that say

    def take(self, event: Event) -> None:
        """An epoch was reported."""
        if "read" in event:
            self._telling.add(event["trial"])
            self.read.update(event["read"])
            self.absent |= dict.fromkeys(event.get("absent", ()))
        elif event["trial"] not in self._telling:
            self.silent = True
