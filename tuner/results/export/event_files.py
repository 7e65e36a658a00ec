"""TensorBoard's event files of a run."""

from __future__ import annotations

from pathlib import Path

from tuner.history.events import finite
from tuner.history.records import TrialRecord, flat_config
from tuner.results.run import Run


def write_event_files(run: Run, path: Path) -> list[Path]:
    """A folder per trial with its metrics by epoch and, for the HParams tab, its configuration and best value."""
    return [_write_trial(run, trial, path / trial.trial) for trial in run.record.trials.values()]


def _write_trial(run: Run, trial: TrialRecord, folder: Path) -> Path:
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

    found = run.record.best_of(trial.trial)
    with SummaryWriter(str(folder)) as writer:
        if found is not None:
            config, best = flat_config(trial.config), f"best/{run.metric}"
            # not by the writer's add_hparams, which puts them into a run of their own
            for summary in hparams({name: _plain(value) for name, value in config.items()}, {best: found[1]}):
                writer.file_writer.add_summary(summary)
            writer.add_scalar(best, found[1], found[0])
        for epoch in trial.epochs.values():
            for name, value in epoch.metrics.items():
                if finite(value):
                    writer.add_scalar(name, float(value), epoch.epoch, walltime=epoch.time)
    return folder


def _plain(value: object) -> bool | int | float | str:
    """What the HParams tab takes; anything else as text."""
    if isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) and finite(value) else str(value)
