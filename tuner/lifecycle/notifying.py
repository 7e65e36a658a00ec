"""The notifier of one driver's search: starts when the run's folder exists, sends the end after all is written."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tuner.history.events import Event, Listener
from tuner.history.records import RunRecord
from tuner.lifecycle.notifier import Notifier
from tuner.lifecycle.targets import Target
from tuner.loop.search_loop import SearchLoop
from tuner.results.run import RecordedRun
from tuner.storage.folder import Folder
from tuner.study.declaration import Study

_log = logging.getLogger(__name__)  # for problems after the last event


class Notifying:
    """Follows a search for its targets; does nothing without targets."""

    def __init__(self, targets: Sequence[Target], folder: Folder, study: Study, history: Sequence[Event] = ()) -> None:
        self._folder, record = folder, RunRecord(study.metric, study.mode, history)
        self._notifier = Notifier(targets, run=folder.uri, study=study.name, record=record) if targets else None

    @property
    def listeners(self) -> list[Listener]:
        """The listeners to the search's events."""
        return [self._notifier] if self._notifier is not None else []

    def follow(self, loop: SearchLoop) -> None:
        """From now on a message that can't be delivered becomes a notice of this search."""
        if self._notifier is not None:
            self._notifier.notice = loop.notice

    def end(self) -> None:
        """Send how the search ended, as its folder says."""
        problem = self._notifier.end(RecordedRun(self._folder)) if self._notifier is not None else None
        if problem is not None:
            _log.warning("%s", problem)

    def close(self) -> None:
        """Send nothing more."""
        if self._notifier is not None:
            self._notifier.close()

    @contextmanager
    def of(self, loop: SearchLoop) -> Iterator[None]:
        """For the block in which the search runs; at its end the targets get the outcome."""
        self.follow(loop)
        try:
            yield
            self.end()
        finally:
            self.close()
