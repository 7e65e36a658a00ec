"""What is called from Python: the functions whose work needs Ray or torch, which are loaded when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.results import Run
from tuner.study import Study

if TYPE_CHECKING:
    from tuner.inspection import LoadedModel


def run(study: Study | str | Path, **options: Any) -> Run:
    """Search; returns the run. Options: those of `tuner.driver.run`, which are the command line's.

    storage, concurrency, address, listeners, and what changes the study: name, trials, hours, device_hours,
    total_epochs, target, cpus, gpus, seed, fixed (a dict of hyperparameters), weights, data_dir, history. Raises
    StudyError before anything is started where it can't work.
    """
    from tuner import driver

    return driver.run(study, **options)


def resume(path: str | Path, **options: Any) -> Run:
    """Go on with an interrupted run, or extend a finished one: to `trials` trials in all, say.

    Options: trials, hours, device_hours, total_epochs, target; `study` where the run was started from Python;
    concurrency, address, listeners. Raises RunFolderError where there is nothing to go on with.
    """
    from tuner import driver

    return driver.resume(path, **options)


def load_model(run: Run | str | Path, device: str = "cpu") -> LoadedModel:
    """The winner of a run, in evaluation mode: `.module`, `.classes`, `.predict(paths)`, `.evaluate(split)`.

    Raises RunFolderError where the run has no winner that can be loaded.
    """
    from tuner import inspection

    return inspection.load_winner(run, device)
