"""All of each trial, as the page's panel and its explorer show it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tuner.foreign_text import printable
from tuner.history.events import finite
from tuner.history.logs import end_of_log
from tuner.history.records import TrialRecord, flat_config, full_length
from tuner.quoting import command
from tuner.results.text import averaged, outcome, short, with_error

if TYPE_CHECKING:
    from tuner.results.run import Run

MOST_OUTPUTS = 100  # that are read, of failed trials and the best ones
DIGITS = 6  # of a metric, which says more than a curve shows


def trial_data(run: Run, trials: list[TrialRecord]) -> str:
    """JSON of these trials: `trials`, each with its curves as lists; `metric`; `ranked`, how many have a rank."""
    ranks = {trial.trial: rank for rank, (trial, _) in enumerate(run.record.ranked(), start=1)}
    read = _with_output(trials)
    told = [
        {
            **_described(run, trial),
            "rank": ranks.get(trial.trial),
            "output": _output(run, trial) if trial.trial in read else "",
        }
        for trial in trials
    ]
    return json.dumps({"metric": run.metric, "ranked": len(ranks), "trials": told}, separators=(",", ":"))


def metric_names(run: Run) -> list[str]:
    """The metrics that any trial reported as a number, the study's first."""
    found = (
        name
        for trial in run.record.trials.values()
        for epoch in trial.epochs.values()
        for name, value in epoch.metrics.items()
        if finite(value)
    )
    names = dict.fromkeys(found)
    return sorted(names, key=lambda name: name != run.metric)


# Inside


def _described(run: Run, trial: TrialRecord) -> dict[str, Any]:
    worth, flat = run.record.worth_of(trial.trial), flat_config(trial.config)
    begun = run.events[0]["time"] if run.events else trial.started
    epochs = [trial.epochs[epoch] for epoch in sorted(trial.epochs)]
    return {
        "id": trial.trial,
        "number": trial.number,
        "status": trial.status,
        "outcome": outcome(trial),
        "full": full_length(trial.config, run.longest_trial),
        "best": worth and _shortened(worth.value),
        "best_epoch": worth and worth.epoch,
        "worth": worth and with_error(worth) + (averaged(worth) or f" after epoch {worth.epoch}"),
        "message": trial.message,
        "traceback": trial.traceback,
        "seed": trial.seed,
        "seconds": round(trial.running_seconds, 1),
        "where": _where(trial),
        "notes": [{"text": note.text, "by": note.by} for note in run.record.steered.notes_of(trial.trial)],
        "config": {name: short(value) for name, value in flat.items()},
        "values": {name: value if finite(value) else short(value) for name, value in flat.items()},
        "epochs": [epoch.epoch for epoch in epochs],
        "minutes": [round((epoch.time - begun) / 60, 3) for epoch in epochs],
        "metrics": _curves([epoch.metrics for epoch in epochs]),
        "replay": command("replay", run.path, trial.trial),
        "show": command("show", run.path, "--trial", trial.trial, "--log"),
    }


def _curves(rows: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """A list per metric that has a number, with None for missing values and values that are not numbers."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if finite(value))
    return {name: [_shortened(row.get(name)) for row in rows] for name in names}


def _shortened(value: Any) -> float | None:
    if not finite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def _where(trial: TrialRecord) -> str:
    return "; ".join(f"{stay.host}, {', '.join(stay.devices)}" for stay in trial.stays)


def _with_output(trials: list[TrialRecord]) -> set[str]:
    """The trials whose output is read; not all, because each is a file that a run on an object store has to fetch."""
    failed = [trial for trial in trials if trial.status == "failed"]
    others = [trial for trial in trials if trial.status != "failed"]
    return {trial.trial for trial in [*failed, *others][:MOST_OUTPUTS]}


def _output(run: Run, trial: TrialRecord) -> str:
    return printable(end_of_log(run.folder, trial.trial))
