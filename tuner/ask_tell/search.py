"""`tuner.Search`: ask for trials, report their epochs, and say how they ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from tuner.api.run import Run
from tuner.ask_tell.beginning import begin, go_on
from tuner.ask_tell.driver import LOOK_SECONDS, AskDriver
from tuner.ask_tell.handed_out import Out
from tuner.ask_tell.report_checks import checked_cause, checked_epoch, checked_metrics, existing_folder, known_trial
from tuner.ask_tell.trial import Answer, AskedTrial
from tuner.errors import ReportError, asked_from_python, describe_error, describe_failure, kept, shown
from tuner.history.events import Listener
from tuner.history.logs import add_to_log
from tuner.lifecycle.targets import listed
from tuner.loop.queue import Start
from tuner.study.declaration import Study

LEFT = "its program left the search before its end"
SECONDS_ALONE = 5.0  # that a program's only thread waits in `ask` before a warning suggests `poll`
_log = logging.getLogger(__name__)  # unless set up, it goes to stderr


class Search:
    """A search whose trials your own program runs, anywhere; its run folder is like any other. Needs no Ray.

        with tuner.Search(study) as search:
            while (trial := search.ask()) is not None:
                for epoch in trial.epochs_left:
                    if search.report(trial, epoch, train(trial.config)) != "continue":
                        break
                search.tell(trial)

    All methods may be called from any thread. Everything is written to disk before a call returns: a killed program
    loses nothing, and goes on with `Search.resume`.

    Long because users call it: most of it describes what calls take, return and raise.

    Args:
        study: or the path of its file; its `trial` is `tuner.External()`
        storage: folder or URI that contains the run folders
        name: replaces the study's own name
        concurrency: how many trials may be handed out at the same time; by default as many as are asked for
        seed: replaces the study's own seed
        fixed: hyperparameters that get one value
        history: False ignores earlier runs
        portfolio: whether to start from the trainer's defaults and what tuner's own studies found; by default as the
            study says
        listeners: their `on_event` is called for every event
        notify: web addresses and commands that get messages about the end of the search and new best values
        limits: of `Budget` by their names

    Raises:
        StudyError: it can't work; nothing was written.
    """

    def __init__(
        self,
        study: Study | str | Path,
        *,
        storage: str | Path = "runs",
        name: str | None = None,
        concurrency: int | None = None,
        seed: int | None = None,
        fixed: Mapping[str, Any] | None = None,
        history: bool | None = None,
        portfolio: bool | None = None,
        listeners: Iterable[Listener] = (),
        notify: str | Iterable[str] = (),
        **limits: float | None,
    ) -> None:
        changes = {"name": name, "seed": seed, "fixed": fixed, "history": history, "portfolio": portfolio, **limits}
        told = listed(notify)
        with asked_from_python():
            driver = begin(study, changes, storage=storage, concurrency=concurrency, listeners=listeners, notify=told)
        self._take(driver)

    @classmethod
    def resume(
        cls,
        path: str | Path,
        study: Study | None = None,
        *,
        concurrency: int | None = None,
        take_over: bool = False,
        retry: Iterable[str] | None = None,
        listeners: Iterable[Listener] = (),
        notify: str | Iterable[str] = (),
        **limits: float | None,
    ) -> Self:
        """Go on with a run whose program was killed or ended, or extend a finished run.

        Trials that were running are handed out again, from their last checkpoints.

        Args:
            path: of the run's folder, or of a folder above it, for the newest run there
            study: needed if the run was started with a study from Python and not from a file
            concurrency: as for `Search`; unchanged by default
            take_over: take the run over from a program that still works on it
            retry: failed trials that are handed out again first; without names all except those that diverged
            listeners: as for `Search`
            notify: as for `Search`; earlier values are not kept
            limits: of `Budget` by their names, for the whole run: `trials=40` for 40 in total

        Raises:
            RunFolderError: there is nothing to go on with, another program works on the run, or new trials could not be
                compared with its trials.
            StudyError: the study can't work.
        """
        search = cls.__new__(cls)
        told = listed(notify)
        with asked_from_python():
            driver = go_on(
                *(path, study, limits),
                take_over=take_over,
                retry=retry,
                concurrency=concurrency,
                listeners=listeners,
                notify=told,
            )
        search._take(driver)
        return search

    def _take(self, driver: AskDriver) -> None:
        self._driver, self._loop = driver, driver.loop
        self._out = Out(driver)
        self._threads: set[int] = set()

    # Trials

    def ask(self) -> AskedTrial | None:
        """The next trial to run; None when the search is over. Then tables, report and `best/` are written.

        It waits while there is nothing to run: as many trials run as allowed, or the next trial depends on their
        reports. So other threads have to report meanwhile. A program with one thread that runs several trials calls
        `poll`.
        """
        start = None
        with self._driver.working():
            waited = 0
            while start is None and not self._driver.over:
                start = self._next()
                if start is None and not self._driver.over:
                    self._driver.wait()
                    waited += 1
                    self._warn_where_alone(waited)
        return None if start is None else self._out.handed(start)

    def poll(self) -> AskedTrial | None:
        """The next trial to run, or None if there is none now, without waiting; `finished` says whether more may
        come.
        """
        with self._driver.working():
            start = self._next()
        return None if start is None else self._out.handed(start)

    def report(
        self,
        trial: AskedTrial | str,
        epoch: int,
        value: float | Mapping[str, Any],
        *,
        checkpoint: str | PathLike[str] | None = None,
    ) -> Answer:
        """Record an epoch of a trial; returns what the trial does now: "continue", "stop" (it is over) or "pause".

        After "pause" stop working on the trial: `ask` hands it out again if it is to go on. If a report is repeated,
        the answer is the same.

        Args:
            trial: the trial from `ask`, or its id
            epoch: counted from 1, one after another
            value: of the study's metric, or several metrics by name
            checkpoint: a folder with everything that the trial needs to go on from here; it is copied. Trials that
                never report one are not paused

        Raises:
            ReportError: the report is impossible; nothing was recorded.
        """
        number, metrics = checked_epoch(epoch), checked_metrics(value, self._loop.study.reported)
        folder = None if checkpoint is None else existing_folder(checkpoint)
        with self._driver.working():
            self._threads.add(threading.get_ident())
            answer = self._out.answer_now(trial, number, metrics)
            if answer is not None:
                return answer
            if folder is None:
                return self._out.record(trial, number, metrics)
        saved = self._out.save(trial, number, folder, metrics)
        with self._driver.working():
            answer = self._out.answer_now(trial, number, metrics)  # another thread may have reported it meanwhile
            return answer or self._out.record(trial, number, metrics, saved=saved)

    def tell(
        self,
        trial: AskedTrial | str,
        value: float | Mapping[str, Any] | None = None,
        *,
        error: str | BaseException | None = None,
        cause: str = "error",
    ) -> None:
        """Say that a trial has ended: by itself, or by an error.

        Nothing happens if the trial is already over or paused.

        Args:
            trial: the trial from `ask`, or its id
            value: of its next epoch, to report that and end the trial in one call
            error: what the trial failed with; it is handed out again if `Study.failures` says so
            cause: of a failure: "error", "out_of_memory" or "diverged"; not needed for an exception

        Raises:
            ReportError: it is impossible, for instance because the trial hasn't reported anything yet.
        """
        if value is not None and error is not None:
            raise ReportError(f"a trial has a value or an error, got value={shown(value)} and error; give one of them")
        if error is not None:
            self._fail(trial, error, checked_cause(cause))
            return
        if value is not None:
            self.report(trial, self._out.next_epoch(trial), value)
        with self._driver.working():
            record = known_trial(self._loop.record, trial)
            if not self._out.is_with(trial, record):
                return
            if not record.epochs:
                raise ReportError(
                    f"a trial can be completed after its first report, got none of trial {record.trial}; "
                    "report its epochs, or tell its value or error"
                )
            self._loop.returned(record.trial)

    def lost(self, trial: AskedTrial | str, message: str = "its worker is gone") -> None:
        """Say that a trial's worker is gone: the trial is handed out again, from its last checkpoint.

        `Failures.hung_minutes` does this for trials that report nothing for so long.

        Raises:
            ReportError: there is no such trial.
        """
        self._fail(trial, str(message), "lost")

    def hand(self, trial: AskedTrial, worker: str, *, keeps: bool = False) -> None:
        """Record who works on a trial, for people who look at the run.

        Args:
            trial: the trial from `ask`
            worker: its name
            keeps: whether it worked on the trial before this program began, and kept its state: then the epoch after
                the last reported one comes next, even without a checkpoint
        """
        with self._driver.working():
            if self._out.is_with(trial, known_trial(self._loop.record, trial)):
                self._loop.placed(trial.id, "trial_handed", worker=worker)
                if keeps:
                    self._out.keep(trial)

    def standing(self, trial: AskedTrial) -> Answer:
        """What the worker of a trial should do now, without a report: the same answers as `report`.

        Raises:
            ReportError: there is no such trial.
        """
        with self._driver.working():
            record = known_trial(self._loop.record, trial)
            if self._out.is_with(trial, record):
                return "continue"
            return "pause" if record.live and not self._driver.over else "stop"

    # The search

    @property
    def metric(self) -> str:
        """The study's metric, the first if it has two."""
        return self._loop.study.metric

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that each report needs."""
        return self._loop.study.reported

    @property
    def over(self) -> bool:
        """Whether the search has ended; its report may not be finished yet. Never waits."""
        return self._driver.over

    @property
    def interrupted_by(self) -> str | None:
        """What asked the search to end early, such as "paused by anne"; None if nothing did."""
        return self._driver.interrupted_by

    @property
    def run(self) -> Run:
        """The run as its folder has it now."""
        return Run(self._driver.folder)

    @property
    def finished(self) -> bool:
        """Whether no more trials come: the search is over, or was closed or interrupted."""
        with self._driver.working():
            self._driver.look()
            return self._driver.over or self._loop.finished

    def close(self) -> None:
        """End the search. If nothing is left to run, tables, report and `best/` are written; else `resume` goes on.

        It is called automatically at the end of a `with` block.
        """
        self._close(LEFT)

    def __enter__(self) -> Self:
        """The search itself, which is closed at the end of the block."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Call `close`, with the error as the reason."""
        self._close(LEFT if error is None else _reason(error))

    def __repr__(self) -> str:
        """The run's path."""
        return f"<tuner.Search of {self._driver.folder.uri!r}>"

    # Inside

    def _close(self, reason: str) -> None:
        try:
            with self._driver.working():
                self._driver.close(reason)
        finally:
            self._out.close()

    def _next(self) -> Start | None:
        self._threads.add(threading.get_ident())
        return self._driver.next()

    def _warn_where_alone(self, waited: int) -> None:
        """Warn a program whose only thread waits for its own reports: it would wait forever."""
        alone = self._threads == {threading.get_ident()} and bool(self._loop.running)
        if alone and waited == round(SECONDS_ALONE / LOOK_SECONDS):
            _log.warning(
                "ask() waits for a report of %s, and no other thread has reported any so far; "
                "a program with one thread calls poll()",
                ", ".join(sorted(self._loop.running)),
            )

    def _fail(self, trial: AskedTrial | str, error: str | BaseException, cause: str) -> None:
        message, traceback = str(error), None
        if isinstance(error, BaseException):
            cause, message, traceback = describe_failure(error)
        with self._driver.working():
            record = known_trial(self._loop.record, trial)
            if not self._out.is_with(trial, record):
                return
            if kept(message, traceback) != (message, traceback):
                add_to_log(self._driver.folder, record.trial, traceback or message)
            if cause == "lost":
                self._loop.lost(record.trial, cause, message)
            else:
                self._loop.failed(record.trial, cause, message, traceback)


def _reason(error: BaseException) -> str:
    return "Ctrl-C" if isinstance(error, KeyboardInterrupt) else describe_error(error)
