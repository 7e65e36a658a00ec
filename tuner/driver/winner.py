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
from tuner.history.scored import BEST, FRONT, UNSCORED
from tuner.lifecycle.writing_best import (
    NEW,
    ScoringInterrupted,
    copy_as_saved,
    front_due,
    has_network,
    network_of,
    replace_best,
    winner_due,
)
from tuner.machine.hardware import NO_GPUS, this_machine
from tuner.machine.temporary import OwnedFolder
from tuner.storage.folder import Folder
from tuner.storage.locations import no_space, open_folder
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
) -> list[str]:
    """Write `best/`: the winner as its implementation scores it, or only its checkpoint; then others in `front/`.

    It is scored with the resources of a trial, but by as many threads as `workers` trials at once had, which have
    ended. Returns sentences about networks in `front/` that couldn't be scored. Raises ScoringInterrupted as soon as
    `leave` says so, TimeoutError if scoring takes far longer than it should, and any exception of the scoring itself.
    """
    trial, due = study.declared_trial, winner_due(folder, record)
    scores = implementation_of(trial).scores
    scoring = _Scoring(study, trial, folder, resources, workers, leave)
    if due is not None:
        best, details = due
        folder.delete(NEW)
        if scores and has_network(record, details):
            others = [one for one in pool(record) if one[0] is not best] if "combined" in details else None
            try:
                scoring.score(best, others, details)
            except ScoringInterrupted:
                raise
            except Exception as error:  # many networks need more memory and time than one
                if "combined" not in details:
                    raise
                alone = details | {"combined": details["combined"] | {"failed": last_line(error)}}
                scoring.score(best, None, alone)
            replace_best(folder)
        else:
            copy_as_saved(folder, record, best, details)
    return _write_front(scoring, folder, record, study) if study.second is not None else []


def _write_front(scoring: _Scoring, folder: Folder, record: RunRecord, study: Study) -> list[str]:
    """Write the other networks of the front of two metrics; a sentence for each that couldn't be scored."""
    scores, told = implementation_of(study.declared_trial).scores, list[str]()
    for one, details in front_due(folder, record, study):
        target = f"{FRONT}/{one.trial}"
        folder.delete(NEW)
        try:
            if scores:
                scoring.score(one, None, details)
                replace_best(folder, target)
            else:
                copy_as_saved(folder, record, one, details, target)
        except ScoringInterrupted:
            raise
        except Exception as error:
            if no_space(error):
                raise
            folder.delete(NEW)
            copy_as_saved(folder, record, one, details | {UNSCORED: last_line(error)}, target)
            told.append(f"the network of trial {one.trial}, which is on the front, wasn't scored: {last_line(error)}")
    return told


class _Scoring:
    """Scores networks on a worker, with a trial's resources: the driver needs neither torch nor a GPU."""

    def __init__(
        self,
        study: Study,
        trial: Trial,
        folder: Folder,
        resources: Resources,
        workers: int,
        leave: Callable[[], bool],
    ) -> None:
        self._study, self._trial, self._folder, self._resources = study, trial, folder, resources
        self._threads, self._leave = max(1, workers * int(resources.cpu_count)), leave
        self._worker: Any = None

    def score(
        self, best: TrialRecord, others: Sequence[tuple[TrialRecord, int]] | None, details: dict[str, Any]
    ) -> None:
        """Score one network, alone or with `others` whose answers may be averaged with its own; None if they aren't."""
        if self._worker is None:
            needs = {"num_cpus": self._resources.cpus or 1, "num_gpus": self._resources.gpus or 0}
            self._worker = ray.remote(_Scorer).options(**needs, max_restarts=RETRIES, max_task_retries=RETRIES).remote()
        device, restored = "cuda" if self._resources.gpus else "cpu", self._study.search_space.restored
        members = None
        if others is not None:
            members = [(one.trial, epoch, sendable(restored(one.config))) for one, epoch in others]
        given = pickle_trial(self._trial), list(sys.path), sendable(restored(best.config)), members
        where = self._folder.uri, self._study.seed, device, self._threads, details
        limit = max(SHORTEST_LIMIT, EPOCHS_ALLOWED * best.running_seconds / max(1, len(best.epochs)))
        student = details.get("combined", {}).get("epochs", 0)
        limit = (limit + EPOCHS_ALLOWED * student * best.running_seconds / max(1, len(best.epochs))) * (
            1 + len(others or ())
        )
        try:
            _await(self._worker.score.remote(*given, *where), limit, self._leave)
        except Exception:
            worker, self._worker = self._worker, None  # the next one gets another
            meanwhile(lambda: ray.kill(worker))  # may wait for a Ray that is gone
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
