"""A run's record as lines of JSON, which is read much faster than its events.

The first line holds the run's own data, each further one a trial. If all epochs of a trial have the same metrics, their
names are written once. A record is only valid for the log from which it was computed; it is identified by the log's
digest, see `EventFollower.digest`. FORMAT also changes when the same events give another record.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

from tuner.history.active_time import ActiveTime
from tuner.history.attempts import Attempt, Attempts
from tuner.history.placement import Placement
from tuner.history.readings import Readings
from tuner.history.records import EpochRecord, RunRecord, TrialRecord
from tuner.history.requests import Confirming
from tuner.history.steered import Note, Steered
from tuner.space.values import recorded, value_of

FORMAT = 4
_OF_RUN = ("notices", "notice_codes", "ended", "last_time", "configurations", "refits")
_INSIDE = ("_epochs", "_later_epochs", "_epochs_again", "_left_seconds", "_study_version")
_MADE_ANEW = ("config", "attempts", "epochs", "checkpoints", "saved", "stays", "due")
_PLAIN = tuple(field.name for field in fields(TrialRecord) if field.name not in _MADE_ANEW)


class NoRecordError(ValueError):
    """The lines aren't a record that this version wrote."""


def lines_of(record: RunRecord) -> Iterator[bytes]:
    """The record, line by line, so that other threads can run between lines."""
    yield _line(_told_once(record))
    for trial in record.trials.values():
        yield _line(_told(trial))


def record_of(lines: Iterable[bytes]) -> RunRecord:
    """The record that `lines_of` wrote; raises NoRecordError for anything else."""
    with _without_collecting():
        try:
            found = iter(lines)
            return _restored(json.loads(next(found)), found)
        except (StopIteration, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise NoRecordError(f"it is no record of format {FORMAT}: {error!r}"[:200]) from error


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


# What a run has once


def _told_once(record: RunRecord) -> dict[str, Any]:
    inner = vars(record)
    return {
        "format": FORMAT,
        "metric": record.metric,
        "mode": record.mode,
        "trials": len(record.trials),
        "run": [inner[name] for name in (*_OF_RUN, *_INSIDE)],
        "active": [record.active.since, record.active.ended],
        "ended_trials": [trial.trial for trial in record.ended_trials],
        "on_workers": list(record.on_workers),
        "standings": inner["_standings"].state(),
        "steered": {name: _as_list(value) for name, value in vars(record.steered).items()}
        | {"notes": [asdict(note) for note in record.steered.notes], "waiting": recorded(record.steered.waiting)},
        "readings": asdict(record.readings),
        "confirming": {name: _as_list(value) for name, value in vars(record.confirming).items()},
    }


def _as_list(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else value


def _restored(told: dict[str, Any], lines: Iterator[bytes]) -> RunRecord:
    if told["format"] != FORMAT:
        raise ValueError(f"format {told['format']}")
    record = RunRecord(told["metric"], told["mode"])
    trials = [_trial(json.loads(line)) for line in lines]
    record.trials.update((trial.trial, trial) for trial in trials)
    if not len(trials) == len(record.trials) == told["trials"]:
        raise ValueError(f"{len(trials)} trials of {told['trials']}")
    inner = vars(record)
    inner.update(zip((*_OF_RUN, *_INSIDE), told["run"], strict=True))
    record.active = _active(*told["active"])
    record.ended_trials = [record.trials[name] for name in told["ended_trials"]]
    record.on_workers = {name: record.trials[name] for name in told["on_workers"]}
    inner["_standings"].restore(told["standings"])
    record.steered = _steered(told["steered"])
    record.confirming = _confirming(told["confirming"])
    record.readings = Readings(**told["readings"])
    return record


def _active(since: float | None, ended: list[list[float]]) -> ActiveTime:
    return ActiveTime([(start, end) for start, end in ended], since)


def _steered(told: dict[str, Any]) -> Steered:
    notes = [Note(**note) for note in told["notes"]]
    sets = {name: set(told[name]) for name in ("to_end", "answered")}
    return Steered(**told | {"notes": notes, "waiting": value_of(told["waiting"]), **sets})


def _confirming(told: dict[str, Any]) -> Confirming:
    found = Confirming()
    vars(found).update({name: told[name] for name in vars(found)})
    found.refused = set(told["refused"])
    return found


# A trial


def _told(trial: TrialRecord) -> list[Any]:
    epochs = list(trial.epochs.values())
    names = list(epochs[0].metrics) if epochs else []
    if any(list(epoch.metrics) != names for epoch in epochs):
        names = None  # type: ignore[assignment]
    return [
        [getattr(trial, name) for name in _PLAIN],
        recorded(trial.config),
        asdict(trial.attempts) if trial.attempts != Attempts() else None,
        [asdict(stay) for stay in trial.stays],
        sorted(trial.checkpoints),
        sorted(trial.saved),
        None if trial.due is None else trial.due.epoch,
        names,
        [epoch.metrics if names is None else list(epoch.metrics.values()) for epoch in epochs],
        [[epoch.epoch, epoch.decision, epoch.time, epoch.ending] for epoch in epochs],
    ]


def _trial(told: list[Any]) -> TrialRecord:
    plain, config, attempts, stays, checkpoints, saved, due, names, values, epochs = told
    trial = TrialRecord(**dict(zip(_PLAIN, plain, strict=True)), config=value_of(config))
    if attempts is not None:
        trial.attempts = Attempts(**attempts | {"failed": [Attempt(**each) for each in attempts["failed"]]})
    trial.stays = [Placement(**each) for each in stays]
    trial.checkpoints, trial.saved = set(checkpoints), set(saved)
    metrics = values if names is None else [dict(zip(names, row, strict=True)) for row in values]
    trial.epochs = {
        number: EpochRecord(number, found, decision, time, ending)
        for (number, decision, time, ending), found in zip(epochs, metrics, strict=True)
    }
    trial.due = None if due is None else trial.epochs[due]
    return trial


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Without garbage collection: it would take half of the time, and none of the hundreds of thousands of objects is
    garbage.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
