"""A run's trials for other tools: tables as CSV or Parquet, an Optuna storage, TensorBoard's event files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tuner.errors import RunFolderError
from tuner.results.export.event_files import write_event_files
from tuner.results.export.optuna_storage import write_storage
from tuner.results.run import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Kind", "export"]

Kind = Literal["csv", "parquet", "optuna", "tensorboard"]


def export(run: Run, kind: Kind, path: str | Path) -> list[Path]:
    """Write the run's trials in another tool's form; the files written.

    "csv" and "parquet" write `trials` and `history` into the folder `path` (in CSV, text that a spreadsheet would take
    for a formula has an apostrophe before it, see `tuner.foreign_text.spreadsheet_cell`); "optuna"
    writes a SQLite file for `optuna.load_study(study_name=run.name, storage="sqlite:///PATH")` and
    `optuna-dashboard sqlite:///PATH`;
    "tensorboard" writes a folder of event files per trial into the folder `path`, for `tensorboard --logdir PATH`.

    Raises:
        RunFolderError: a file is there already or can't be written, or the optuna package is missing.
    """
    target = Path(path)
    try:
        if kind == "optuna":
            return [write_storage(run, _new(target))]
        if kind == "tensorboard":
            return write_event_files(run, _new(target))
        target.mkdir(parents=True, exist_ok=True)
        files = [_new(target / f"{name}.{kind}") for name in ("trials", "history")]
        for table, file in zip((run.trials, run.history), files, strict=True):
            if kind == "csv":
                from tuner.results.tables import csv_text

                file.write_text(csv_text(table), encoding="utf-8")
            else:
                _write_parquet(_without_mixtures(table), file)
    except OSError as error:
        raise RunFolderError(f"export needs a place to write to, got {str(path)!r} ({error.strerror})") from error
    return files


def _new(path: Path) -> Path:
    if path.exists():
        raise RunFolderError(f"export writes new files, got {str(path)!r}, which exists; remove it or choose another")
    return path


def _write_parquet(table: pd.DataFrame, file: Path) -> None:
    """What Parquet has no type for, such as lists of numbers and names, is written as text."""
    try:
        table.to_parquet(file, index=False)
    except (ValueError, TypeError, NotImplementedError, OverflowError):  # what pyarrow's errors are
        odd = [name for name in table.columns if table[name].dtype == object]
        table.assign(**{name: table[name].map(str, na_action="ignore") for name in odd}).to_parquet(file, index=False)


def _without_mixtures(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns of different types as text, as Parquet's columns have one type."""
    types = {name: {*map(type, table[name].dropna())} for name in table.columns if table[name].dtype == object}
    mixed = [name for name, kinds in types.items() if len(kinds) > 1]
    return table.assign(**{name: table[name].map(str, na_action="ignore") for name in mixed})
