"""Functions that are called from Python and need Ray or torch, which are loaded when the functions are called."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tuner.api.driving import driver_room, driving_with, ray_says_nothing, resumed, shown
from tuner.api.run import Run, for_users
from tuner.errors import RunFolderError
from tuner.history.events import Listener
from tuner.lifecycle.targets import listed
from tuner.machine.installation import check_trains
from tuner.results.representing import search_failure
from tuner.results.run_folders import load_run
from tuner.storage.locations import open_folder
from tuner.study.declaration import Study
from tuner.study.file import load_study

if TYPE_CHECKING:
    from tuner.api.background import BackgroundSearch
    from tuner.inspection import LoadedModel
    from tuner.inspection.shipping import Form
    from tuner.label_errors import LabelErrors


def run(
    study: Study | str | Path,
    *,
    storage: str | Path = "runs",
    concurrency: int | None = None,
    address: str | None = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
    notify: Iterable[str] = (),
    progress: bool = True,
    raise_on_failure: bool = True,
    **changes: Any,
) -> Run:
    """Search; returns the run, whose `repr` says which configuration won.

    Args:
        study: or the path of its file
        storage: folder or URI that contains the run folders
        concurrency: trials at once, at most
        address: of an existing Ray cluster
        wandb: "online", "offline" or "off"; by default online if the user is logged in
        mlflow: the address of an MLflow server that shows the search, such as "http://127.0.0.1:5000"
        nice: 0 to 19, is added to the workers' niceness, which lowers their priority
        grace: seconds that a search may take to save and end after a signal; 25 by default
        listeners: their `on_event` is called for every event while the search runs
        notify: web addresses and commands that get messages about the end of the search and new best values
        progress: whether to show the search while it runs: as a table and a curve in a notebook, else on stderr
        raise_on_failure: whether a search without any successful trial raises SearchFailed
        changes: to the study: any limit of `Budget` by its name, name, cpus, gpus, strategy, placement, seed, fixed (a
            dict of hyperparameters), weights, data_dir, history, portfolio

    Raises:
        StudyError: the study can't work; nothing was started or written.
        SearchFailed: no trial succeeded; its `run` says why they failed.
    """
    driving = driving_with(concurrency, address, wandb, nice, grace, listeners, notify, mlflow)
    from tuner.console.live_table import Plan

    declared = study if isinstance(study, Study) else load_study(study)
    with shown(Plan.of(declared.with_options(**changes)), driving, progress=progress) as driven:
        found = for_users(driver_room().run(declared, changes, driven, storage=storage))
    return _succeeded(found) if raise_on_failure else found


def resume(
    path: str | Path,
    *,
    study: Study | None = None,
    concurrency: int | None = None,
    address: str | None = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
    notify: Iterable[str] = (),
    progress: bool = True,
    raise_on_failure: bool = True,
    take_over: bool = False,
    retry: bool | Iterable[str] = False,
    **limits: float | None,
) -> Run:
    """Go on with an interrupted run, do steps after a search that were cut off, or extend a finished run.

    Args:
        path: of the run's folder, or of a folder above it, for the newest run there
        study: needed if the run was started from Python and not from a file
        concurrency: trials at once, at most
        address: of an existing Ray cluster
        wandb: unchanged by default
        mlflow: unchanged by default; "off" leaves it out
        nice: as for `run`
        grace: as for `run`
        listeners: as for `run`
        notify: as for `run`; what `run` was given isn't kept
        progress: as for `run`
        raise_on_failure: as for `run`
        take_over: take the run over from a driver that still works on it
        retry: failed trials that run again first, by id: `retry=["00007"]`; True for all except those that diverged
        limits: of `Budget` by their names, for the whole run: `trials=40` for 40 in total

    Raises:
        RunFolderError: there is nothing to go on with, another driver works on the run, or new trials could not be
            compared with its trials.
        StudyError: the study can't work.
        SearchFailed: no trial of the run succeeded.
    """
    driving = driving_with(concurrency, address, wandb, nice, grace, listeners, notify, mlflow)
    asked = {"study": study, "take_over": take_over, "retry": _named(retry)}
    found = for_users(resumed(path, limits, driving, progress=progress, **asked))
    return _succeeded(found) if raise_on_failure else found


def refit(
    run: Run | str | Path,
    *,
    undo: bool = False,
    study: Study | None = None,
    address: str | None = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
    notify: Iterable[str] = (),
    progress: bool = True,
    take_over: bool = False,
) -> Run:
    """Train the winner of a run again on training and validation images together, for as many epochs as it was trained.

    `best/` then has the network of that trial; no image is left to validate it. If it is interrupted, `resume` goes on
    with it. A run whose search was interrupted first goes on with its search.

    Args:
        run: or the path of its folder, or of a folder above it, for the newest run there
        undo: put the winner's own network back into `best/`, and train nothing
        study: needed if the run was started from Python and not from a file
        address: of an existing Ray cluster
        wandb: unchanged by default
        mlflow: unchanged by default; "off" leaves it out
        nice: as for `run`
        grace: as for `run`
        listeners: as for `run`
        notify: as for `run`
        progress: as for `run`
        take_over: take the run over from a driver that still works on it

    Raises:
        RunFolderError: the run has no winner, or one that was trained again already; a driver works on it.
        StudyError: the trials aren't an `ImageClassifier`, or the study can't work.
    """
    driving = driving_with(None, address, wandb, nice, grace, listeners, notify, mlflow)
    asked = {"study": study, "take_over": take_over, "ships": "no-refit" if undo else "refit"}
    return for_users(resumed(run, {}, driving, progress=progress, **asked))


def combine(
    run: Run | str | Path,
    how: Literal["auto", "ensemble", "soup", "distilled"] = "auto",
    *,
    undo: bool = False,
    study: Study | None = None,
    address: str | None = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
    notify: Iterable[str] = (),
    progress: bool = True,
    take_over: bool = False,
) -> Run:
    """Put the best trials as one model into `best/`, chosen by validation images.

    The winner's own model is then in `best/single/`. A run whose search was interrupted first goes on with its search.

    Args:
        run: or the path of its folder, or of a folder above it, for the newest run there
        how: "auto" for what pays, as validation images show: the average, a network with the mean of the weights, or
            the winner scaled; in any case "ensemble" for the first, "soup" for the second, "distilled" for a network
            that learns from the first, for three times the winner's epochs
        undo: put the winner's own network back into `best/`
        study: needed if the run was started from Python and not from a file
        address: of an existing Ray cluster
        wandb: unchanged by default
        mlflow: unchanged by default; "off" leaves it out
        nice: as for `run`
        grace: as for `run`
        listeners: as for `run`
        notify: as for `run`
        progress: as for `run`
        take_over: take the run over from a driver that still works on it

    Raises:
        RunFolderError: fewer than two networks are kept, or there is nothing to undo; a driver works on the run.
        StudyError: the trials aren't an `ImageClassifier`, or the study can't work.
    """
    driving = driving_with(None, address, wandb, nice, grace, listeners, notify, mlflow)
    asked = {"study": study, "take_over": take_over, "ships": "no-combination" if undo else how}
    return for_users(resumed(run, {}, driving, progress=progress, **asked))


def find_label_errors(
    run: Run | str | Path,
    *,
    study: Study | None = None,
    out: str | Path | None = None,
    force: bool = False,
    trust: bool = False,
) -> LabelErrors:
    """Images whose label is probably wrong, by answers of the run's networks to images that they didn't learn from.

    They are also written into label_errors.html and label_errors.csv; `tuner labels --apply` makes a table of the
    second, which has the corrected labels.

    Args:
        run: or the path of its folder, or of a folder above it, for the newest run there
        study: needed if the run was started from Python and not from a file
        out: folder of the files; None for the run's own
        force: replace a label_errors.csv that is there, with the corrections in it
        trust: run the study file of a run that belongs to another user

    Raises:
        RunFolderError: no network of a trial that was trained to its end is kept, the data has changed, the study is
            needed, or the files can't be written.
        StudyError: the trials aren't an `ImageClassifier` of one label for each image.
        DataError: the data is missing or damaged.
    """
    check_trains("a judgement of labels", libraries=("torch", "torchvision"))
    from tuner.label_errors import find

    found = run if isinstance(run, Run) else load_run(run)
    return find(found, found.folder if out is None else open_folder(out), study=study, force=force, trust=trust)


def start(
    study: Study | str | Path,
    *,
    storage: str | Path = "runs",
    concurrency: int | None = None,
    address: str | None = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    notify: Iterable[str] = (),
    raise_on_failure: bool = True,
    **changes: Any,
) -> BackgroundSearch:
    """Search in the background of a notebook or a script; returns as soon as the run's folder exists.

    `with tuner.start(study) as search:` waits at the end of the block until the search has ended. After an exception or
    Ctrl-C inside the block the search is saved and ended: `tuner.resume` goes on with it. The arguments are those of
    `run`.

    The search runs in its own process, because only a process's main thread handles signals, Ray changes the process in
    which it is started, and a computation in a notebook's cell would delay the search. If the process that started the
    search ends, in any way, the search is saved and ends.

    Raises:
        StudyError: the study can't work, or can't be sent to another process.
    """
    check_trains("a search")
    with ray_says_nothing():
        from tuner.api.background import start_background

    declared = study if isinstance(study, Study) else load_study(study)
    driving = {"concurrency": concurrency, "address": address, "wandb": wandb, "nice": nice, "grace": grace}
    driving["mlflow"] = mlflow
    return start_background(
        declared, changes, {**driving, "notify": listed(notify)}, storage=storage, raise_on_failure=raise_on_failure
    )


def load_model(
    run: Run | str | Path, device: str = "cpu", *, trust: bool = False, point: str | None = None
) -> LoadedModel:
    """The winner of a run, in evaluation mode: `.module`, `.classes`, `.predict(paths)`, `.evaluate(split)`.

    If a function of the study file makes the model, that file is needed; it is only run if it belongs to the user, or
    with `trust`. `point` names another network on the front of two metrics: "knee", "cheapest", the best within a limit
    as "latency_ms<=5", or a trial. Raises RunFolderError if the run has no such network that can be loaded.
    """
    check_trains("a winner's model", libraries=("torch", "torchvision"))
    from tuner import inspection

    return inspection.load_winner(run, device, trust=trust, point=point)


def export_model(
    run: Run | str | Path,
    form: Form,
    path: str | Path,
    *,
    trust: bool = False,
    max_drop: float = 0.01,
    point: str | None = None,
) -> list[Path]:
    """Write the winner of a run into a new folder for other programs; returns the files, the model card first.

    `form` is "onnx" (with a variant in float16; needs the extra `onnx`), "int8" (quantised; `onnx`), "openvino"
    (`openvino`), "torch-export", "safetensors" or "hub" (a folder for timm and transformers; `hf` and `timm`). The file
    is checked: its probabilities for 64 test images are the winner's, within 1e-4. For "int8" and "openvino" the
    accuracy that it loses on validation images is measured, at most `max_drop`. The run's study file says where the
    data is; `trust` runs it even if it belongs to another user. `point` is that of `load_model`.

    Raises RunFolderError if the run has no winner that can be loaded, the folder exists, the form can't express the
    network, or loses more.
    """
    check_trains("a winner's model", libraries=("torch", "torchvision"))
    from tuner.inspection.shipping import ship

    return ship(run if isinstance(run, Run) else load_run(run), form, path, trust=trust, max_drop=max_drop, point=point)


def _succeeded(found: Run) -> Run:
    """The run, unless the search has ended without any successful trial."""
    failure = search_failure(found)
    if failure is not None:
        raise failure
    return found


def _named(retry: bool | Iterable[str]) -> list[str] | None:
    """The ids of the trials to retry; empty for all, None for no retry; raises RunFolderError."""
    if isinstance(retry, bool):
        return [] if retry else None
    named = [str(trial) for trial in retry]
    if not named:
        raise RunFolderError("retry needs ids of failed trials, got none; use True for all but those that diverged")
    return named
