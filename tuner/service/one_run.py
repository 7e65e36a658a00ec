"""One run as the only study of a service that only shows it, whoever drives it: `tuner show --web`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from tuner.errors import RunFolderError
from tuner.history.run_info import RUN_FILE
from tuner.results import load_run
from tuner.results.run import RecordedRun
from tuner.results.wording import going_on_by
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Change, Demand, Progress, State, SubmittedStudy
from tuner.service.search_progress import Followed
from tuner.service.service import Service
from tuner.service.thread import ServerThread
from tuner.text import printable

STUDY = 1  # the number of the only study
LOOK_SECONDS = 0.3
_STATES = MappingProxyType(
    {
        "running": State.RUNNING,
        "finished": State.FINISHED,
        "failed": State.FAILED,
        "interrupted": State.PAUSED,  # because somebody may go on with it
    }
)
_log = logging.getLogger(__name__)


class OneRun(Service):
    """Shows a run's present state; starts, changes and ends nothing. `folder` is for data of sessions."""

    def __init__(self, run: RecordedRun, folder: Path) -> None:
        super().__init__(folder, devices=())
        self._path = run.path
        self._seen: tuple[object, ...] = ()
        self._run_followed: Followed | None = None
        self._study = self._read(run)
        self._thread = ServerThread(self._keep_up, "tuner-one-run")

    def start(self) -> None:
        """Follow the run until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Stop following; the run goes on."""
        self._thread.end()
        super().close()

    def study(self, study: int) -> SubmittedStudy:
        """The run as a study."""
        if study != STUDY:
            raise ServiceError(Code.NOT_FOUND, f"the only study here is {STUDY}", str(study), "open the printed link")
        return self._study

    def _listed(
        self, states: Collection[State], user: str | None, before: int | None, limit: int, text: str
    ) -> list[SubmittedStudy]:
        """Only the run."""
        named = all(word in self._study.name.casefold() for word in text.casefold().split())
        fits = named and before is None and user in (None, "") and (not states or self._study.state in states)
        return [self._study] if fits else []

    def tags(self, ids: Sequence[int]) -> dict[int, list[str]]:
        """None: the page of one run shows its notes."""
        return {}

    def progress(self, study: int) -> Progress | None:
        """The search's progress, from its events."""
        followed, told = self._run_followed, self.study(study).progress
        if followed is not None:
            return followed.progress()
        return Progress(**{**told, "left": None, "still": None}) if told else None

    def followed(self, study: int) -> Followed | None:
        """The search while a driver works on it."""
        self.study(study)
        return self._run_followed

    # The thread

    def _keep_up(self) -> None:
        while not self._thread.rest(LOOK_SECONDS):
            try:
                self._look()
            except Exception:  # the folder is temporarily gone: what was read stays, and the next look tries again
                _log.exception("the run can't be read now")
                self._thread.rest(1.0)

    def _look(self) -> None:
        with suppress(RunFolderError):  # deleted
            run = load_run(self._path)
            if self._stamp(run) != self._seen:
                self._study = self._read(run)
                self._listeners.tell(Change(STUDY, "state", self._study.state))
            elif self._run_followed is not None and self._run_followed.new():
                self._listeners.tell(Change(STUDY, "progress", self._study.state))

    def _stamp(self, run: RecordedRun) -> tuple[object, ...]:
        """A value that changes when a driver begins or ends."""
        return run.status, run.folder.modified(RUN_FILE)

    def _read(self, run: RecordedRun) -> SubmittedStudy:
        self._seen = self._stamp(run)
        followed = Followed(run.path)
        followed.new()
        state, progress = _STATES[run.status], asdict(followed.progress())
        self._run_followed = followed if state is State.RUNNING else None
        began, last = _seconds(run.info["started"]), run.record.last_time
        return SubmittedStudy(
            id=STUDY,
            name=run.title,
            user="",
            state=state,
            priority=0,
            preemptible=False,
            demand=Demand(),
            after=(),
            submitted=began or last or 0.0,
            changed=last or began or 0.0,
            started=began,
            ended=None if state is State.RUNNING else last,
            run=run.path,
            external=bool(run.info.get("asked")),
            reason=_reason(run, state),
            progress=progress,
        )


def _reason(run: RecordedRun, state: State) -> str | None:
    if state is State.FAILED:
        return "no trial of the search succeeded"
    if state is not State.PAUSED:
        return None
    by = run.info.get("interrupted_by")
    return printable(f"{by or 'interrupted'}; to go on: {going_on_by(run)}")


def _seconds(started: object) -> float | None:
    """A time of run.json in seconds since 1970."""
    try:
        return datetime.fromisoformat(str(started)).timestamp()
    except ValueError:
        return None
