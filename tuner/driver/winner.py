"""The winner, after the search: its checkpoint in `best/`, scored once on the test split."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from tuner.resources import Resources
from tuner.results.folder import Folder, LocalFolder, open_folder
from tuner.results.records import RunRecord, TrialRecord
from tuner.results.run import BEST
from tuner.study import Study
from tuner.trial import ImageClassifier
from tuner.worker.runner import pickle_trial


def write_winner(study: Study, folder: Folder, record: RunRecord, resources: Resources) -> None:
    """Write `best/`: for an image classifier the scored model, for a user's function its checkpoint as it saved it."""
    best = record.best_trial()
    if best is None:
        return
    epoch, _ = record.best_of(best.trial) or (best.epoch, None)
    path = best.checkpoints.get(epoch)
    metrics = dict(best.epochs[epoch].metrics)
    folder.delete(BEST)
    if isinstance(study.declared_trial, ImageClassifier) and path is not None:
        _score(study, study.declared_trial, folder, best, epoch, path, metrics, resources)
        return
    if path is not None:
        _copy(folder, path, f"{BEST}/checkpoint")
    folder.write(f"{BEST}/config.json", _json(best.config))
    folder.write(f"{BEST}/metrics.json", _json({"trial": best.trial, "epoch": epoch, "metrics": metrics}))


def _score(
    study: Study,
    trial: ImageClassifier,
    folder: Folder,
    best: TrialRecord,
    epoch: int,
    path: str,
    metrics: dict[str, Any],
    resources: Resources,
) -> None:
    """On a worker, with what a trial gets: the driver needs neither torch nor a GPU."""
    task = ray.remote(_score_on_worker).options(
        num_cpus=resources.cpus or 1, num_gpus=resources.gpus or 0, max_retries=2
    )
    device = "cuda" if resources.gpus else "cpu"
    details = {"trial": best.trial, "epoch": epoch, "metrics": metrics}
    work = (best.config, folder.uri, path, study.seed, device, details)
    ray.get(task.remote(pickle_trial(trial), list(sys.path), *work))


def _score_on_worker(
    pickled: bytes,
    import_path: list[str],
    config: dict[str, Any],
    run_uri: str,
    path: str,
    split_seed: int,
    device: str,
    details: dict[str, Any],
) -> None:
    from tuner.inspection import score, write_best

    sys.path.extend(entry for entry in import_path if entry not in sys.path)
    trial = cloudpickle.loads(pickled)
    folder = open_folder(run_uri)
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint = folder.fetch(path, Path(temporary) / "checkpoint")
        scored = score(trial, config, checkpoint, split_seed=split_seed, device=device)
        best = Path(temporary) / BEST
        write_best(best, trial, config, checkpoint, scored, details)
        for file in sorted(best.iterdir()):
            folder.write(f"{BEST}/{file.name}", file.read_bytes())


def _copy(folder: Folder, source: str, target: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        local = folder.fetch(source, Path(temporary) / "checkpoint")
        if isinstance(folder, LocalFolder):
            shutil.copytree(local, folder.path / target)
            return
        for file in sorted(local.rglob("*")):
            if file.is_file():
                folder.write(f"{target}/{file.relative_to(local).as_posix()}", file.read_bytes())


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, default=str) + "\n").encode()
