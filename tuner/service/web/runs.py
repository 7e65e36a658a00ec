"""The runs that were looked at last, kept until something happens in them: reading a long one takes seconds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from tuner.results import Run
from tuner.results.run import RUN_FILE
from tuner.service.errors import Code, ServiceError
from tuner.service.service import Service
from tuner.service.web.event_reader import EventReader

KEPT = 4


class Runs:
    """Runs by their study's number; may be used from several threads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: OrderedDict[int, tuple[Any, Run]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, study: int) -> Run:
        """The study's run as it is now. Raises ServiceError where it has none yet."""
        run = self._service.run(study)
        if run is None:
            state = self._service.study(study).state
            raise ServiceError(
                Code.NOT_FOUND,
                "only a study that has begun has trials and files",
                f"study {study}, which is {state}",
                "wait for it to begin, or look where its run folder was moved",
            )
        stamp = (run.path, EventReader(run.folder).end(), run.folder.modified(RUN_FILE))
        with self._lock:
            before, kept = self._kept.get(study, (None, run))
            run = kept if before == stamp else run
            self._kept[study] = (stamp, run)
            self._kept.move_to_end(study)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return run
