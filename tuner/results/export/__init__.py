"""A run's trials for other tools: tables as CSV or Parquet, an Optuna storage, TensorBoard's event files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from tuner.errors import RunFolderError, shown
from tuner.results.export.event_files import write_event_files
from tuner.results.export.optuna_storage import write_storage
from tuner.results.export.table_files import write_csv, write_parquet
from tuner.results.run import RecordedRun

__all__ = ["EXPORTS", "Kind", "export"]

Kind = Literal["csv", "parquet", "optuna", "tensorboard"]
EXPORTS: Mapping[Kind, Callable[[RecordedRun, Path], list[Path]]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "optuna": write_storage,
    "tensorboard": write_event_files,
}  # each writes new files at or below a path, and returns their paths; these are the choices of `tuner export --to`


def export(run: RecordedRun, kind: Kind, path: str | Path) -> list[Path]:
    """Write the run's trials in another tool's form; returns the files written.

    "csv" and "parquet" write `trials` and `history` into the folder `path` (in CSV, text that a spreadsheet would take
    for a formula has an apostrophe before it, see `tuner.text.spreadsheet_cell`); "optuna"
    writes a SQLite file for `optuna.load_study(study_name=run.name, storage="sqlite:///PATH")` and
    `optuna-dashboard sqlite:///PATH`;
    "tensorboard" writes a folder of event files per trial into the folder `path`, for `tensorboard --logdir PATH`.

    Raises:
        RunFolderError: there is no such kind, a file exists already or can't be written, or the optuna package is
            missing.
    """
    if kind not in EXPORTS:
        raise RunFolderError(f"an export is one of {', '.join(EXPORTS)}, got {shown(kind)}; choose one")
    try:
        return EXPORTS[kind](run, Path(path))
    except OSError as error:
        raise RunFolderError(f"export needs a place to write to, got {str(path)!r} ({error.strerror})") from error
