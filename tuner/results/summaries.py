"""One trial as plain data, for `show --trial ID --json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tuner.history.logs import end_of_log
from tuner.history.records import TrialRecord
from tuner.storage.folder import Folder


def summary_of_trial(trial: TrialRecord, folder: Folder) -> dict[str, Any]:
    """The trial with its configuration, outcome, the end of its output, where it ran, and its epochs."""
    return {
        "trial_id": trial.trial,
        "config": trial.config,
        "seed": trial.seed,
        "status": trial.status,
        "cause": trial.cause,
        "message": trial.message,
        "traceback": trial.traceback,
        "output": end_of_log(folder, trial.trial),
        "stays": [asdict(stay) for stay in trial.stays],
        "running_seconds": round(trial.running_seconds, 3),
        "epochs": [{"epoch": epoch.epoch, **epoch.metrics} for epoch in trial.epochs.values()],
    }
