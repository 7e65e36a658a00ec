"""A run's state, computed from its events one by one; the same code serves the driver, the terminal and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tuner.history.attempts import DRAINED, LOST, USED
from tuner.history.event_lines import Event, finite, flaw, introduces, names_trial
from tuner.history.placement import Placement
from tuner.history.requests import Confirming, Readings
from tuner.history.spent import Spent
from tuner.history.standings import Standing, Standings
from tuner.history.steered import Steered
from tuner.history.trial_record import (
    FEATURES,
    EpochRecord,
    FeatureRecord,
    Status,
    TrialRecord,
    flat_config,
    full_length,
    saved_epochs,
    saved_share,
)

__all__ = [
    "CAUSES",
    "STATUSES",
    "EpochRecord",
    "RunRecord",
    "Standing",
    "Status",
    "TrialRecord",
    "flat_config",
    "full_length",
    "saved_epochs",
    "saved_share",
]

STATUSES: tuple[Status, ...] = ("running", "paused", "completed", "stopped", "interrupted", "failed")
CAUSES = ("out_of_memory", "diverged", "error", "lost", "hung")


class RunRecord(Spent, Standings):
    """All trials of a run, kept up to date by `apply`.

    Long because it has a short method for each kind of event, and all of them change the same trials.
    """

    def __init__(self, metric: str, mode: str, events: Iterable[Event] = ()) -> None:
        Spent.__init__(self)
        Standings.__init__(self, metric, mode)
        self.ended_trials: list[TrialRecord] = []  # in the order of their ends
        self.notices: list[str] = []
        self.notice_codes: dict[str, None] = {}
        self.readings = Readings()
        self.steered = Steered()  # changes by users' orders
        self.confirming = Confirming()
        self.ended: str | None = None
        self.configurations = self.refits = 0  # numbers of configurations, and of trials that train a winner again
        self._study_version = 1
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> str | None:
        """Take one event; kinds that this version doesn't know are ignored.

        An unusable event, for instance of a damaged file, changes nothing: what is wrong with it is returned.
        """
        wrong = flaw(event)
        if wrong is None and names_trial(event) and event["trial"] not in self.trials:
            wrong = f"{event['event']} names trial {event['trial']}, which was never started"
        for field in ("repeats", "refits") if wrong is None and introduces(event) else ():
            if field in event and event[field] not in self.trials:
                wrong = f"{event['event']} {field} trial {event[field]}, which was never started"
        if wrong is not None:
            return wrong
        handler = getattr(self, "_on_" + event["event"], None)
        if handler is not None:
            handler(event)
        self.steered.apply(event)
        self.confirming.apply(event)
        self.last_time = event["time"]
        return None

    def close(self) -> None:
        """Say that nothing writes to the run any more: what still ran was interrupted."""
        for trial in self.trials.values():
            if trial.status in ("running", "paused"):
                self._leave(trial, self.last_time or trial.started)
                trial.status = "interrupted"
        self.active.end(self.last_time)

    def counts(self) -> dict[Status, int]:
        """Trials by status, each status present."""
        counted = Counter(trial.status for trial in self.trials.values())
        return {status: counted[status] for status in STATUSES}

    def computing(self) -> dict[str, FeatureRecord]:
        """How far the features of a frozen backbone are, by the trial that computes them; from any thread."""
        every = ((trial.trial, trial.features) for trial in tuple(self.on_workers.values()))
        return {trial: features for trial, features in every if features is not None}

    def failures(self) -> dict[str, int]:
        """Failed trials by cause, the most frequent first."""
        causes = Counter(trial.cause or "error" for trial in self.trials.values() if trial.status == "failed")
        return dict(causes.most_common())

    def named(self, trial: str) -> TrialRecord | None:
        """The trial of an id, whose leading zeros may be left out; None if there is none."""
        return self.trials.get(trial) or self.trials.get(trial.zfill(5))

    def metric_names(self) -> list[str]:
        """The metrics that any trial reported as a number, the study's first."""
        found: dict[str, None] = {}
        for trial in self.trials.values():
            for epoch in trial.epochs.values():
                found |= {name: None for name, value in epoch.metrics.items() if name not in found and finite(value)}
        return sorted(found, key=lambda name: name != self.metric)

    def mean_curve(self, trial: TrialRecord) -> list[tuple[int, float]]:
        """The trial's values by epoch, each the mean with those of the full-length trials of its configuration."""
        more = [dict(one.values(self.metric)) for one in self.same_configuration(trial) if one.status == "completed"]
        curves = [dict(trial.values(self.metric)), *more] if trial.status != "completed" else more
        told = {epoch: [c[epoch] for c in curves if epoch in c] for epoch, _ in trial.values(self.metric)}
        return [(epoch, sum(value / len(values) for value in values)) for epoch, values in told.items()]

    def reports(self) -> list[tuple[float, TrialRecord, int, float | None]]:
        """Every reported epoch in the order of time: time, trial, epoch, and the metric's value if it is a number."""
        found = [
            (e.time, t, e.epoch, float(e.metrics[self.metric]) if finite(e.metrics.get(self.metric)) else None)
            for t in self.trials.values()
            for e in t.epochs.values()
        ]
        return sorted(found, key=lambda report: report[0])

    def rows(self) -> list[TrialRecord]:
        """A trial for each configuration: those of `ranked`, then the first ones of those without a value."""
        ranked = [one.trial for one in self.ranked()]
        told = {trial.configuration for trial in ranked}
        return ranked + [t for t in self.trials.values() if t.suggested and t.configuration not in told]

    # One method per kind of event.

    def _on_study_started(self, event: Event) -> None:
        self._study_version = event.get("study_version", 1)
        self.active.begin(event["time"])
        self.ended = None

    def _on_study_resumed(self, event: Event) -> None:
        self.close()
        self._study_version = event.get("study_version", self._study_version)
        self.active.begin(event["time"])
        self.ended = None
        for trial in self.trials.values():
            if trial.status == "interrupted" and trial.paused:
                trial.status = "paused"

    def _on_study_interrupted(self, event: Event) -> None:
        self.last_time = event["time"]
        self.close()

    def _on_study_ended(self, event: Event) -> None:
        self.last_time = event["time"]
        self.close()
        self.ended = event["reason"]

    def _on_notice(self, event: Event) -> None:
        self.notices.append(event["message"])
        self.notice_codes[event.get("code") or ""] = None

    def _on_trial_started(self, event: Event) -> None:
        trial = self.trials.get(event["trial"])
        if trial is None:
            trial = self._new_trial(event)
        self._enter(trial, event["time"])

    def _new_trial(self, event: Event) -> TrialRecord:
        trial = TrialRecord(event["trial"], event["number"], event["config"], event["seed"], event["time"])
        self.trials[trial.trial] = trial
        trial.configuration = self.configurations
        if "refits" in event:
            trial.refits, trial.refit_epochs = event["refits"], event.get("refit_epochs", 0)
            trial.configuration = self.trials[event["refits"]].configuration
            self.refits += 1
        elif "repeats" in event:
            first = self.trials[event["repeats"]]
            first = self.trials[first.repeats or first.trial]
            trial.repeats, trial.configuration = first.trial, first.configuration
            trial.confirms = event.get("confirms", False)
            self._add_repeat(first, trial)
        else:
            self.configurations += 1
        return trial

    def _on_trial_placed(self, event: Event) -> None:
        where = event["host"], event["pid"], event["devices"]
        stay = Placement(*where, event.get("gpus", []), event.get("together", 1))
        self._left_seconds += self.trials[event["trial"]].place(stay, event.get("waited", 0.0), event["time"])

    def _on_trial_handed(self, event: Event) -> None:
        self.trials[event["trial"]].worker = event["worker"]

    def _on_features_computed(self, event: Event) -> None:
        """Features are computed once for all trials: those that wait for them meanwhile don't start more slowly."""
        trial = self.trials[event["trial"]]
        before = 0.0 if trial.features is None else trial.features.seconds
        trial.features = FeatureRecord(**{name: event[name] for name in (*FEATURES, "time")})
        for one in self.on_workers.values():
            one.wait_in_start(event["seconds"] - before, event["time"])

    def _on_epoch_reported(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        trial.features = None
        ended = trial.end_of_epoch(event["time"], event.get("ago", 0.0))
        epoch = EpochRecord(event["epoch"], event["metrics"], event["decision"], ended, event.get("ending"))
        self.readings.take(event)
        again = epoch.epoch in trial.epochs  # after an interruption; the newer row counts
        trial.epochs[epoch.epoch] = epoch
        trial.due = epoch if epoch.decision != "continue" else None
        value = epoch.metrics.get(self.metric)
        self._count_epoch(again=again, later=trial.confirms or (trial.refits is not None and self.confirming.alone))
        self._take_report(trial, epoch.epoch, value if finite(value) else None, again=again)

    def _on_checkpoint_saved(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        trial.checkpoints.add(event["epoch"])
        trial.saved.add(event["epoch"])
        self._note_networks(trial)

    def _on_checkpoint_deleted(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        trial.checkpoints.discard(event["epoch"])
        self._note_networks(trial)

    def _note_networks(self, changed: TrialRecord) -> None:
        """Which trial of a configuration stands for it depends on their networks, or on the last one that there was."""
        members = self.same_configuration(changed)
        if len(members) < 2:
            return
        had_last = [trial.had_last for trial in members]
        for trial in members:
            trial.had_last = trial is changed and not any(one.checkpoints for one in members)
        if changed.status == "completed" or had_last != [trial.had_last for trial in members]:
            self._look_again()

    def _on_trial_paused(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        self._leave(trial, event["time"])
        trial.status, trial.paused, trial.due = "paused", True, None

    def _on_trial_resumed(self, event: Event) -> None:
        self._enter(self.trials[event["trial"]], event["time"])

    def _on_trial_lost(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        self._leave(trial, event["time"])
        kind = DRAINED if event.get("cause") == DRAINED else LOST
        trial.losses += kind == LOST
        trial.memory_losses += event.get("cause") == "out_of_memory"
        trial.attempts.add(event, time=event["time"], epoch=trial.epoch, kind=kind)

    def _on_trial_retried(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        self._leave(trial, event["time"])
        kind = USED if event.get("used") else event.get("cause") or LOST
        trial.attempts.add(event, time=event["time"], epoch=trial.epoch, kind=kind)
        trial.attempts.alone = trial.attempts.alone or event.get("alone", False)
        trial.due = None

    def _on_retry_requested(self, event: Event) -> None:
        for trial in (self.trials[name] for name in event["trials"] if name in self.trials):
            if trial.status == "failed":
                trial.begin_anew()
                self._rank_again(trial)

    def _on_order_obeyed(self, event: Event) -> None:
        if event["verb"] == "retry" and "trials" in event:
            self._on_retry_requested(event)

    def _on_trial_ended(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        self._leave(trial, event["time"])
        trial.status, trial.cause = event["status"], event.get("cause")
        trial.message, trial.traceback = event.get("message"), event.get("traceback")
        trial.ended, trial.ended_by, trial.due = event["time"], event.get("by"), None
        trial.attempts.waiting = False
        self.ended_trials.append(trial)
        self._rank_again(trial)

    def _enter(self, trial: TrialRecord, now: float) -> None:
        self._leave(trial, now)
        trial.status, trial.running_since, trial.ended, trial.paused = "running", now, None, False
        trial.due, trial.study_version = None, self._study_version
        trial.attempts.begin()
        trial.entered.append(now)
        self.on_workers[trial.trial] = trial
        self._rank_again(trial)

    def _leave(self, trial: TrialRecord, now: float) -> None:
        if trial.running_since is not None:
            stay = max(0.0, now - trial.running_since) / trial.together
            trial.running_seconds += stay
            trial.running_since = trial.features = None
            self._left_seconds += stay
            self.on_workers.pop(trial.trial, None)
