"""The winner, after the search: its checkpoint in `best/`.

`best/` is written under another name and then renamed, so that the earlier winner stays until the new one is complete,
and a conclusion that was cut off can be repeated. A network in it is only ever replaced by another network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuner.errors import TunerError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.combination import DISTILLED, STUDENT_LENGTH, wanted
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.refits import TRAINED_ON, shipped_refit
from tuner.history.scored import BEST, FRONT, UNSCORED
from tuner.machine.temporary import OwnedFolder
from tuner.results.front import on_front
from tuner.storage.folder import Folder
from tuner.study.declaration import Study

NEW = "best.new"


class NoNetworkError(TunerError):
    """The winner has no checkpoint, so `best/` keeps the network of an earlier winner."""


class ScoringInterrupted(TunerError):  # noqa: N818 -- what happened, not what is wrong
    """The winner's scoring was interrupted by the user; the run can be concluded later."""


def write_as_saved(folder: Folder, record: RunRecord, study: Study) -> None:
    """Write `best/` and `front/`: a configuration, its metrics, and its unchanged checkpoint, if there is one."""
    due = winner_due(folder, record)
    if due is not None:
        folder.delete(NEW)
        copy_as_saved(folder, record, *due)
    for trial, details in front_due(folder, record, study):
        folder.delete(NEW)
        copy_as_saved(folder, record, trial, details, f"{FRONT}/{trial.trial}")


def winner_due(folder: Folder, record: RunRecord) -> tuple[TrialRecord, dict[str, Any]] | None:
    """The winner for `best/`, with its trial, epoch and metrics; None if nothing is left to write.

    If it was trained again on training and validation images together, "refit" names the trial that replaces it; if the
    best trials are to be averaged, "combined" says how that was asked for. Raises NoNetworkError if its checkpoint is
    gone, and `best/` has the network of another trial.
    """
    best = record.best_trial()
    if best is None:
        folder.delete(BEST)
        return None
    epoch, _ = record.best_of(best.trial) or (best.epoch, None)
    details = {"trial": best.trial, "epoch": epoch, "metrics": dict(best.epochs[epoch].metrics)}
    refit = shipped_refit(record)
    if refit is not None:
        details["refit"] = {"trial": refit.trial, "epoch": refit.refit_epochs, "trained_on": TRAINED_ON}
    elif (how := wanted(record)) is not None:
        length = {"epochs": STUDENT_LENGTH * len(best.epochs)} if how == DISTILLED else {}
        details["combined"] = {"asked": how, "metric": record.metric, "in": False, **length}
    if not has_network(record, details):
        if is_written(folder, record):
            return None  # its checkpoint was deleted: best/ has more than could be written now
        if holds_network(folder):
            trial, epoch = network_of(details)
            raise NoNetworkError(
                f"trial {best.trial} won, but the checkpoint of epoch {epoch} of trial {trial} was not kept; "
                "best/ keeps the network of an earlier winner"
            )
    return best, details


def front_due(folder: Folder, record: RunRecord, study: Study) -> list[tuple[TrialRecord, dict[str, Any]]]:
    """The trials on the front of two metrics, with what is known of each, whose network `front/` doesn't have yet.

    The winner isn't among them. Networks in `front/` that are no longer on it are deleted.
    """
    winner, due, wanted = record.best_trial(), [], set[str]()
    for trial in (one for one in on_front(study, record) if one is not winner):
        epoch, _ = record.best_of(trial.trial) or (trial.epoch, None)
        details = {"trial": trial.trial, "epoch": epoch, "metrics": dict(trial.epochs[epoch].metrics)}
        wanted.add(trial.trial)
        if _epoch_in(folder, f"{FRONT}/{trial.trial}") != epoch and has_network(record, details):
            due.append((trial, details))
    for name in set(folder.child(FRONT).folders()) - wanted:
        folder.delete(f"{FRONT}/{name}")
    return due


def _epoch_in(folder: Folder, best: str) -> int | None:
    """The epoch of the network in a folder like `best/`; None if there is none, or it wasn't scored."""
    try:
        written = json.loads(folder.read(f"{best}/metrics.json"))
    except (OSError, ValueError):
        return None
    return written.get("epoch") if isinstance(written, dict) and UNSCORED not in written else None


def network_of(details: Mapping[str, Any]) -> tuple[str, int]:
    """Trial and epoch of the network for `best/`: the winner's, or that of its refit."""
    shipped = details.get("refit", details)
    return shipped["trial"], shipped["epoch"]


def has_network(record: RunRecord, details: Mapping[str, Any]) -> bool:
    """Whether the winner's checkpoint exists."""
    trial, epoch = network_of(details)
    return epoch in record.trials[trial].checkpoints


def copy_as_saved(
    folder: Folder, record: RunRecord, best: TrialRecord, details: dict[str, Any], target: str = BEST
) -> None:
    """Write `best/`, or a folder of `front/`, without scoring anything."""
    if has_network(record, details):
        _copy(folder, *network_of(details))
    folder.write(f"{NEW}/config.json", _json(best.config_in_json))
    folder.write(f"{NEW}/metrics.json", _json(details))
    replace_best(folder, target)


def holds_network(folder: Folder) -> bool:
    """Whether `best/` has a network, and not only what is known of a winner."""
    best = folder.child(BEST)
    return bool(best.folders() or set(best.files()) - {"config.json", "metrics.json"})


def is_written(folder: Folder, record: RunRecord) -> bool:
    """Whether `best/` holds the record's winner, or correctly nothing."""
    best = record.best_trial()
    try:
        written = json.loads(folder.read(f"{BEST}/metrics.json"))
    except (OSError, ValueError):
        return best is None
    if best is None or not isinstance(written, dict):
        return False
    epoch, _ = record.best_of(best.trial) or (best.epoch, None)
    refit, stored = shipped_refit(record), written.get("refit")
    stored_refit = stored.get("trial") if isinstance(stored, dict) else None
    combined = None if refit else wanted(record)
    if (refit and refit.trial, combined) != (stored_refit, (written.get("combined") or {}).get("asked")):
        return False
    return (written.get("trial"), written.get("epoch")) == (best.trial, epoch)


def replace_best(folder: Folder, target: str = BEST) -> None:
    """Replace `best/`, or a folder of `front/`, by `best.new`."""
    folder.delete(target)
    folder.rename(NEW, target)


def _copy(folder: Folder, trial: str, epoch: int) -> None:
    with OwnedFolder("best") as temporary:
        local = CheckpointStore(folder).fetch(trial, epoch, temporary / "checkpoint")
        for file in sorted(path for path in local.rglob("*") if path.is_file()):
            folder.write(f"{NEW}/checkpoint/{file.relative_to(local).as_posix()}", file.read_bytes())


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, default=str) + "\n").encode()
