"""`run` and `resume`: a study becomes a run folder."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.driver.cluster import concurrency as cluster_concurrency
from tuner.driver.cluster import connected
from tuner.driver.description import describe_run, describe_session
from tuner.driver.interruption import GRACE_SECONDS, Interruption, interruptions
from tuner.driver.mirroring import END_SECONDS, INTERRUPTED_SECONDS, MirrorProcess, wandb_mode
from tuner.driver.splitting import check_splits
from tuner.errors import RunFolderError
from tuner.loop.earlier import learned
from tuner.loop.limits import Limits
from tuner.loop.search_loop import SearchLoop, StudyInterrupted
from tuner.resources import Resources
from tuner.results.events import Event, Listener
from tuner.results.folder import Folder
from tuner.results.run import STUDY_FILE, Run, load_run, new_run_folder, now, write_info
from tuner.search import Learned
from tuner.study import Study, load_study
from tuner.trial import ImageClassifier

TUNE = "tune"
_log = logging.getLogger(__name__)  # for what comes to light after the last event; unless set up, it goes to stderr


def run(
    study: Study | str | Path,
    *,
    storage: str | Path = "runs",
    concurrency: int | None = None,
    address: str | None = None,
    wandb: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
    **options: Any,
) -> Run:
    """Search: check the study, run its trials, write the run folder; returns the run.

    `wandb` is "online", "offline" or "off", by default online where the user is logged in. `options` are those of
    `Study.with_options`. `nice` lowers the workers' priority by so many steps of niceness.
    Ctrl-C, SIGTERM and SIGHUP end the search early, within `grace` seconds (25 by default); the run's status is then
    "interrupted" and `resume` goes on with it. So it is where Ray dies.

    Raises StudyError (and its kinds) before anything is started or written where the study can't work.
    """
    mode = wandb_mode(wandb)
    declared = load_study(study) if not isinstance(study, Study) else study
    options = {name: value for name, value in options.items() if value is not None}
    ready = declared.with_options(**options)
    ready.check_here(cluster=address is not None)
    check_splits(ready)
    ready = replace(ready, trial=ready.declared_trial.resolved())
    _download(ready)
    start_from = learned(ready, storage)
    with (
        interruptions(GRACE_SECONDS if grace is None else grace) as interrupted,
        connected(ready, address, interrupted=interrupted, nice=nice) as resources,
    ):
        folder = new_run_folder(storage, ready.name)
        info = {**describe_run(ready, options, resources, address), "wandb": mode}
        _write_study_file(folder, declared)
        search = _Search(ready, folder, info, resources, concurrency, listeners, interrupted, start_from=start_from)
        return search.perform()


def resume(
    path: str | Path,
    *,
    study: Study | None = None,
    trials: int | None = None,
    hours: float | None = None,
    device_hours: float | None = None,
    total_epochs: int | None = None,
    target: float | None = None,
    concurrency: int | None = None,
    address: str | None = None,
    wandb: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
) -> Run:
    """Go on with an interrupted run, or extend a finished one to other limits of its budget.

    `trials`, `hours`, `device_hours` and `total_epochs` are those of the run in all; `wandb` is what it was, unless
    given. `study` is needed where the run
    was started from Python rather than from a file. Raises RunFolderError where there is nothing to go on with, or a
    driver works on the run.
    """
    earlier = load_run(path)
    mode = wandb_mode(wandb or earlier.info.get("wandb", "off"))
    if earlier.alive:
        raise RunFolderError(
            f"a run can be resumed once its driver has ended, got {earlier.path!r}, on which process "
            f"{earlier.info['pid']} "
            f"on {earlier.info['host']} works; wait for it or end it with Ctrl-C"
        )
    options = dict(earlier.info["options"])
    limits = {
        "trials": trials,
        "hours": hours,
        "device_hours": device_hours,
        "total_epochs": total_epochs,
        "target": target,
    }
    options |= {name: value for name, value in limits.items() if value is not None}
    ready = (study or earlier.declared_study()).with_options(**options)
    ready = replace(ready, trial=ready.declared_trial.resolved(Path(earlier.info["working_directory"])))
    _check_something_left(earlier, ready)
    ready.check_here(cluster=address is not None)
    check_splits(ready)
    _download(ready)
    with (
        interruptions(GRACE_SECONDS if grace is None else grace) as interrupted,
        connected(ready, address, interrupted=interrupted, nice=nice) as resources,
    ):
        info = {
            **earlier.info,
            **describe_session(ready, address),
            "options": options,
            "wandb": mode,
            "sessions": earlier.info["sessions"] + 1,
        }
        search = _Search(ready, earlier.folder, info, resources, concurrency, listeners, interrupted, earlier.events)
        return search.perform()


class _Search:
    """One driver's work on one run folder."""

    def __init__(
        self,
        study: Study,
        folder: Folder,
        info: dict[str, Any],
        resources: Resources,
        limit: int | None,
        listeners: Iterable[Listener],
        interrupted: Interruption,
        history: Sequence[Event] = (),
        start_from: Learned | None = None,
    ) -> None:
        self.study, self.folder, self.info, self.resources = study, folder, info, resources
        self.interrupted = interrupted
        self.workers = cluster_concurrency(resources, limit)
        self.info |= {"concurrency": self.workers, "status": "running"}
        write_info(folder, self.info)
        self.loop = SearchLoop(
            study,
            folder,
            concurrency=self.workers,
            devices=resources.devices,
            history=history,
            learned=start_from,
            listeners=[*listeners, self._info_listener()],
        )

    def perform(self) -> Run:
        """Run Ray Tune until the search ends or is interrupted; then tables, winner, the final run.json and report."""
        interrupted, mirror = False, self._start_mirror()
        try:
            self._tune()
        except (StudyInterrupted, KeyboardInterrupt):
            interrupted = True
        from tuner.results.tables import write_tables

        write_tables(self.folder, self.loop.record)
        if not interrupted:
            self._write_winner()
        self.loop.close(interrupted=interrupted)
        write_tables(self.folder, self.loop.record)
        self._finish(interrupted)
        if not self.interrupted.hurried:
            self._write_report()
        if mirror is not None:
            problem = mirror.finish(min(self._mirror_seconds(interrupted), self.interrupted.seconds_left()))
            if problem is not None:
                _log.warning(problem)
        return Run(self.folder)

    def _start_mirror(self) -> MirrorProcess | None:
        """A search goes on without W&B where its process can't be started."""
        if self.info["wandb"] == "off":
            return None
        try:
            return MirrorProcess(self.folder, self.info["wandb"])
        except OSError as error:
            self.loop.notice(f"W&B is left out: {error}")
            return None

    def _mirror_seconds(self, interrupted: bool) -> float:
        return 0.0 if self.interrupted.hurried else INTERRUPTED_SECONDS if interrupted else END_SECONDS

    def _write_report(self) -> None:
        """As with the winner's test score: a search without its report is still a search."""
        from tuner.results.report import write_report

        try:
            self.info["report"] = write_report(Run(self.folder))
        except Exception as error:
            _log.warning(
                "report.html could not be written (%r); try again with: python -m tuner report %s",
                error,
                self.folder.uri,
            )
        else:
            write_info(self.folder, self.info)

    def _write_winner(self) -> None:
        """A search is worth more than its winner's test score: what goes wrong here is told, and no more."""
        from tuner.driver.winner import write_winner

        try:
            write_winner(self.study, self.folder, self.loop.record, self.resources)
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.loop.notice(f"the winner could not be scored on the test split: {lines[-1]}")

    def _tune(self) -> None:
        from ray import tune

        from tuner.driver.adapters import Bridge, RayCallback, RayScheduler, RaySearch
        from tuner.driver.host_memory import memory_kills_survived
        from tuner.worker.runner import make_trainable

        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(self.workers)
        bridge = Bridge(
            self.loop,
            self.resources,
            self.folder.uri,
            save_epochs=self.study.scheduler.rungs(self.study.budget.max_epochs),
            interrupted=self.interrupted.is_set,
            session=self.info["sessions"] - 1,
        )
        try:
            with memory_kills_survived(), self.interrupted.breakable():
                tune.run(
                    make_trainable(self.study.declared_trial),
                    name=TUNE,
                    storage_path=self.folder.uri,
                    search_alg=RaySearch(bridge),
                    scheduler=RayScheduler(bridge),
                    callbacks=[RayCallback(bridge)],
                    reuse_actors=True,
                    verbose=0,
                    raise_on_failed_trial=False,
                )
        finally:
            bridge.await_saves()

    def _info_listener(self) -> _InfoWriter:
        return _InfoWriter(self)

    def _finish(self, interrupted: bool) -> None:
        record = self.loop.record
        best = record.best_trial()
        status = "interrupted" if interrupted else "finished" if best else "failed"
        self.info |= {
            "status": status,
            "ended": now(),
            "end_reason": (self.interrupted.reason or "interrupted") if interrupted else self.loop.end_reason,
            "trials": record.counts(),
            "best": best and best.trial,
            "wall_seconds": round(record.active_seconds, 3),
        }
        write_info(self.folder, self.info)


class _InfoWriter:
    """Keeps the counts in run.json fresh, every few seconds at most."""

    SECONDS = 5.0

    def __init__(self, search: _Search) -> None:
        self._search, self._written = search, time.monotonic()

    def on_event(self, event: Event) -> None:
        """Write run.json where it is old."""
        if time.monotonic() - self._written > self.SECONDS and event["event"] == "trial_ended":
            self._written = time.monotonic()
            self._search.info["trials"] = self._search.loop.record.counts()
            write_info(self._search.folder, self._search.info)


def _download(study: Study) -> None:
    """Fetch data and weights before the search rather than in its trials; raises DataError or WeightsError."""
    if study.declared_trial.missing_downloads():
        from tuner.train import download_missing

        trial = study.declared_trial
        assert isinstance(trial, ImageClassifier)
        download_missing(trial)


def _write_study_file(folder: Folder, study: Study) -> None:
    if study.source is not None:
        folder.write(STUDY_FILE, study.source.read_bytes())
    else:
        folder.write(STUDY_FILE, f'"""Declared in Python, not in a file."""\n\n# {study!r}\n'.encode())


def _check_something_left(earlier: Run, study: Study) -> None:
    record = earlier.record
    if any(trial.live for trial in record.trials.values()):
        return
    done, wanted = len(record.trials), study.trials
    if wanted is not None and done >= wanted:
        space = study.search_space.size
        if done >= space:
            raise RunFolderError(
                f"the run tried all {done} configurations of its space; widen the space in a new study"
            )
        raise RunFolderError(
            f"--trials is the number of trials in all and needs to be above the {done} that the run has, got {wanted}; "
            f"use --trials {done + 10}"
        )
    limits = Limits(study, record, earlier.devices)
    reached = limits.reached()
    if reached is not None:
        limit, spent = getattr(study.budget, reached), limits.spent(reached)
        option = f"--{reached.replace('_', '-')}"
        beyond = "better than" if reached == "target" else "above"
        raise RunFolderError(
            f"{option} is for the run in all and needs to be {beyond} the {spent:.4g} that it has, got {limit:g}; "
            f"use {option} with another value"
        )
