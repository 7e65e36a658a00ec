"""The winner, after the search: its checkpoint in `best/`, scored once on the test split.

`best/` is made beside its place and moved there as a whole, so that the earlier winner stays until the new one is
there, and a conclusion that was cut off can be done again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import ray
from ray import cloudpickle

from tuner.errors import TunerError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.records import RunRecord, TrialRecord
from tuner.resources import Resources
from tuner.results.run import BEST
from tuner.storage.folder import Folder
from tuner.storage.locations import open_folder
from tuner.study import Study
from tuner.temporary import OwnedFolder
from tuner.trial import Trial
from tuner.worker.implementation import implementation_of
from tuner.worker.pickling import pickle_trial

NEW = "best.new"
SHORTEST_LIMIT = 600.0  # seconds that scoring may take, or
EPOCHS_ALLOWED = 20  # this many times the winner's mean epoch, whichever is more
LOOK_SECONDS = 0.2


class ScoringInterrupted(TunerError):  # noqa: N818 -- what happened, not what is wrong
    """The winner's scoring was cut off, as the user wants to end; the run can be concluded later."""


def write_winner(
    study: Study, folder: Folder, record: RunRecord, resources: Resources, leave: Callable[[], bool]
) -> None:
    """Write `best/`: the winner as its implementation scores it, or its checkpoint as it was saved.

    Raises ScoringInterrupted as soon as `leave` says so, TimeoutError where scoring takes far longer than it should,
    and whatever goes wrong in scoring.
    """
    best = record.best_trial()
    if best is None:
        folder.delete(BEST)
        return
    epoch, _ = record.best_of(best.trial) or (best.epoch, None)
    if epoch not in best.checkpoints and is_written(folder, record):
        return  # its checkpoint was cleaned away: what best/ has is more than could be written now
    metrics = dict(best.epochs[epoch].metrics)
    details = {"trial": best.trial, "epoch": epoch, "metrics": metrics}
    folder.delete(NEW)
    trial = study.declared_trial
    if implementation_of(trial).scores and epoch in best.checkpoints:
        _score(study, trial, folder, best, details, resources, leave)
    else:
        if epoch in best.checkpoints:
            _copy(folder, best.trial, epoch)
        folder.write(f"{NEW}/config.json", _json(best.config))
        folder.write(f"{NEW}/metrics.json", _json(details))
    replace_best(folder)


def is_written(folder: Folder, record: RunRecord) -> bool:
    """Whether `best/` holds the record's winner, or rightly nothing."""
    best = record.best_trial()
    try:
        written = json.loads(folder.read(f"{BEST}/metrics.json"))
    except (OSError, ValueError):
        return best is None
    if best is None or not isinstance(written, dict):
        return False
    epoch, _ = record.best_of(best.trial) or (best.epoch, None)
    return (written.get("trial"), written.get("epoch")) == (best.trial, epoch)


def replace_best(folder: Folder) -> None:
    """Put `best.new` in the place of `best/`."""
    folder.delete(BEST)
    folder.rename(NEW, BEST)


def _score(
    study: Study,
    trial: Trial,
    folder: Folder,
    best: TrialRecord,
    details: dict[str, Any],
    resources: Resources,
    leave: Callable[[], bool],
) -> None:
    """On a worker, with what a trial gets: the driver needs neither torch nor a GPU."""
    task = ray.remote(_score_on_worker).options(
        num_cpus=resources.cpus or 1, num_gpus=resources.gpus or 0, max_retries=2
    )
    device = "cuda" if resources.gpus else "cpu"
    scoring = task.remote(pickle_trial(trial), list(sys.path), best.config, folder.uri, study.seed, device, details)
    limit = max(SHORTEST_LIMIT, EPOCHS_ALLOWED * best.running_seconds / max(1, len(best.epochs)))
    _await(scoring, limit, leave)


def _await(task: Any, seconds: float, leave: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not ray.wait([task], timeout=LOOK_SECONDS)[0]:
        if leave():
            ray.cancel(task, force=True)
            raise ScoringInterrupted("the winner was not scored")
        if time.monotonic() > until:
            ray.cancel(task, force=True)
            raise TimeoutError(f"it took more than {seconds / 60:.0f} min")
    ray.get(task)


def _score_on_worker(
    pickled: bytes,
    import_path: list[str],
    config: dict[str, Any],
    run_uri: str,
    split_seed: int,
    device: str,
    details: dict[str, Any],
) -> None:
    sys.path.extend(entry for entry in import_path if entry not in sys.path)
    trial = cloudpickle.loads(pickled)
    folder = open_folder(run_uri)
    with OwnedFolder("best") as temporary:
        kept = temporary / "checkpoint"
        checkpoint = CheckpointStore(folder).fetch(details["trial"], details["epoch"], kept)
        best = temporary / BEST
        implementation_of(trial).score(
            trial, config, checkpoint, best, record=details, split_seed=split_seed, device=device
        )
        folder.delete(NEW)
        for file in sorted(best.iterdir(), key=lambda file: file.name == "model.json"):  # it vouches for the others
            folder.write(f"{NEW}/{file.name}", file.read_bytes())


def _copy(folder: Folder, trial: str, epoch: int) -> None:
    with OwnedFolder("best") as temporary:
        local = CheckpointStore(folder).fetch(trial, epoch, temporary / "checkpoint")
        for file in sorted(path for path in local.rglob("*") if path.is_file()):
            folder.write(f"{NEW}/checkpoint/{file.relative_to(local).as_posix()}", file.read_bytes())


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, default=str) + "\n").encode()
