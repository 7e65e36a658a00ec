"""What must hold after a search whatever went wrong in it, read from its run folder alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tuner import ASHA, Study
from tuner.history.checkpoints import CheckpointStore
from tuner.history.events import Event, read_events
from tuner.history.records import RunRecord, TrialRecord
from tuner.storage.folder import LocalFolder

OVER = ("completed", "stopped", "failed")
AFTER_THE_END = ("checkpoint_saved", "checkpoint_deleted")


def faults_of_a_run(folder: Path, study: Study, workers: int) -> Iterator[str]:
    """A sentence for each thing that is wrong with a search that has come to its end."""
    events = list(read_events(LocalFolder(folder)))
    record = RunRecord(study.metric, study.mode, events)
    yield from _of_trials(record, study)
    yield from _of_events(events)
    yield from _of_pauses(events)
    yield from _of_budgets(events, record, study, workers)
    yield from _of_checkpoints(folder, record)
    if any(trial.running_seconds < 0 for trial in record.trials.values()) or record.active_seconds < 0:
        yield "time was negative"


def unlike(record: RunRecord, undisturbed: RunRecord) -> Iterator[str]:
    """Where a search of one trial at a time differs from the same one undisturbed."""
    for name in sorted(record.trials.keys() | undisturbed.trials.keys()):
        one, other = record.trials.get(name), undisturbed.trials.get(name)
        if one is None or other is None:
            yield f"{name} is in one of the searches alone"
        elif _told(one) != _told(other):
            yield f"{name} is {_told(one)}, undisturbed {_told(other)}"


def _told(trial: TrialRecord) -> tuple[object, ...]:
    epochs = [(epoch, trial.epochs[epoch].metrics) for epoch in sorted(trial.epochs)]
    return trial.config, trial.seed, trial.status, trial.cause, trial.ended_by, epochs


def _of_trials(record: RunRecord, study: Study) -> Iterator[str]:
    numbers = [trial.number for trial in record.trials.values()]
    if numbers != list(range(len(numbers))):
        yield f"trials are numbered {numbers}"
    keys = [study.search_space.key(trial.config) for trial in record.trials.values()]
    if len(set(keys)) < len(keys):
        yield "a configuration was tried twice"
    wanted = min(study.search_space.size, math.inf if study.trials is None else study.trials)
    if record.ended in ("trials", "space") and len(numbers) != wanted:
        yield f"{len(numbers)} trials rather than {wanted}, ended by {record.ended}"
    for trial in record.trials.values():
        if trial.status not in OVER:
            yield f"{trial.trial} is {trial.status} after the end"
        if sorted(trial.epochs) != list(range(1, trial.epoch + 1)):
            yield f"{trial.trial} has epochs {sorted(trial.epochs)}"
        if trial.due is not None:
            yield f"what was decided for {trial.trial} was never done"


def _of_events(events: list[Event]) -> Iterator[str]:
    """Nothing happens to a trial that is over; an epoch comes before its checkpoint, that before the deletion."""
    over: set[str] = set()
    known: set[tuple[str, int]] = set()
    saved: set[tuple[str, int]] = set()
    for event in events:
        trial, kind = event.get("trial", ""), event["event"]
        place = (trial, event.get("epoch", 0))
        if trial in over and kind not in AFTER_THE_END:
            yield f"{kind} of {trial}, which was over"
        over -= set(retried_by_users(event))
        if kind == "trial_ended":
            over.add(trial)
        elif kind == "epoch_reported":
            known.add(place)
        elif kind == "checkpoint_saved":
            if place not in known:
                yield f"checkpoint of {place}, of which nothing is known"
            saved.add(place)
        elif kind == "checkpoint_deleted" and place not in saved:
            yield f"deletion of {place}, which was not there"


def retried_by_users(event: Event) -> list[str]:
    """The trials that a user has run again by this event."""
    asked = event["event"] == "retry_requested" or (event["event"] == "order_obeyed" and event["verb"] == "retry")
    return list(event["trials"]) if asked else []


def _of_pauses(events: list[Event]) -> Iterator[str]:
    """A trial does what was decided, and goes on from a pause only when it is resumed."""
    due: dict[str, Event] = {}
    paused_at: dict[str, int] = {}
    for event in events:
        trial, kind = event.get("trial", ""), event["event"]
        if kind == "epoch_reported":
            if trial in due:
                yield f"{trial} reported epoch {event['epoch']} after it was to {due[trial]['decision']}"
            if trial in paused_at:
                yield f"{trial} reported epoch {event['epoch']} while it was paused at {paused_at[trial]}"
            if event["decision"] != "continue":
                due[trial] = event
        elif kind == "trial_paused":
            paused_at[trial] = event["epoch"]
            if due.pop(trial, {"decision": None})["decision"] != "pause":
                yield f"{trial} paused, which nobody had decided"
        elif kind in ("trial_resumed", "trial_ended"):
            paused_at.pop(trial, None)
            due.pop(trial, None)
        elif kind == "trial_started" and trial in paused_at:
            yield f"{trial} was started while it was paused at {paused_at[trial]}"


def wrongly_promoted(events: list[Event], study: Study) -> Iterator[str]:
    """With ASHA's promotion a trial goes on past a rung only among the best that had come there by then."""
    scheduler = study.scheduler
    if not isinstance(scheduler, ASHA) or scheduler.rule != "promote":
        return
    sign = 1 if study.mode == "max" else -1
    values: dict[int, dict[str, float]] = {rung: {} for rung in scheduler.rungs(study.budget.max_epochs)}
    for event in events:
        if (
            event["event"] == "epoch_reported"
            and event["epoch"] in values
            and event["metrics"][study.metric] is not None
        ):
            values[event["epoch"]].setdefault(event["trial"], sign * event["metrics"][study.metric])
        elif event["event"] == "trial_resumed":
            here = values[event["epoch"]]
            better = sum(value > here[event["trial"]] for value in here.values())
            if better >= max(1, int(len(here) / scheduler.reduction_factor)):
                yield f"{event['trial']} went on from {event['epoch']} though {better} of {len(here)} were better"


def _of_budgets(events: list[Event], record: RunRecord, study: Study, workers: int) -> Iterator[str]:
    most, target = study.budget.total_epochs, study.budget.target
    if most is not None and record.epochs() > most + workers - 1:
        yield f"{record.epochs()} epochs of {most}"
    if study.trials is not None and len(record.trials) > study.trials:
        yield f"{len(record.trials)} trials of {study.trials}"
    if target is None:
        return
    reached: set[str] = set()
    for event in events:
        if event["event"] == "epoch_reported" and event["metrics"].get(study.metric) is not None:
            value = event["metrics"][study.metric]
            if not study.better(target, than=value):
                reached.add(event["trial"])
        elif event["event"] == "trial_ended" and event["status"] == "failed":
            reached.discard(event["trial"])
        elif event["event"] in ("trial_started", "trial_resumed") and reached:
            yield f"{event['trial']} was begun though {reached} had reached the target"


def _of_checkpoints(folder: Path, record: RunRecord) -> Iterator[str]:
    """Nothing is left but the winner's, the best completed trial's and the last of each failed trial.

    And the record says what the disk has.
    """
    store = CheckpointStore(LocalFolder(folder))
    here: dict[str, set[int]] = defaultdict(set)
    for trial in store.trials():
        here[trial] = set(store.epochs(trial))
        rest = sorted(
            set(LocalFolder(folder).child(f"checkpoints/{trial}").folders()) - {f"{e:06d}" for e in here[trial]}
        )
        if rest:
            yield f"{rest} are left of {trial}"
    best = record.best_trial()
    kept = {one.trial for one in (best, next((each.trial for each in record.completed(1)), None)) if one is not None}
    for trial, epochs in here.items():
        failed = record.trials[trial].status == "failed" and record.trials[trial].cause != "diverged"
        if epochs and ((not failed and trial not in kept) or len(epochs) > 1):
            yield f"checkpoints {sorted(epochs)} of {trial} are left, the winner is {best and best.trial}"
    for record_of in record.trials.values():
        if record_of.checkpoints != here.get(record_of.trial, set()):
            yield f"{record_of.trial} has checkpoints {sorted(here[record_of.trial])}, by its record {record_of.checkpoints}"
