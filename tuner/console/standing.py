"""The state of a search in the numbers that every display shows; computed only from its events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from tuner.console.charts import sparkline
from tuner.history.events import Event, finite
from tuner.history.records import RunRecord, TrialRecord, full_length, saved_share
from tuner.results.rest_simulation import Ahead
from tuner.results.run import RecordedRun
from tuner.results.time_left import Reckoning, TimeLeft, ahead_of, features_told, silence_sentence
from tuner.results.wording import duration, plural, short, trials_and_repeats, with_error
from tuner.study.declaration import Study

ORDERS = ("order_obeyed", "order_refused")
SPARKLINE = 10  # characters
_DEVICE_METRICS = ("device_utilisation", "memory_bytes", "images_per_second")


@dataclass(frozen=True)
class Plan:
    """The plan with which a search was started: its study's name, what it optimises, and what is ahead of it."""

    study: str
    metric: str
    mode: str
    ahead: Ahead

    @classmethod
    def of(cls, study: Study) -> Plan:
        """The plan of a study."""
        longest = study.budget.max_epochs
        ahead = Ahead(study.trials, longest, tuple(study.scheduler.rungs(longest)), limits=vars(study.budget))
        return cls(study.name, study.metric, study.mode, ahead.foreseen(study.forecast))

    @classmethod
    def of_run(cls, run: RecordedRun, limits: Mapping[str, Any]) -> Plan:
        """The plan of a run, with other limits if they are given."""
        given = {name: value for name, value in limits.items() if value is not None}
        return cls(run.name, run.metric, run.mode, ahead_of(run).within(given))


def answered(event: Event) -> str:
    """An order and its answer: who ordered what."""
    given = " ".join(f"{name}={short(value)}" for name, value in event["arguments"].items())
    refused = "refused: " if event["event"] == "order_refused" else ""
    return f"{event['by']}: {event['verb']}{' ' if given else ''}{given}: {refused}{event['message']}"


class Progress:
    """The numbers that both displays show, only from events."""

    def __init__(self, plan: Plan, earlier: Iterable[Event] = ()) -> None:
        self.plan, self.ahead = plan, plan.ahead
        self.record = RunRecord(plan.metric, plan.mode)
        self.leads: list[float] = []  # the leader's value after each report, and where the end of a trial changed it
        self._range: tuple[float, float] | None = None  # of all values reported
        self._reckoning = Reckoning()
        self._begun = time.time()
        for event in earlier:
            self.on_event(event)

    def on_event(self, event: Event) -> bool:
        """Take in the event; returns whether it could be used."""
        if self.record.apply(event) is not None:
            return False
        if event["event"] in ("study_started", "study_resumed"):
            self._begun = event["time"]
            longest = event.get("max_epochs") or self.ahead.max_epochs
            self.ahead = replace(self.ahead, trials=event.get("trials", self.ahead.trials), max_epochs=longest)
            self._reckoning.forget()
        if event["event"] == "order_obeyed" and self.record.steered.limits:
            self.ahead = self.ahead.within(self.record.steered.limits)
            self._reckoning.forget()
        if event["event"] == "epoch_reported":
            self._see(event["metrics"].get(self.plan.metric))
        if event["event"] in ("epoch_reported", "trial_ended"):
            self._see_leader(reported=event["event"] == "epoch_reported")
        return True

    def _see(self, value: object) -> None:
        if isinstance(value, int | float) and finite(value):
            low, high = self._range or (value, value)
            self._range = min(low, value), max(high, value)

    def _see_leader(self, *, reported: bool) -> None:
        led = self.record.winning_value
        if led is not None and (reported or led != self.leads[-1]):
            self.leads.append(led)

    def incumbent(self) -> str:
        """The best trial so far, and its value."""
        best = self.record.best_trial()
        worth = best and self.record.standing_of(best.trial)
        return f"{with_error(worth)} by {best.trial}" if best and worth else "none"

    def running(self) -> list[TrialRecord]:
        """The trials that are on a worker now."""
        return [trial for trial in self.record.trials.values() if trial.status == "running"]

    def computing(self) -> dict[str, str]:
        """What the trials that compute features of a frozen backbone say of that, by their ids."""
        return features_told(self.record, time.time())

    def shown(self, rows: int) -> list[TrialRecord]:
        """The trials that get a row: those that run or wait, the best, then the latest, ordered by number."""
        best = self.record.best_trial()
        by_age = sorted(self.record.trials.values(), key=lambda t: -t.number)
        ranked = sorted(by_age, key=lambda t: (t is not best, t.status != "running", not t.live))
        return sorted(ranked[:rows], key=lambda t: t.number)

    def totals(self) -> str:
        """Trials by status, what early stopping saved, and the time left."""
        counts = self.record.counts()
        names = {
            "running": "running",
            "paused": "paused",
            "completed": "done",
            "stopped": "stopped early",
            "failed": "failed",
            "interrupted": "interrupted",
        }
        parts = [f"{counts[status]} {name}" for status, name in names.items() if counts[status]]  # type: ignore[index]
        planned = f" of {self.ahead.trials}" if self.ahead.trials else ""
        count = self.record.configurations
        again = trials_and_repeats(self.record).removeprefix(plural(count, "trial"))
        saved = self.saved_share()
        savings = f"; early stopping saved {saved:.0%} of the epochs" if saved else ""
        limit, epochs = int((self.ahead.limits or {}).get("total_epochs") or 0), self.record.search_epochs()
        spent = f"; {min(epochs, limit)} of {plural(limit, 'epoch')}" if limit else ""
        spent += f" and {epochs - limit} that ran on at the limit" if 0 < limit < epochs else ""
        return f"{count}{planned} trials{again}: {', '.join(parts)}{spent or savings}; {self.eta()}"

    def saved_share(self) -> float:
        """Share of the epochs that early stopping saved, the same as in the report."""
        return saved_share(self.record.trials.values(), self.ahead.max_epochs)

    def eta(self) -> str:
        """The time left with its 80 % interval, or the time taken so far if the time left can't be known.

        After the last trial the winner is still scored and the report written, so this is not yet the total. When a
        paused search will go on is unknown. Trials that stand still are named first.
        """
        if self.record.ended is not None:
            return f"the trials took {duration(self.record.wall_seconds)}"
        if self.record.active_since is None and self.record.active_seconds:  # paused: this session has ended
            return f"{duration(self.record.active_seconds)} so far"
        now = time.time()
        still, rest = silence_sentence(self._reckoning.still(self.record, now)), self._rest(now)
        return f"{still}; {rest}" if still else rest

    def _rest(self, now: float) -> str:
        elapsed = max(0.0, now - self._begun)
        confirming = self._confirming()
        if confirming:
            return f"{confirming}, {duration(elapsed)} so far"
        ended = sum(1 for trial in self.record.trials.values() if not trial.live and trial.suggested)
        if self.ahead.trials is not None and ended >= self.ahead.trials:
            return f"the trials took {duration(elapsed)}"
        left = self.time_left(now)
        return f"{duration(elapsed)} so far" if left is None else str(left)

    def _confirming(self) -> str:
        """How much of the work for `tuner confirm` is left; empty if none."""
        waiting = self.record.confirming.waiting
        running = [trial for trial in self.record.trials.values() if trial.confirms and trial.live]
        left = sum(full_length(self.record.trials[first].config, self.ahead.max_epochs) for first in waiting)
        left += sum(self.full_length(trial) - trial.epoch for trial in running)
        trials = plural(len(waiting) + len(running), "repeat")
        return f"{trials} left to confirm, {plural(left, 'epoch')}" if waiting or running else ""

    def time_left(self, now: float) -> TimeLeft | None:
        """How long the search still takes from `now` on (seconds since 1970); None if that can't be known."""
        return self._reckoning.left(self.record, self.ahead, now)

    def sparkline(self, trial: TrialRecord) -> str:
        """The trial's values by epoch, as high as they are among all that were reported."""
        if self._range is None:
            return ""
        told = (epoch.metrics.get(self.plan.metric) for epoch in trial.epochs.values())
        values = [float(value) for value in told if value is not None and finite(value)]
        return sparkline(values, *self._range, SPARKLINE)

    def device_use(self) -> str:
        """What the running trials last reported about their devices: number, utilisation, memory, images per second."""
        running = [trial.metrics() for trial in self.running()]
        told = {name: [float(m[name]) for m in running if finite(m.get(name))] for name in _DEVICE_METRICS}
        parts = []
        if told["device_utilisation"]:
            values = told["device_utilisation"]
            parts.append(f"devices {sum(values) / len(values):.0%} busy")
        memory = told["memory_bytes"]
        parts += [f"{sum(memory) / 1e9:.1f} GB of memory"] if memory else []
        speed = told["images_per_second"]
        parts += [f"{sum(speed):,.0f} images/s"] if speed else []
        return f"{plural(len(running), 'trial')} running: {', '.join(parts)}" if parts else ""

    def bar(self) -> RenderableType:
        """A bar of the ended trials among those planned."""
        ended = sum(1 for trial in self.record.trials.values() if not trial.live)
        again = len(self.record.trials) - self.record.configurations + len(self.record.confirming.waiting)
        planned = max(self.ahead.trials or 1, self.record.configurations) + again
        line = Table.grid()  # a bar on its own doesn't end its line
        line.add_row(ProgressBar(total=planned, completed=ended, width=60))
        return line

    def full_length(self, trial: TrialRecord) -> int:
        """Epochs of the trial unless it is stopped."""
        return full_length(trial.config, self.ahead.max_epochs)
