"""The process that shows a run elsewhere: it follows the events that the driver writes, and tells each of them once.

It doesn't affect the search: if a server is slow or dead, only the display there is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from tuner.history.events import Event, EventFollower
from tuner.history.logs import end_of_log
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.similar_failures import place_of
from tuner.history.steered import Note
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run
from tuner.text import printable

POLL_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 60.0  # between two looks at the run; after failures of a server at most
Shown = TypeVar("Shown")  # what stands for a trial there


class Mirror(ABC, Generic[Shown]):
    """Sends a run's events elsewhere, from where an earlier mirror of the run stopped.

    `place` names the server if what another one has received doesn't count.
    """

    folder: ClassVar[str]  # in the run folder
    failures: tuple[type[Exception], ...] = ()  # after which everything since the last `save_state` is sent again

    def __init__(self, run: RecordedRun, place: str | None = None) -> None:
        self.gave_up = False  # whether the server couldn't be used
        self._run, self._place = run, place
        self._record = RunRecord(run.metric, run.mode)
        self._shown: dict[str, Shown] = {}  # trials that are open there
        self._told, self._time = 0, time.time()  # of the last event
        self._told_before, self._marked, self._url = self._read_state()
        self._epochs_told: dict[str, int] = {}
        self._group = "/".join(run.path.rstrip("/").split("/")[-2:])

    def on_event(self, event: Event) -> None:
        """Take one event."""
        self._told += 1
        if self._record.apply(event) is not None:
            return
        self._time = event["time"]
        kind, news = event["event"], self._told > self._told_before
        trial = self._record.trials.get(_named_trial(event))
        if trial is None:
            return
        if kind == "epoch_reported":
            # a trial that goes on from an earlier epoch repeats some, and what was sent stays
            epoch, told = event["epoch"], self._epochs_told.get(trial.trial, 0)
            self._epochs_told[trial.trial] = max(epoch, told)
            if news and epoch > told:
                metrics = {name: value for name, value in event["metrics"].items() if value is not None}
                self._send_epoch(trial, epoch, metrics)
        elif news and kind == "trial_started":
            self._open(trial)
        elif news and kind == "trial_ended":
            self._close(trial)
        elif news and kind == "order_obeyed" and event["verb"] == "note":
            self._send_notes(trial)
            if trial.ended is not None:
                self._close(trial)

    def save_state(self) -> None:
        """Remember what was received there, for a mirror of the same run when it is resumed."""
        told = max(self._told, self._told_before)
        state = {"events": told, "best": self._marked, "url": self._url, "place": self._place}
        self._run.folder.write(f"{self.folder}/mirror.json", json.dumps(state).encode())

    def finish(self, run: RecordedRun) -> None:
        """End what is open there, and write the summary; `run` is read again."""
        for trial in list(self._record.trials.values()):
            if trial.trial in self._shown or trial.ended is None:  # an earlier mirror may have left it open
                self._close(trial)
        self._mark_best()
        self._summarise(run)
        self.save_state()

    @abstractmethod
    def _open(self, trial: TrialRecord) -> Shown:
        """What stands there for the trial, until it is closed; remembered in `_shown`."""

    @abstractmethod
    def _send_epoch(self, trial: TrialRecord, epoch: int, metrics: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _send_notes(self, trial: TrialRecord) -> None: ...

    @abstractmethod
    def _close(self, trial: TrialRecord) -> None: ...

    @abstractmethod
    def _summarise(self, run: RecordedRun) -> None: ...

    # Inside

    def _mark_best(self) -> None:
        """Mark the winner, and remove the mark from an earlier one."""
        best = self._record.best_trial()
        winner = best.trial if best else None
        if winner == self._marked:
            return
        before, self._marked = self._marked, winner
        for name in (before, winner):
            if name is not None and name in self._record.trials:
                self._close(self._record.trials[name])

    def _key(self, of: str) -> str:
        """What identifies a trial, or the summary, at the server."""
        return hashlib.sha256(f"{self._group}/{self._run.info['started']}/{of}".encode()).hexdigest()[:16]

    def _notes(self, trial: TrialRecord) -> str:
        return written(self._record.steered.notes_of(trial.trial), f"seed {trial.seed}")

    def _outcome(self, trial: TrialRecord) -> dict[str, Any]:
        """How the trial ended; for one that was tried again, also that an earlier failure no longer applies."""
        found, failed = self._record.best_of(trial.trial), trial.status == "failed"
        outcome: dict[str, Any] = {
            "status": "interrupted" if trial.status in ("running", "paused") else trial.status,
            "cause": trial.cause,
            "message": trial.message,
            "failed_at": place_of(trial.traceback) or None if trial.traceback else None,
            "epochs": trial.epoch,
            "traceback": trial.traceback if failed else None,
            "output": printable(end_of_log(self._run.folder, trial.trial)) if failed else None,
        }
        outcome |= {"best_epoch": found[0], f"best_{self._run.metric}": found[1]} if found else {}
        return {name: value for name, value in outcome.items() if value is not None or trial.attempts.failed}

    def _read_state(self) -> tuple[int, str | None, str | None]:
        """How many events an earlier mirror sent, which trial it marked as the best, and where the search is shown."""
        try:
            state = json.loads(self._run.folder.read(f"{self.folder}/mirror.json"))
            best, url = state.get("best"), state.get("url")
            if state.get("place") != self._place:
                return 0, None, None
            told = int(state["events"]), best if isinstance(best, str) else None
            return *told, url if isinstance(url, str) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return 0, None, None


def written(notes: Iterable[Note], *lines: str) -> str:
    """The lines, then a line for each note."""
    return "\n".join([*lines, *(f"{note.by}: {note.text}" for note in notes)])


def _named_trial(event: Event) -> str:
    """The trial that an event, or a note, is about; "" for none."""
    arguments = event.get("arguments")
    named = arguments.get("trial") if isinstance(arguments, dict) else event.get("trial")
    return named if isinstance(named, str) else ""


def follow(run: RecordedRun, mirror_of: Callable[[], Mirror[Any]]) -> bool:
    """Mirror a run until standard input ends: the driver is done, or gone; returns whether everything was received.

    After a failure of the server a new mirror goes on from the last saved state, after a while; at the end at once.
    """
    os.nice(5)  # behind the trials; with 10 a machine full of other programs would leave it nothing
    ended, over, wait = threading.Event(), False, POLL_SECONDS
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    mirror = None
    while True:
        over = ended.wait(wait)  # checked before the last events are read
        if mirror is None:
            mirror, follower = mirror_of(), EventFollower(run.folder)
        try:
            events = follower.new()
            for event in events:
                mirror.on_event(event)
            if events:
                mirror.save_state()
            if over:
                mirror.finish(load_run(run.path))
                return not mirror.gave_up
            wait = POLL_SECONDS
        except mirror.failures as error:
            print(f"the server can't be used: {error}", flush=True)
            if over:
                return False
            mirror, wait = None, min(2 * max(wait, 1.0), LONGEST_WAIT_SECONDS)


def _await_end(ended: threading.Event) -> None:
    if not sys.stdin.isatty():  # else a user sends a run that has ended
        sys.stdin.buffer.read()
    ended.set()
