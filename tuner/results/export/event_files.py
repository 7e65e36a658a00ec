"""TensorBoard's event files of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.history.events import finite
from tuner.history.records import TrialRecord, flat_config
from tuner.results.export.new_place import new
from tuner.results.run import RecordedRun
from tuner.results.wording import outcome


def write_event_files(run: RecordedRun, path: Path) -> list[Path]:
    """A folder per trial with its metrics by epoch and, for the HParams tab, its configuration and best value.

    A trial without any value, for instance because it failed before an epoch, is in the HParams tab without a value;
    its text says how it ended.
    """
    new(path)
    return [_write_trial(run, trial, path / trial.trial) for trial in run.record.trials.values()]


def _write_trial(run: RecordedRun, trial: TrialRecord, folder: Path) -> Path:
    from tensorboardX import SummaryWriter

    found, best = run.record.best_of(trial.trial), f"best/{run.metric}"
    with SummaryWriter(str(folder)) as writer:
        # not by the writer's add_hparams, which puts them into a run of their own
        for summary in _hparams(trial, best):
            writer.file_writer.add_summary(summary)
        writer.add_text("outcome", "\n".join([outcome(trial), *([trial.message] if trial.message else [])]))
        if found is not None:
            writer.add_scalar(best, found[1], found[0])
        for epoch in trial.epochs.values():
            for name, value in epoch.metrics.items():
                if finite(value):
                    writer.add_scalar(name, float(value), epoch.epoch, walltime=epoch.time)
    return folder


def _hparams(trial: TrialRecord, best: str) -> tuple[Any, Any, Any]:
    """What the HParams tab reads: the experiment, the trial's configuration, and whether it failed."""
    from tensorboardX.proto.api_pb2 import Status
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
    from tensorboardX.summary import hparams

    config = {name: _plain(value) for name, value in flat_config(trial.config).items()}
    experiment, start, end = hparams(config, {best: None})
    if trial.status == "failed":
        data = end.value[0].metadata.plugin_data
        content = HParamsPluginData.FromString(data.content)
        content.session_end_info.status = Status.Value("STATUS_FAILURE")
        data.content = content.SerializeToString()
    return experiment, start, end


def _plain(value: object) -> bool | int | float | str:
    """A value that the HParams tab accepts; anything else as text."""
    if isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) and finite(value) else str(value)
