"""A search while it runs, in a log or a pipe: a line for each trial that starts or ends, and one every half minute."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO

from tuner.console.standing import ORDERS, Progress, answered
from tuner.history.attempts import DRAINED
from tuner.history.events import CONCLUDING, OPENING, Event
from tuner.history.records import TrialRecord
from tuner.results.wording import averaged, outcome, plural, settings, short, with_error
from tuner.text import printable

QUIET_SECONDS = 30.0  # after which an epoch, or the state, gets a line
NAMED_TRIALS = 4
_LOOK_SECONDS = 1.0


class Lines:
    """A line per trial that starts or ends, and at least every QUIET_SECONDS one about the state of the search.

    `clock` gives the time in seconds.
    """

    def __init__(
        self,
        progress: Progress,
        stream: IO[str],
        opening: str = "starting Ray",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._stream, self._progress, self._clock = progress.plan, stream, progress, clock
        self._doing = opening  # before the first trial, or after the search
        self._begun = False  # whether the followed driver's search has begun, and not only an earlier one's
        self._said = clock()
        self._features_said: dict[str, float] = {}  # when it was last told how far those are that a trial computes
        self._cut_off: list[TrialRecord] = []  # trials that a limit has just ended, not told yet
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._remind, name="tuner-progress", daemon=True)

    def __enter__(self) -> Lines:
        self._say(f"{self._plan.study}: {self._doing}")
        self._thread.start()
        return self

    def __exit__(self, error: object = None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._tell_cut_off()
        refused = error is not None and not self._begun
        if self._progress.record.trials and not refused:
            self._say(self._progress.totals())

    def on_event(self, event: Event) -> None:
        """Print the line for the event, if it has one."""
        with self._lock:
            if event["event"] == OPENING:
                self._doing = str(event["step"])
                self._say(self._doing)
                return
            self._begun = True
            if event["event"] == CONCLUDING:
                self._doing = str(event["step"])
                self._say(self._doing)
            elif self._progress.on_event(event):
                line = self._line(event)
                if line is not None:
                    self._say(line)

    def break_silence(self) -> None:
        """Print the state of the search if nothing was printed for QUIET_SECONDS."""
        with self._lock:
            self._tell_cut_off()
            if self._is_quiet():
                self._say(self._standing())

    # Inside

    def _line(self, event: Event) -> str | None:
        record, kind = self._progress.record, event["event"]
        if kind == "trial_started":
            self._doing = ""
            again = f", going on from epoch {event['from_epoch']}" if event.get("from_epoch") else ""
            if "refits" in event:
                return (
                    f"trial {event['trial']} started: the winner, trial {event['refits']}, again on training and "
                    "validation images together, so that no image is left to validate it"
                )
            if "repeats" in event:
                return f"trial {event['trial']} started: the configuration of trial {event['repeats']}, another seed"
            return f"trial {event['trial']} started{again}: {settings(event['config'])}"
        if kind == "features_computed":
            return self._features(event["trial"])
        if kind == "epoch_reported" and event["decision"] == "continue" and self._is_quiet():
            return self._epoch(record.trials[event["trial"]])
        if kind == "trial_ended":
            trial = record.trials[event["trial"]]
            if trial.status != "stopped" or trial.ended_by in (None, "early_stopping"):
                return self._ended(trial)
            self._cut_off.append(trial)  # maybe others with it
        if kind == "trial_lost":
            if event.get("cause") == DRAINED:
                return f"trial {event['trial']} was saved and leaves its node, which is drained; it goes on elsewhere"
            again = "another worker goes on from its last checkpoint, if there is one"
            return f"trial {event['trial']} lost its worker; {again}: {event['message']}"
        if kind == "trial_retried":
            how = ", alone on its device" if event.get("alone") else " on a fresh worker" if event.get("used") else ""
            return f"trial {event['trial']} failed and is tried again{how}: {event['message']}"
        if kind == "retry_requested":
            return f"failed trials run again: {', '.join(event['trials'])}"
        if kind in ORDERS:
            return answered(event)
        return f"note: {event['message']}" if kind == "notice" else None

    def _features(self, trial: str) -> str | None:
        """A line when a trial begins to compute features, then one every QUIET_SECONDS."""
        said = self._progress.computing().get(trial)
        if said is None or self._clock() - self._features_said.get(trial, -math.inf) < QUIET_SECONDS:
            return None
        self._features_said[trial] = self._clock()
        return f"trial {trial} is {said}"

    def _epoch(self, trial: TrialRecord) -> str:
        value = trial.metrics().get(self._plan.metric)
        reached = "" if value is None else f", {self._plan.metric} {short(value)}"
        return (
            f"trial {trial.trial} at epoch {trial.epoch} of {self._progress.full_length(trial)}{reached}; "
            f"{plural(len(self._progress.running()), 'trial')} running; {self._outlook()}"
        )

    def _ended(self, trial: TrialRecord) -> str:
        worth = self._progress.record.worth_of(trial.trial)
        value = ""
        if worth is not None:
            best = "best " if worth.last == worth.first else ""
            value = f", {best}{self._plan.metric} {with_error(worth)}{averaged(worth)}"
        why = f" ({trial.message})" if trial.message else ""
        return (
            f"trial {trial.trial} {outcome(trial)} after {plural(trial.epoch, 'epoch')}{value}{why}; {self._outlook()}"
        )

    def _tell_cut_off(self) -> None:
        """A line for the trials that a limit has ended together."""
        found, self._cut_off = self._cut_off, []
        if len(found) == 1:
            self._say(self._ended(found[0]))
        elif found:
            named = _first_ones([one.trial for one in found])
            self._say(f"{len(found)} trials stopped: {named}; {self._outlook()}")

    def _standing(self) -> str:
        """The present activity, if no event shows it."""
        if self._doing:
            return f"still {self._doing}"
        running = self._progress.running()
        if not running:
            return f"no trial runs now; {self._outlook()}"
        computing = self._progress.computing()
        self._features_said |= dict.fromkeys(computing, self._clock())
        running.sort(key=lambda trial: trial.trial not in computing)
        named = [f"{trial.trial} {_activity(trial, computing)}" for trial in running]
        return f"{plural(len(running), 'trial')} running: {_first_ones(named)}; {self._outlook()}"

    def _outlook(self) -> str:
        return f"best so far {self._progress.incumbent()}; {self._progress.eta()}"

    def _is_quiet(self) -> bool:
        return self._clock() - self._said >= QUIET_SECONDS

    def _say(self, line: str) -> None:
        self._tell_cut_off()
        self._said = self._clock()
        print(printable(line), file=self._stream, flush=True)

    def _remind(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                self.break_silence()
            except (OSError, ValueError):  # the reader is gone
                return


def _first_ones(named: list[str]) -> str:
    """The first few, and how many more there are."""
    more = [f"{len(named) - NAMED_TRIALS} more"] if len(named) > NAMED_TRIALS else []
    return ", ".join(named[:NAMED_TRIALS] + more)


def _activity(trial: TrialRecord, computing: Mapping[str, str]) -> str:
    """What a running trial does now; `computing` is what trials say of features, for which others may be waiting."""
    if trial.trial in computing:
        return computing[trial.trial]
    return "before its first epoch" if computing and not trial.epoch else f"in epoch {trial.epoch + 1}"
