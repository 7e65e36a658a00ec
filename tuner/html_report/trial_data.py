"""All data of each trial, for the page's panel and its explorer."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tuner.history.events import finite
from tuner.history.logs import end_of_log
from tuner.history.records import TrialRecord, flat_config
from tuner.results.run import RecordedRun
from tuner.results.trial_texts import ranks_of, trial_texts, why_stopped
from tuner.results.wording import short
from tuner.text import command, printable

MOST_OUTPUTS = 100  # outputs that are read: of failed trials and the best ones
DIGITS = 6  # of a metric: more than a curve shows


def trial_data(run: RecordedRun, trials: list[TrialRecord]) -> str:
    """JSON of these trials: `metric`, and `trials`, each with its `told` texts and its curves as lists."""
    ranks, reasons, read = ranks_of(run.record), why_stopped(run.record), _with_output(trials)
    found = [
        {
            **_described(run, trial),
            "told": asdict(trial_texts(run, trial, ranks, reasons)),
            "output": _output(run, trial) if trial.trial in read else "",
        }
        for trial in trials
    ]
    return json.dumps({"metric": run.metric, "trials": found}, separators=(",", ":"))


# Inside


def _described(run: RecordedRun, trial: TrialRecord) -> dict[str, Any]:
    worth = run.record.worth_of(trial.trial)
    epochs = [trial.epochs[epoch] for epoch in sorted(trial.epochs)]
    return {
        "id": trial.trial,
        "number": trial.number,
        "status": trial.status,
        "best_epoch": worth and worth.epoch,
        "seconds": round(trial.running_seconds, 1),
        "values": {name: value if finite(value) else short(value) for name, value in flat_config(trial.config).items()},
        "epochs": [epoch.epoch for epoch in epochs],
        "minutes": [round(run.record.active.at(epoch.time) / 60, 3) for epoch in epochs],
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


def _with_output(trials: list[TrialRecord]) -> set[str]:
    """The trials whose output is read; not all, because each is a file that a run on an object store has to fetch."""
    failed = [trial for trial in trials if trial.status == "failed"]
    others = [trial for trial in trials if trial.status != "failed"]
    return {trial.trial for trial in [*failed, *others][:MOST_OUTPUTS]}


def _output(run: RecordedRun, trial: TrialRecord) -> str:
    return printable(end_of_log(run.folder, trial.trial))
