"""Changes by users' orders, computed from a run's events: `order_obeyed` is written before an order is carried out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.history.event_lines import Event, finite
from tuner.study.budget import LIMITS

LONGEST_TAG = 64  # characters that W&B allows
_HASHTAG = re.compile(r"(?<!\S)#([^\W_][\w-]*)")


@dataclass(frozen=True)
class Note:
    """What a user wrote down about a run, or about one of its trials; `time` is in seconds since 1970."""

    text: str
    by: str
    time: float
    trial: str | None = None


def hashtags(texts: Iterable[str]) -> list[str]:
    """The words of notes that begin with #, which become tags, without it; each once."""
    return list(dict.fromkeys(word[:LONGEST_TAG] for text in texts for word in _HASHTAG.findall(text)))


@dataclass
class Steered:
    """Folds events by `apply`.

    Attributes:
        given: limits that the newest driver got instead of the study file's; None if its events don't say
        limits: those that orders have set since that driver began
        concurrency: trials at once as an order set it, unless a later driver was given another number
        stopped_by: who ended the search by `stop`, until a driver goes on in spite of it
        waiting: configurations of `try` that aren't trials yet, by the order's id
        to_end: trials that `stop --trial` ends and that haven't ended
        notes: in the order in which they were written
        answered: ids of all orders that were answered
    """

    given: dict[str, float] | None = None
    limits: dict[str, float] = field(default_factory=dict)
    concurrency: int | None = None
    stopped_by: str | None = None
    waiting: dict[str, dict[str, Any]] = field(default_factory=dict)
    to_end: set[str] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    _stopped_before: str | None = None

    def apply(self, event: Event) -> None:
        """Take one valid event; kinds that have nothing to do with orders change nothing."""
        handler = getattr(self, "_on_" + event["event"], None)
        if handler is not None:
            handler(event)

    def notes_of(self, trial: str | None) -> list[Note]:
        """Notes about a trial; None for those about the whole run."""
        return [note for note in self.notes if note.trial == trial]

    # One method per kind of event

    def _on_study_started(self, event: Event) -> None:
        self.given = known_limits(event["limits"]) if "limits" in event else None
        self.limits = {}
        if event.get("concurrency"):
            self.concurrency = None
        if event.get("anew"):
            self.stopped_by = None

    _on_study_resumed = _on_study_started

    def _on_trial_started(self, event: Event) -> None:
        self.waiting.pop(event.get("order", ""), None)
        self.stopped_by = None

    def _on_confirmation_requested(self, event: Event) -> None:
        """A search that was stopped stays stopped, except for the trials that were asked for now."""
        self._stopped_before, self.stopped_by = self.stopped_by if event.get("alone") else None, None

    _on_refit_requested = _on_refit_undone = _on_confirmation_requested
    _on_combination_undone = _on_confirmation_requested

    def _on_combination_requested(self, event: Event) -> None:
        if event.get("alone"):
            self._on_confirmation_requested(event)

    def _on_study_ended(self, event: Event) -> None:
        self.stopped_by = self.stopped_by or self._stopped_before
        self._stopped_before = None

    _on_trial_resumed = _on_trial_started

    def _on_configuration_refused(self, event: Event) -> None:
        self.waiting.pop(event.get("order", ""), None)

    def _on_trial_ended(self, event: Event) -> None:
        self.to_end.discard(event["trial"])

    def _on_order_refused(self, event: Event) -> None:
        self.answered.add(event["order"])

    def _on_order_obeyed(self, event: Event) -> None:
        self.answered.add(event["order"])
        verb, arguments = event["verb"], event["arguments"]
        if event.get("late"):  # it came after the search had ended: there is nothing to do
            return
        if verb == "set":
            self.limits |= known_limits(arguments)
            self.concurrency = _count(arguments.get("concurrency")) or self.concurrency
        elif verb == "try" and "config" in event:
            self.waiting[event["order"]] = event["config"]
        elif verb == "stop":
            self._stop(event["by"], arguments.get("trial"))
        elif verb == "note":
            trial = arguments.get("trial")
            about = trial if isinstance(trial, str) else None
            self.notes.append(Note(str(arguments.get("text", "")), event["by"], event["time"], about))

    def _stop(self, by: str, trial: object) -> None:
        if trial is None:
            self.stopped_by = by
        elif isinstance(trial, str):
            self.to_end.add(trial)


def known_limits(values: Mapping[str, Any]) -> dict[str, float]:
    """The values that are limits of a budget; files of unknown origin may have others."""
    found = {limit.name: (limit, values.get(limit.name)) for limit in LIMITS}
    return {
        name: value
        for name, (limit, value) in found.items()
        if isinstance(value, int | float) and finite(value) and (isinstance(value, int) or not limit.quantity.whole)
    }


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None
