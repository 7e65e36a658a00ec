"""Scores the winner once on the test split, after the search, by its implementation on a worker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from tuner.driver.meanwhile import meanwhile
from tuner.errors import TrialError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.records import RunRecord, TrialRecord
from tuner.lifecycle.writing_best import (
    NEW,
    ScoringInterrupted,
    copy_as_saved,
    has_network,
    network_of,
    replace_best,
    winner_due,
)
from tuner.resources import Resources
from tuner.results.run import BEST
from tuner.storage.folder import Folder
from tuner.storage.locations import open_folder
from tuner.study import Study
from tuner.temporary import OwnedFolder
from tuner.trial import Trial
from tuner.worker.code import extend_import_path
from tuner.worker.implementation import implementation_of
from tuner.worker.pickling import pickle_trial

SHORTEST_LIMIT = 600.0  # seconds that scoring may take, or
EPOCHS_ALLOWED = 20  # this many times the winner's mean epoch, whichever is more
LOOK_SECONDS = 0.2
RETRIES = 2  # where the worker dies


def write_winner(
    study: Study, folder: Folder, record: RunRecord, resources: Resources, leave: Callable[[], bool]
) -> None:
    """Write `best/`: the winner as its implementation scores it, or its checkpoint as it was saved.

    Raises ScoringInterrupted as soon as `leave` says so, TimeoutError where scoring takes far longer than it should,
    and whatever goes wrong in scoring.
    """
    due = winner_due(folder, record)
    if due is None:
        return
    best, details = due
    folder.delete(NEW)
    trial = study.declared_trial
    if implementation_of(trial).scores and has_network(record, details):
        _score(study, trial, folder, best, details, resources, leave)
        replace_best(folder)
    else:
        copy_as_saved(folder, record, best, details)


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
    needs = {"num_cpus": resources.cpus or 1, "num_gpus": resources.gpus or 0}
    scorer = ray.remote(_Scorer).options(**needs, max_restarts=RETRIES, max_task_retries=RETRIES).remote()
    device = "cuda" if resources.gpus else "cpu"
    given = (pickle_trial(trial), list(sys.path), best.config, folder.uri, study.seed, device, details)
    limit = max(SHORTEST_LIMIT, EPOCHS_ALLOWED * best.running_seconds / max(1, len(best.epochs)))
    try:
        _await(scorer.score.remote(*given), limit, leave)
    except (ScoringInterrupted, TimeoutError):
        meanwhile(lambda: ray.kill(scorer))  # which may wait for a Ray that is gone
        raise


def _await(task: Any, seconds: float, leave: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not ray.wait([task], timeout=LOOK_SECONDS)[0]:
        if leave():
            raise ScoringInterrupted("the winner was not scored")
        if time.monotonic() > until:
            raise TimeoutError(f"it took more than {seconds / 60:.0f} min")
    ray.get(task)


class _Scorer:
    """An actor: for a task the raylet starts a second worker, which would import torch and do nothing.

    It starts workers ahead for tasks that wait, the one that it is asked about among them (Ray 2.60's `node_manager.cc`
    and `worker_pool.cc`).
    """

    def score(self, *given: Any) -> None:
        """See `_score_on_worker`."""
        _score_on_worker(*given)


def _score_on_worker(
    pickled: bytes,
    import_path: list[str],
    config: dict[str, Any],
    run_uri: str,
    split_seed: int,
    device: str,
    details: dict[str, Any],
) -> None:
    extend_import_path(import_path)
    trial = cloudpickle.loads(pickled)
    folder = open_folder(run_uri)
    store = CheckpointStore(folder)
    how: dict[str, Any] = {"split_seed": split_seed, "device": device}
    with OwnedFolder("best") as temporary:
        checkpoint = store.fetch(*network_of(details), temporary / "checkpoint")
        best = temporary / BEST
        own = _own(store, details, temporary / "own") if "refit" in details else None
        if own is not None:
            told = implementation_of(trial).beside_own(trial, config, refitted=checkpoint, own=own, **how)
            details = details | {"refit": details["refit"] | {"own": told}}
        scored = trial.refitted() if "refit" in details else trial
        implementation_of(trial).score(scored, config, checkpoint, best, record=details, **how)
        folder.delete(NEW)
        for file in sorted(best.iterdir(), key=lambda file: file.name == "model.json"):  # it vouches for the others
            folder.write(f"{NEW}/{file.name}", file.read_bytes())


def _own(store: CheckpointStore, details: dict[str, Any], target: Path) -> Path | None:
    """The checkpoint of the winner itself; None if it no longer exists."""
    try:
        return store.fetch(details["trial"], details["epoch"], target)
    except TrialError:
        return None
