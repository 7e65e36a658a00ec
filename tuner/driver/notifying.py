"""The notifier of one driver's search: made when the run's folder is there, told of the end when all is written."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.history.events import Event, Listener
from tuner.history.records import RunRecord
from tuner.notify import Notifier, Target
from tuner.results.run import Run
from tuner.storage.folder import Folder
from tuner.study import Study

_log = logging.getLogger(__name__)  # for what comes to light after the last event


class Notifying:
    """Follows a search for its targets; nothing where there are none."""

    def __init__(self, targets: Sequence[Target], folder: Folder, study: Study, history: Sequence[Event] = ()) -> None:
        record = RunRecord(study.metric, study.mode, history)
        self._notifier = Notifier(targets, run=folder.uri, study=study.name, record=record) if targets else None

    @property
    def listeners(self) -> list[Listener]:
        """What follows the search's events."""
        return [self._notifier] if self._notifier is not None else []

    @contextmanager
    def of(self, search: Any) -> Iterator[None]:
        """Within the block the search runs; at its end the targets are told how."""
        if self._notifier is None:
            yield
            return
        self._notifier.notice = search.loop.notice
        try:
            yield
            problem = self._notifier.end(Run(search.folder))
        finally:
            self._notifier.close()
        if problem is not None:
            _log.warning("%s", problem)
