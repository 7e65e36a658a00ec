"""A run's state, computed from its events one by one; the same code serves the driver, the terminal and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tuner.history.attempts import DRAINED, LOST, USED
from tuner.history.event_lines import Event, finite, flaw, introduces, names_trial
from tuner.history.placement import Placement
from tuner.history.readings import Readings
from tuner.history.requests import Confirming
from tuner.history.spent import Spent
from tuner.history.standings import Rank, Standing, Standings
from tuner.history.steered import Steered
from tuner.history.trial_record import (
    EpochRecord,
    Status,
    TrialRecord,
    flat_config,
    full_length,
    saved_epochs,
    saved_share,
)
from tuner.history.worth import Worth

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


class RunRecord(Spent):
    """All trials of a run, kept up to date by `apply`.

    Long because it has a short method for each kind of event, and all of them change the same trials.
    """

    def __init__(self, metric: str, mode: str, events: Iterable[Event] = ()) -> None:
        super().__init__()
        self.metric, self.mode = metric, mode
        self.trials: dict[str, TrialRecord] = {}
        self.ended_trials: list[TrialRecord] = []  # in the order of their ends
        self.notices: list[str] = []
        self.notice_codes: dict[str, None] = {}
        self.readings = Readings()
        self.steered = Steered()  # changes by users' orders
        self.confirming = Confirming()
        self.ended: str | None = None
        self.configurations = self.refits = 0  # numbers of configurations, and of trials that train a winner again
        self._standings = Standings(mode, self.trials, lambda trial: trial.values(metric))
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

    def failures(self) -> dict[str, int]:
        """Failed trials by cause, the most frequent first."""
        causes = Counter(trial.cause or "error" for trial in self.trials.values() if trial.status == "failed")
        return dict(causes.most_common())

    def best_of(self, trial: str) -> tuple[int, float] | None:
        """A trial's result: the epoch whose network stands for it, and the value by which trials are compared.

        For a trial trained to its end the value is a mean, see `worth_of`; for others the best one.
        """
        worth = self.worth_of(trial)
        return None if worth is None else (worth.epoch, worth.value)

    def worth_of(self, trial: str) -> Worth | None:
        """The result of `best_of`, with the epochs that its value is the mean of, and its error."""
        return self._standings.worth(trial)

    def standing_of(self, trial: str) -> Worth | None:
        """Its configuration's worth: the same as `worth_of`, unless several seeds were trained to their end."""
        return self._standings.standing(trial)

    def same_configuration(self, trial: TrialRecord) -> Sequence[TrialRecord]:
        """All trials of its configuration, the first one first: one, unless others repeat it with other seeds."""
        return self._standings.repeats.of(trial)

    def seeds_of(self, trial: TrialRecord) -> tuple[float, ...]:
        """The worths of its configuration's trials that were trained to their end, in the order of trials."""
        seeds = self._standings.repeats.seeds(trial)
        return seeds.values if seeds else ()

    def mean_curve(self, trial: TrialRecord) -> list[tuple[int, float]]:
        """The trial's values by epoch, each the mean with those of the full-length trials of its configuration."""
        more = [dict(one.values(self.metric)) for one in self.same_configuration(trial) if one.status == "completed"]
        curves = [dict(trial.values(self.metric)), *more] if trial.status != "completed" else more
        told = {epoch: [c[epoch] for c in curves if epoch in c] for epoch, _ in trial.values(self.metric)}
        return [(epoch, sum(value / len(values) for value in values)) for epoch, values in told.items()]

    def seed_count(self, trial: TrialRecord) -> int:
        """How many seeds count for its configuration, see `tuner.history.repeats`; only one with the most can win."""
        return self._standings.repeats.count(trial)

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds that count for a configuration; at least 1."""
        return self._standings.repeats.most

    @property
    def seed_spread(self) -> float | None:
        """The standard deviation between seeds of one configuration; None if none was trained to its end twice."""
        return self._standings.repeats.spread

    @property
    def repeated(self) -> list[TrialRecord]:
        """The first trials of the configurations that have several."""
        return [self.trials[first] for first in self._standings.repeats.firsts()]

    def rank(self, trial: TrialRecord) -> Rank:
        """Greater for the trial that ranks higher, of equals for the earlier one; least without a value."""
        return self._standings.rank(trial)

    def best_trial(self) -> TrialRecord | None:
        """The trial that ranks highest, see `tuner.history.standings`; failed trials don't count."""
        return self._standings.leader()

    @property
    def best_ended_trial(self) -> TrialRecord | None:
        """The highest-ranked of the trials that have ended well."""
        return self._standings.leader_of_the_ended()

    @property
    def to_beat(self) -> float | None:
        """The best worth of the trials that were trained to their end, None while there is none."""
        return self._standings.to_beat()

    def may_win(self, trial: TrialRecord) -> bool:
        """Whether a trial that goes on may come to rank above those that have ended well."""
        return self._standings.may_win(trial)

    @property
    def best_reporter(self) -> TrialRecord | None:
        """The trial that reported the best value, at whatever epoch; failed trials don't count."""
        return self._standings.leader_by_reports()

    def best_report_of(self, trial: str) -> tuple[int, float] | None:
        """Epoch and value of the best that one trial reported, the earlier of equals."""
        return self._standings.best_report(trial)

    @property
    def best_value(self) -> float | None:
        """The best value that any trial reported, None while there is none: what the limit `target` reads."""
        best = self.best_reporter
        found = best and self.best_report_of(best.trial)
        return found[1] if found else None

    @property
    def winning_value(self) -> float | None:
        """The value of the highest-ranked trial, None while there is none."""
        best = self.best_trial()
        found = best and self.standing_of(best.trial)
        return found.value if found else None

    def reports(self) -> list[tuple[float, TrialRecord, int, float | None]]:
        """Every reported epoch in the order of time: time, trial, epoch, and the metric's value if it is a number."""
        found = [
            (e.time, t, e.epoch, float(e.metrics[self.metric]) if finite(e.metrics.get(self.metric)) else None)
            for t in self.trials.values()
            for e in t.epochs.values()
        ]
        return sorted(found, key=lambda report: report[0])

    def reported(self) -> list[Standing]:
        """The configurations that have a value, in the order of their trials; failed trials don't count.

        Each is represented by a trial: the only one that has it, or the best one of several seeds.
        """
        return self._standings.reported()

    def ranked(self) -> list[Standing]:
        """Which configurations lead: `reported`, the winner first, of equals the earlier.

        This order is the only answer to what is best; `tuner.history.standings` says how it comes about.
        """
        return self._standings.ranked()

    def completed(self, alone: int) -> list[Standing]:
        """Those of `ranked` that were trained to their end, of those with one trial only the best `alone`; quick."""
        return self._standings.completed(alone)

    def challengers(self) -> list[Standing]:
        """The configurations that are better than the winner by value, but from too few seeds to win; best first."""
        return self._standings.challengers()

    def rows(self) -> list[TrialRecord]:
        """A trial for each configuration: those of `ranked`, then the first ones of those without a value."""
        ranked = [one.trial for one in self.ranked()]
        told = {trial.configuration for trial in ranked}
        return ranked + [t for t in self.trials.values() if t.suggested and t.configuration not in told]

    def represents(self, trial: TrialRecord) -> bool:
        """Whether it stands for its configuration: as the only trial that has it, or the best; not if it failed."""
        return self._standings.represents(trial)

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
            self._standings.add_repeat(first, trial)
        else:
            self.configurations += 1
        return trial

    def _on_trial_placed(self, event: Event) -> None:
        stay = Placement(event["host"], event["pid"], event["devices"], event.get("gpus", []))
        self._left_seconds += self.trials[event["trial"]].place(stay, event.get("waited", 0.0), event["time"])

    def _on_trial_handed(self, event: Event) -> None:
        self.trials[event["trial"]].worker = event["worker"]

    def _on_epoch_reported(self, event: Event) -> None:
        trial = self.trials[event["trial"]]
        ended = trial.end_of_epoch(event["time"], event.get("ago", 0.0))
        epoch = EpochRecord(event["epoch"], event["metrics"], event["decision"], ended, event.get("ending"))
        self.readings.take(event)
        again = epoch.epoch in trial.epochs  # after an interruption; the newer row counts
        trial.epochs[epoch.epoch] = epoch
        trial.due = epoch if epoch.decision != "continue" else None
        value = epoch.metrics.get(self.metric)
        self._count_epoch(again=again, later=trial.confirms or (trial.refits is not None and self.confirming.alone))
        self._standings.report(trial, epoch.epoch, value if finite(value) else None, again=again)

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
        had_last = [trial.had_last for trial in members]
        for trial in members if len(members) > 1 else ():
            trial.had_last = trial is changed and not any(one.checkpoints for one in members)
        if changed.status == "completed" or had_last != [trial.had_last for trial in members]:
            self._standings.saved(changed)

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
                self._standings.changed(trial)

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
        self._standings.changed(trial)

    def _enter(self, trial: TrialRecord, now: float) -> None:
        self._leave(trial, now)
        trial.status, trial.running_since, trial.ended, trial.paused = "running", now, None, False
        trial.due, trial.study_version = None, self._study_version
        trial.attempts.begin()
        trial.entered.append(now)
        self.on_workers[trial.trial] = trial
        self._standings.changed(trial)

    def _leave(self, trial: TrialRecord, now: float) -> None:
        if trial.running_since is not None:
            stay = max(0.0, now - trial.running_since)
            trial.running_seconds += stay
            trial.running_since = None
            self._left_seconds += stay
            self.on_workers.pop(trial.trial, None)
