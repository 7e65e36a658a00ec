"""Sends messages about a search from a thread: its end at once, and new best values at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.errors import one_line
from tuner.history.events import Event, Listener
from tuner.history.records import RunRecord
from tuner.lifecycle.targets import Target, Undelivered
from tuner.loop.search_loop import SearchLoop
from tuner.results.run import RecordedRun
from tuner.results.wording import best_so_far, ending, trials_and_repeats
from tuner.storage.folder import Folder
from tuner.study.declaration import Study
from tuner.text import command

SECONDS_BETWEEN_BESTS = 60.0
SECONDS_FOR_THE_LAST = 15.0  # that the end of a search waits until its message is sent
Message = dict[str, Any]
_log = logging.getLogger(__name__)  # for problems after the last event


class Notifier:
    """Follows a search as its listener and sends messages to its targets. Only the end of the search waits for them,
    for some seconds.

    Of the new best values within SECONDS_BETWEEN_BESTS only the newest is sent. The first message that can't be
    delivered becomes a notice of the search, given to `notice` when the next event comes. Without targets it does
    nothing.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        folder: Folder,
        study: Study,
        history: Sequence[Event] = (),
        between_seconds: float = SECONDS_BETWEEN_BESTS,
    ) -> None:
        """`folder` is the run's, which exists already. `history` are the events of its earlier drivers: a value must be
        better than theirs to be a new best.
        """
        self._targets, self._folder, self._study = targets, folder, study.name
        self._record = RunRecord(study.metric, study.mode, history)
        self.notice: Callable[[str], None] | None = None
        self._best = self._record.winning_value
        self._between = between_seconds
        self._changed = threading.Condition()
        self._waiting: Message | None = None
        self._last: Message | None = None
        self._closed = False
        self._problem: str | None = None
        self._told_problem = False
        self._thread = threading.Thread(target=self._work, name="tuner-notify", daemon=True)
        if targets:
            self._thread.start()

    @property
    def listeners(self) -> list[Listener]:
        """The listeners to the search's events."""
        return [self] if self._targets else []

    @contextmanager
    def of(self, loop: SearchLoop) -> Iterator[None]:
        """For the block in which the search runs; at its end the targets get the outcome."""
        self.notice = loop.notice
        try:
            yield
            self.end()
        finally:
            self.close()

    def on_event(self, event: Event) -> None:
        """Take one event; that the leader has a better value than before is sent soon."""
        self._record.apply(event)
        self._tell_problem()
        if event["event"] not in ("epoch_reported", "trial_ended"):
            return
        before, leader, now = self._best, self._record.best_trial(), self._record.winning_value
        self._best = now
        if leader is None or now is None or event["trial"] != leader.trial:
            return  # or the trial that led has failed, or runs again
        if before is None or (now > before if self._record.mode == "max" else now < before):
            self._put(self._message("new_best", f"new best {best_so_far(self._record)}", value=now))

    def end(self) -> None:
        """Send how the search ended, as its folder says, instead of a best value that still waits.

        What went wrong so far is logged, unless a notice has said it.
        """
        if not self._targets:
            return
        run = RecordedRun(self._folder)
        kind, text = _outcome(run)
        best = run.best
        fields: dict[str, Any] = {"value": run.record.winning_value, "trial": best and best.trial}
        fields |= {"config": best and best.config_in_json}
        with self._changed:
            self._last = self._message(kind, text, **fields, status=run.status, trials=run.record.counts())
            self._waiting, self._closed = None, True
            self._changed.notify_all()
        self._thread.join(SECONDS_FOR_THE_LAST)
        if self._thread.is_alive():
            _log.warning("the message about the end of the search was not delivered in time")
        elif self._problem is not None and not self._told_problem:
            _log.warning("%s", self._problem)

    def close(self) -> None:
        """Send nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _message(self, kind: str, text: str, **fields: Any) -> Message:
        """`text` is what chats show of a message."""
        sentence = one_line(f"{self._study}: {text}")
        return {
            "event": kind,
            "message": sentence,
            "text": sentence,
            "run": self._folder.uri,
            "study": self._study,
            "metric": self._record.metric,
            "time": time.time(),
            **fields,
        }

    def _put(self, message: Message) -> None:
        with self._changed:
            self._waiting = message
            self._changed.notify_all()

    def _tell_problem(self) -> None:
        if self._problem is not None and not self._told_problem and self.notice is not None:
            self._told_problem = True  # before the notice, because it comes back as an event
            self.notice(self._problem)

    def _work(self) -> None:
        while (message := self._next_best()) is not None:
            self._deliver(message)
            with self._changed:  # the pause after a best, which the end of the search cuts short
                self._changed.wait_for(lambda: self._closed, self._between)
        if self._last is not None:
            self._deliver(self._last)

    def _next_best(self) -> Message | None:
        """The newest best; None once the search is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            found, self._waiting = self._waiting, None
            return None if self._closed else found

    def _deliver(self, message: Message) -> None:
        for target in self._targets:
            try:
                target.send(message)
            except Exception as error:
                if self._problem is None:
                    why = str(error) if isinstance(error, Undelivered) else type(error).__name__
                    self._problem = f"a message could not be delivered: {why}; the next ones are still tried"


def _outcome(run: RecordedRun) -> tuple[str, str]:
    """How the search ended, as an event's name and in a sentence."""
    trials = trials_and_repeats(run.record)
    if run.status == "interrupted":
        by_error = run.end_reason == "error"
        what = f"cut off by an error: {run.info['interrupted_by']}" if by_error else f"interrupted ({run.end_reason})"
        again = f"; go on with: {command('resume', run.path)}"
        return "failed" if by_error else "interrupted", f"{what} after {trials}{again}"
    if run.best is None:
        return "failed", f"no trial of {len(run.record.trials)} succeeded"
    return "ended", f"ended after {trials}, as {ending(run)}; best {best_so_far(run.record)}"
