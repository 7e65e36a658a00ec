"""What is called from Python: the functions whose work needs Ray or torch, which are loaded when they are called."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import RunFolderError
from tuner.history.events import Listener
from tuner.installation import check_trains
from tuner.results import Run
from tuner.study import Study
from tuner.study_file import load_study

if TYPE_CHECKING:
    from tuner.inspection import LoadedModel


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
    **changes: Any,
) -> Run:
    """Search; returns the run. In a notebook a table and the curve of the best value are drawn meanwhile.

    Args:
        study: or the path of its file
        storage: folder or URI under which run folders lie
        concurrency: trials at once, at most
        address: of an existing Ray cluster
        wandb: "online", "offline" or "off"; by default online where the user is logged in
        nice: niceness that is added to that of the workers, which lowers their priority: 0 to 19
        grace: seconds that a search may take to end in order after a signal; 25 by default
        listeners: their `on_event` is called for every event while the search runs
        changes: to the study: any limit of `Budget` by its name, name, cpus, gpus, strategy, placement, seed, fixed (a
            dict of hyperparameters), weights, data_dir, history

    Raises:
        StudyError: it can't work; nothing was started or written.
    """
    check_trains("a search")
    from tuner import driver
    from tuner.console.notebook import NotebookDisplay, in_notebook

    listeners = list(listeners)
    if in_notebook():
        from tuner.console.progress import Plan

        study = study if isinstance(study, Study) else load_study(study)
        listeners.append(NotebookDisplay(Plan.of(study.with_options(**changes))))
    driving = driver.Driving(concurrency, address, wandb, nice, grace, listeners)
    return driver.run(study, changes, driving, storage=storage)


def resume(
    path: str | Path,
    *,
    study: Study | None = None,
    concurrency: int | None = None,
    address: str | None = None,
    wandb: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
    take_over: bool = False,
    retry: bool | Iterable[str] = False,
    **limits: float | None,
) -> Run:
    """Go on with an interrupted run, conclude one that was cut off in its conclusion, or extend a finished one.

    Args:
        path: of the run's folder, or of one above it, for the newest run in it
        study: needed if the run was started from Python rather than from a file
        concurrency: trials at once, at most
        address: of an existing Ray cluster
        wandb: what it was, unless given
        nice: as for `run`
        grace: as for `run`
        listeners: as for `run`
        take_over: from a driver that still works on the run
        retry: failed trials that run again first, by their ids: `retry=["00007"]`; True for all but those that diverged
        limits: of `Budget` by their names, for the whole run: `trials=40` for 40 in total

    Raises:
        RunFolderError: there is nothing to go on with, another driver works on the run, or new trials could not be
            compared with those that it has.
        StudyError: the study can't work.
    """
    check_trains("a search")
    from tuner import driver

    driving = driver.Driving(concurrency, address, wandb, nice, grace, list(listeners))
    again = None if retry is False else [] if retry is True else [str(trial) for trial in retry]
    if again == [] and retry is not True:
        raise RunFolderError("retry needs ids of failed trials, got none; use True for all but those that diverged")
    return driver.resume(path, limits, driving, study=study, take_over=take_over, retry=again)


def load_model(run: Run | str | Path, device: str = "cpu", *, trust: bool = False) -> LoadedModel:
    """The winner of a run, in evaluation mode: `.module`, `.classes`, `.predict(paths)`, `.evaluate(split)`.

    A model that a function of the study file makes takes that file, which is run only where it belongs to the user, or
    with `trust`. Raises RunFolderError where the run has no winner that can be loaded.
    """
    check_trains("a winner's model", libraries=("torch", "torchvision"))
    from tuner import inspection

    return inspection.load_winner(run, device, trust=trust)
