"""Checks what a program reports about its trials, before anything is recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tuner.ask_tell.trial import AskedTrial
from tuner.errors import ReportError, shown
from tuner.history.events import plain_metrics
from tuner.history.records import RunRecord, TrialRecord
from tuner.loop.metric import as_python, flaw_of

CAUSES = ("error", "out_of_memory", "diverged")


def known_trial(record: RunRecord, trial: AskedTrial | str) -> TrialRecord:
    """The trial's record; raises ReportError if the run has no such trial."""
    name = trial.id if isinstance(trial, AskedTrial) else trial
    if not isinstance(name, str):
        raise ReportError(f"a trial is what ask() gave, or its id, got {shown(name)}; pass trial or trial.id")
    if name not in record.trials:
        ids = f"{next(iter(record.trials))} to {next(reversed(record.trials))}" if record.trials else "none yet"
        raise ReportError(f"a trial is named by its id, got {shown(name)}; this run has {ids}")
    return record.trials[name]


def checked_epoch(epoch: object) -> int:
    """The epoch, a whole number from 1 on, which may be numpy's; raises ReportError for anything else."""
    number = as_python(epoch)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ReportError(f"an epoch is a whole number of at least 1, got {shown(epoch)}; count epochs from 1")
    return number


def checked_metrics(value: object, needed: Sequence[str]) -> dict[str, Any]:
    """The metrics by name as plain values, a single number as the study's first metric.

    Raises ReportError if one of the `needed` metrics is missing or isn't a number, and for what JSON can't express. NaN
    and infinities are numbers: a trial that reports one has diverged.
    """
    given = dict(value) if isinstance(value, Mapping) else {needed[0]: value}
    if not all(isinstance(name, str) for name in given):
        raise ReportError(f"metrics have names, got {shown(value)}; report a number, or {{{needed[0]!r}: 0.3}}")
    for metric in needed:
        if metric not in given:
            names = ", ".join(sorted(given)) or "nothing"
            raise ReportError(
                f"a report needs the study's metric {metric!r}, got {names}; report it, or change the study's metric="
            )
        flaw = flaw_of(metric, given[metric])
        if flaw is not None:
            raise ReportError(flaw)
    try:
        return plain_metrics(given)
    except ValueError as error:
        raise ReportError(str(error)) from error


def as_stored(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics as events store them: without NaN and infinities, which JSON doesn't have."""
    return {name: _finite_or_none(value) for name, value in metrics.items()}


def checked_next(epoch: int, last: int, trial: str) -> None:
    """Raise ReportError unless the epoch is the one after the last."""
    if epoch != last + 1:
        raise ReportError(
            f"each epoch is reported once and in order, got epoch {epoch} of trial {trial} after epoch {last}; "
            f"report epoch {last + 1} next"
        )


def checked_cause(cause: object) -> str:
    """The cause of a failure; raises ReportError for an unknown one."""
    if not isinstance(cause, str) or cause not in CAUSES:
        raise ReportError(
            f"the cause of a failure is one of {', '.join(map(repr, CAUSES))}, got {shown(cause)}; "
            "use search.lost(trial) for a worker that is gone"
        )
    return cause


def existing_folder(folder: str | PathLike[str]) -> Path:
    """The folder of a checkpoint; raises ReportError if there is none."""
    path = Path(folder)
    if not path.is_dir():
        raise ReportError(f"a checkpoint is a folder, got {shown(str(folder))}; write its files into one")
    return path


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return as_stored(value)
    return [_finite_or_none(each) for each in value] if isinstance(value, list) else value
