"""What the trials of a run have read of their configurations, as far as they say."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.history.event_lines import Event


@dataclass
class Readings:
    """The names that any trial has read, and those that it asked for and didn't have, from `epoch_reported`.

    Trials of older runs, image classifiers, and trials that a user's own program runs don't say: `silent`.
    """

    read: dict[str, None] = field(default_factory=dict)
    absent: dict[str, None] = field(default_factory=dict)
    silent: bool = False
    telling: dict[str, None] = field(default_factory=dict)  # trials that say

    def take(self, event: Event) -> None:
        """An epoch was reported."""
        if "read" in event:
            self.telling[event["trial"]] = None
            self.read |= dict.fromkeys(event["read"])
            self.absent |= dict.fromkeys(event.get("absent", ()))
        elif event["trial"] not in self.telling:
            self.silent = True
