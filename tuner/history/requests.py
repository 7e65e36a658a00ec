"""From a run's events: what `tuner confirm`, `tuner refit` and `tuner combine` ask for, and what trials have read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.history.event_lines import Event


class Confirming:
    """Folds events by `apply`.

    Attributes:
        waiting: the first trials of configurations, once for each seed still to be trained, in their order
        alone: whether only these trials run, because the search had ended before
        ended_by: why the search had ended then
        refit: whether the winner is to be trained again on training and validation images together
        own: whether `best/` shall have the winner's own network, even if it was trained again
        combine: how the best trials are to be averaged in `best/`; None if they aren't
        asked_to_combine: whether a study or a user has ever said
        refused: configurations, by their first trials, for which no device has room any more
    """

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.alone, self.ended_by = False, None
        self.refit = self.own = False
        self.combine: str | None = None
        self.asked_to_combine = False
        self.refused: set[str] = set()

    def apply(self, event: Event) -> None:
        """Take one valid event; kinds that don't matter here change nothing."""
        handler = getattr(self, "_on_" + event["event"], None)
        if handler is not None:
            handler(event)

    # One method per kind of event

    def _on_confirmation_requested(self, event: Event) -> None:
        self._add(event["trials"], event["seeds"])
        self._come_alone(event)

    def _on_refit_requested(self, event: Event) -> None:
        self.refit, self.own, self.combine = True, False, None
        self._come_alone(event)

    def _on_refit_undone(self, event: Event) -> None:
        self.refit, self.own = False, True
        self._come_alone(event)

    def _on_combination_requested(self, event: Event) -> None:
        self.combine, self.asked_to_combine = event["how"], True
        if event.get("alone"):  # a user asked for it, perhaps after a refit
            self.refit, self.own = False, True
        self._come_alone(event)

    def _on_combination_undone(self, event: Event) -> None:
        self.combine, self.asked_to_combine = None, True
        self._come_alone(event)

    def _come_alone(self, event: Event) -> None:
        if event.get("alone"):
            self.alone, self.ended_by = True, event.get("ended_by")

    def _on_retry_requested(self, event: Event) -> None:
        self._come_alone(event)

    def _on_order_obeyed(self, event: Event) -> None:
        if event["verb"] == "confirm" and "trials" in event and not event.get("late"):
            self._add(event["trials"], event.get("seeds", 0))
        elif event["verb"] == "stop" and "trial" not in event["arguments"] and not event.get("late"):
            self.waiting.clear()

    def _add(self, trials: Sequence[str], seeds: int) -> None:
        """Add trials seed by seed, so that after an interruption all configurations have equally many."""
        self.waiting += [trial for _ in range(seeds) for trial in trials]

    def _on_trial_started(self, event: Event) -> None:
        if event.get("confirms"):
            self._take(event.get("repeats"))

    def _on_configuration_refused(self, event: Event) -> None:
        first = event.get("repeats")
        if first is not None:
            self.refused.add(first)
            self.waiting = [each for each in self.waiting if each != first]

    def _on_study_resumed(self, event: Event) -> None:
        if event.get("search_on"):
            self.alone, self.ended_by = False, None

    def _on_study_ended(self, event: Event) -> None:
        self.alone, self.ended_by = False, None

    def _take(self, first: Any) -> None:
        if first in self.waiting:
            self.waiting.remove(first)


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
