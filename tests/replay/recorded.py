"""Runs of real trials, trained by what a worker calls and driven by the real loop, in this process and without Ray."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner import Run, Study, load_run, load_study
from tuner.errors import describe_failure
from tuner.history.events import read_events
from tuner.history.run_info import STUDY_FILE, write_info
from tuner.lifecycle.description import describe_run
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision
from tuner.storage.folder import LocalFolder
from tuner.study.resources import Resources
from tuner.trial import session
from tuner.worker.assignment import Assignment
from tuner.worker.clean_process import clean_process
from tuner.worker.implementation import implementation_of
from tuner.worker.messages import Message
from tuner.worker.reporting import WRITER, WorkerSession


class Left(BaseException):
    """The search wants the trial to stop, or the driver was killed."""


class LoopSession(WorkerSession):
    """Reports straight to the loop."""

    quick_seconds = 0.0

    def __init__(self, assignment: Assignment, loop: SearchLoop, reports: list[int]) -> None:
        super().__init__(assignment)
        self._loop, self._left = loop, reports

    def _deliver(self, messages: Sequence[Message]) -> None:
        (message,) = (json.loads(message.text) for message in messages)
        self._left[0] -= 1
        trial = self._assignment.trial
        decision = self._loop.report(trial, message["epoch"], message["metrics"], saved=message["saved"])
        if decision is not Decision.CONTINUE or self._left[0] <= 0:
            raise Left


def searched(folder: Path, text: str, *, reports: int = 10**9) -> Run:
    """The run of a study file with this text; its driver is killed after so many reports, if there are so many."""
    file = folder.parent / f"{folder.name}.py"
    file.write_text(text)
    study = load_study(file)
    folder.mkdir()
    (folder / STUDY_FILE).write_text(text)
    resources = Resources(cpus=1)
    write_info(LocalFolder(folder), {**describe_run(study, {}, resources, None), "status": "interrupted"})
    return resumed(folder, study, reports=reports)


def resumed(folder: Path, study: Study, *, reports: int = 10**9) -> Run:
    """The run, gone on with."""
    ready = replace(study, trial=study.declared_trial.resolved())
    opening = {"study_file": (folder / STUDY_FILE).read_text(), "study_version": 1}
    history = list(read_events(LocalFolder(folder)))
    loop = SearchLoop(ready, LocalFolder(folder), concurrency=1, history=history, opening=opening)
    left = [reports]
    while left[0] > 0 and not loop.finished:
        start = loop.next_action()
        if start is not None:
            _train(ready, loop, start, left, folder)
    if left[0] > 0:
        loop.end()
    loop.close()
    return load_run(folder)


def _train(study: Study, loop: SearchLoop, start: Start, left: list[int], folder: Path) -> None:
    assignment = Assignment(
        trial=start.trial,
        config=start.config,
        seed=start.seed,
        epochs=start.epochs,
        save_epochs=study.scheduler.rungs(study.budget.max_epochs),
        metric=study.metric,
        mode=study.mode,
        study_seed=study.seed,
        cpus=1,
        gpus=0,
        run_uri=str(folder),
        reported=start.reported,
        refit_epochs=start.refit_epochs,
    )
    with clean_process(seed=assignment.seed, threads=1):
        worker = LoopSession(assignment, loop, left)
        try:
            with session.activate(worker):
                implementation_of(study.declared_trial).train(study.declared_trial, assignment, worker)
            if start.trial in loop.running:
                loop.returned(start.trial)
        except Left:
            pass
        except Exception as error:
            loop.failed(start.trial, *describe_failure(error))
        finally:
            assert WRITER.flush(60)
            for epoch in WRITER.finished(start.trial):
                loop.saved(start.trial, epoch)
            worker.close()
