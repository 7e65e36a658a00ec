"""Everything that is said about one trial, as text: for a report's panel, a service's page and the terminal."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.history.event_lines import finite
from tuner.history.records import RunRecord, TrialRecord, flat_config, full_length
from tuner.results.run import RecordedRun
from tuner.results.time_left import features_told
from tuner.results.trial_rows import Cells
from tuner.results.wording import averaged, outcome, short, with_error
from tuner.text import printable

Pairs = list[tuple[str, str]]  # names and their texts


@dataclass(frozen=True)
class TrialTexts:
    """A sentence, and facts about the trial.

    `message` and `traceback` are of one that failed, `metrics` those after the epoch that `metrics_of` names.
    """

    said: str
    notes: list[str]
    message: str | None
    traceback: str | None
    settings: Pairs
    metrics_of: str
    metrics: Pairs
    of_run: Pairs  # seed, time and place


def trial_texts(
    run: RecordedRun, trial: TrialRecord, ranks: Mapping[str, int], reasons: Mapping[str, str]
) -> TrialTexts:
    """What is said about a trial; `ranks` are those of `ranks_of`, `reasons` those of `why_stopped`."""
    worth = run.record.worth_of(trial.trial)
    epoch = trial.epochs.get(worth.epoch if worth else trial.epoch)
    metrics = {} if epoch is None else {name: value for name, value in epoch.metrics.items() if finite(value)}
    return TrialTexts(
        said=_said(run, trial, ranks, reasons),
        notes=[f"{note.text} ({note.by})" for note in run.record.steered.notes_of(trial.trial)],
        message=trial.message,
        traceback=trial.traceback,
        settings=[(name, short(value)) for name, value in flat_config(trial.config).items()],
        metrics_of=f"Metrics after epoch {worth.epoch}, whose network stands for it" if worth else "Last metrics",
        metrics=[(name, short(value)) for name, value in metrics.items()],
        of_run=_of_run(run, trial),
    )


def ranks_of(record: RunRecord) -> dict[str, int]:
    """The place of each trial that has one, from 1."""
    return {one.trial.trial: rank for rank, one in enumerate(record.ranked(), start=1)}


def ended_how(trial: TrialRecord) -> str:
    """How the trial ended, and what stopped it."""
    cause = "an order" if trial.ended_by == "stop" else (trial.ended_by or "").replace("_", " ")
    return outcome(trial) + (f" by {cause}" if trial.status == "stopped" and cause else "")


def why_stopped(record: RunRecord) -> dict[str, str]:
    """For each trial that early stopping ended: its place, by value, among the trials that reached the same epoch."""
    trials = [one for one in record.trials.values() if one.repeats is None and one.refits is None]
    early = [one for one in trials if one.status == "stopped" and one.ended_by in (None, "early_stopping")]
    found, sign = {}, 1 if record.mode == "min" else -1
    for last in {one.epoch for one in early}:
        at = {one.trial: one.epochs[last].metrics.get(record.metric) for one in trials if last in one.epochs}
        worse = {name: value * sign for name, value in at.items() if value is not None and finite(value)}
        ranked = sorted(worse.values())
        for name in (one.trial for one in early if one.epoch == last and one.trial in worse):
            place = bisect_left(ranked, worse[name]) + 1
            found[name] = f"after epoch {last} it was number {place} of the {len(ranked)} trials that reached it"
    return found


def epochs_told(trial: TrialRecord) -> tuple[list[str], list[list[str]]]:
    """Columns and a row per epoch, without metrics that can't be known here, such as a GPU's memory."""
    known = [name for epoch in trial.epochs.values() for name, value in epoch.metrics.items() if value is not None]
    names = list(dict.fromkeys(known))
    rows = [
        [
            str(one.epoch),
            *("" if one.metrics.get(name) is None else short(one.metrics[name]) for name in names),
            one.decision,
        ]
        for one in trial.epochs.values()
    ]
    return ["epoch", *names, "decision"], rows


# Inside


def _said(run: RecordedRun, trial: TrialRecord, ranks: Mapping[str, int], reasons: Mapping[str, str]) -> str:
    """Such as: Completed, 27 of 27 epochs; val_accuracy 0.93 ± 0.004 over epochs 20 to 27, rank 1 of 48."""
    epochs = f"{len(trial.epochs)} of {full_length(trial.config, run.longest_trial)} epochs"
    worth = run.record.worth_of(trial.trial)
    reached = averaged(worth) or f" after epoch {worth.epoch}" if worth else ""
    value = f"; {run.metric} {with_error(worth)}{reached}" if worth else ""
    why = f"; {reasons[trial.trial]}" if trial.trial in reasons else ""
    rank = f", rank {ranks[trial.trial]} of {len(ranks)}" if trial.trial in ranks and not why else ""
    doing = features_told(run.record, time.time()).get(trial.trial)
    return f"{ended_how(trial)}, {epochs}{value}{rank}{why}" + (f"; {doing}" if doing else "")


def _of_run(run: RecordedRun, trial: TrialRecord) -> Pairs:
    others = [other.trial for other in run.record.same_configuration(trial) if other is not trial]
    found = [
        ("seed", str(trial.seed)),
        ("time", str(Cells(run.record, run.longest_trial).time(trial))),
        ("where", "; ".join(stay.described for stay in trial.stays)),
        ("worker", printable(trial.worker or "")),
        ("under other seeds", ", ".join(others)),
    ]
    return [(name, text) for name, text in found if text]
