"""Scores the winner once on the test split after the search: its implementation does it, on a worker."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from tuner.driver.thread_work import meanwhile
from tuner.errors import TrialError, last_line
from tuner.history.checkpoints import CheckpointStore
from tuner.history.combination import Candidate, pool
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.scored import BEST
from tuner.lifecycle.writing_best import (
    NEW,
    ScoringInterrupted,
    copy_as_saved,
    has_network,
    network_of,
    replace_best,
    winner_due,
)
from tuner.machine.hardware import NO_GPUS, this_machine
from tuner.machine.temporary import OwnedFolder
from tuner.storage.folder import Folder
from tuner.storage.locations import open_folder
from tuner.study.declaration import Study
from tuner.study.resources import Resources
from tuner.trial import Trial
from tuner.worker.implementation import implementation_of
from tuner.worker.pickling import pickle_trial, received, sendable
from tuner.worker.study_code import extend_import_path

SHORTEST_LIMIT = 600.0  # seconds that scoring may take, or
EPOCHS_ALLOWED = 20  # this many times the winner's mean epoch, whichever is more
LOOK_SECONDS = 0.2
RETRIES = 2  # if the worker dies


def write_winner(
    study: Study, folder: Folder, record: RunRecord, resources: Resources, workers: int, leave: Callable[[], bool]
) -> None:
    """Write `best/`: the winner as its implementation scores it, or only its checkpoint.

    It is scored with the resources of a trial, but by as many threads as `workers` trials at once had, which have
    ended. Raises ScoringInterrupted as soon as `leave` says so, TimeoutError if scoring takes far longer than it
    should, and any exception of the scoring itself.
    """
    due = winner_due(folder, record)
    if due is None:
        return
    best, details = due
    folder.delete(NEW)
    trial = study.declared_trial
    if implementation_of(trial).scores and has_network(record, details):
        others = [one for one in pool(record) if one[0] is not best] if "combined" in details else None
        try:
            _score(study, trial, folder, best, others, details, resources, workers, leave)
        except ScoringInterrupted:
            raise
        except Exception as error:  # many networks need more memory and time than one
            if "combined" not in details:
                raise
            alone = details | {"combined": details["combined"] | {"failed": last_line(error)}}
            _score(study, trial, folder, best, None, alone, resources, workers, leave)
        replace_best(folder)
    else:
        copy_as_saved(folder, record, best, details)


def _score(
    study: Study,
    trial: Trial,
    folder: Folder,
    best: TrialRecord,
    others: Sequence[tuple[TrialRecord, int]] | None,
    details: dict[str, Any],
    resources: Resources,
    workers: int,
    leave: Callable[[], bool],
) -> None:
    """Score on a worker, with a trial's resources: the driver needs neither torch nor a GPU.

    `others` are those whose answers may be averaged with the winner's; None if they aren't.
    """
    needs = {"num_cpus": resources.cpus or 1, "num_gpus": resources.gpus or 0}
    threads = max(1, workers * int(resources.cpu_count))
    scorer = ray.remote(_Scorer).options(**needs, max_restarts=RETRIES, max_task_retries=RETRIES).remote()
    device = "cuda" if resources.gpus else "cpu"
    restored = study.search_space.restored
    members = None if others is None else [(one.trial, epoch, sendable(restored(one.config))) for one, epoch in others]
    config = sendable(restored(best.config))
    given = (pickle_trial(trial), list(sys.path), config, members, folder.uri, study.seed, device, threads, details)
    limit = max(SHORTEST_LIMIT, EPOCHS_ALLOWED * best.running_seconds / max(1, len(best.epochs)))
    limit *= 1 + len(others or ())
    try:
        _await(scorer.score.remote(*given), limit, leave)
    except (ScoringInterrupted, TimeoutError):
        meanwhile(lambda: ray.kill(scorer))  # may wait for a Ray that is gone
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
    """An actor and not a task, for which the raylet starts a second worker that imports torch and does nothing.

    The raylet starts workers in advance for waiting tasks, and counts the present one among these (Ray 2.60's
    `node_manager.cc` and `worker_pool.cc`).
    """

    def score(self, *given: Any) -> None:
        """See `_score_on_worker`."""
        _score_on_worker(*given)


def _score_on_worker(
    pickled: bytes,
    import_path: list[str],
    config: Any,
    others: Sequence[tuple[str, int, Any]] | None,
    run_uri: str,
    split_seed: int,
    device: str,
    threads: int,
    details: dict[str, Any],
) -> None:
    if device == "cpu":
        os.environ.update(NO_GPUS)
    extend_import_path(import_path)
    trial, config = cloudpickle.loads(pickled), received(config)
    implementation = implementation_of(trial)
    implementation.prepare(min(threads, this_machine().cpus))
    folder = open_folder(run_uri)
    store = CheckpointStore(folder)
    how: dict[str, Any] = {"split_seed": split_seed, "device": device}
    with OwnedFolder("best") as temporary:
        checkpoint = store.fetch(*network_of(details), temporary / "checkpoint")
        best = temporary / BEST
        own = _own(store, details, temporary / "own") if "refit" in details else None
        if own is not None:
            told = implementation.beside_own(trial, config, refitted=checkpoint, own=own, **how)
            details = details | {"refit": details["refit"] | {"own": told}}
        scored = trial.refitted() if "refit" in details else trial
        if others is not None:
            own_network = details["trial"], details["epoch"], config
            members = [Candidate(*own_network, checkpoint), *_fetched(store, others, temporary)]
            implementation.combine(trial, members, best, record=details, **how)
        else:
            implementation.score(scored, config, checkpoint, best, record=details, **how)
        folder.delete(NEW)
        files = [file for file in best.rglob("*") if file.is_file()]
        for file in sorted(files, key=lambda file: (file.parent == best, file.name == "model.json")):
            folder.write(f"{NEW}/{file.relative_to(best).as_posix()}", file.read_bytes())  # last: says they're whole


def _fetched(store: CheckpointStore, others: Sequence[tuple[str, int, Any]], target: Path) -> list[Candidate]:
    """The other trials whose networks may be averaged with the winner's, without those that no longer exist."""
    found = []
    for trial, epoch, config in others:
        with suppress(TrialError):
            folder = store.fetch(trial, epoch, target / trial)
            found.append(Candidate(trial, epoch, received(config), folder))
    return found


def _own(store: CheckpointStore, details: dict[str, Any], target: Path) -> Path | None:
    """The winner's own checkpoint; None if it no longer exists."""
    try:
        return store.fetch(details["trial"], details["epoch"], target)
    except TrialError:
        return None
