"""The tables of a run as CSV and as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.results.export.new_place import new
from tuner.results.front import reported_second
from tuner.results.run import RecordedRun

if TYPE_CHECKING:
    import pandas as pd


def write_csv(run: RecordedRun, folder: Path) -> list[Path]:
    """`trials.csv` and `history.csv`.

    Text that a spreadsheet would take for a formula has an apostrophe before it, see
    `tuner.text.spreadsheet_cell`.
    """
    from tuner.results.tables import csv_text

    return _write(run, folder, "csv", lambda table, file: file.write_text(csv_text(table), encoding="utf-8"))


def write_parquet(run: RecordedRun, folder: Path) -> list[Path]:
    """`trials.parquet` and `history.parquet`."""
    return _write(run, folder, "parquet", lambda table, file: _write_parquet(_without_mixtures(table), file))


def _write(run: RecordedRun, folder: Path, suffix: str, write: Callable[[pd.DataFrame, Path], object]) -> list[Path]:
    from tuner.results.tables import history_table, trials_table

    folder.mkdir(parents=True, exist_ok=True)
    files = [new(folder / f"{name}.{suffix}") for name in ("trials", "history")]
    for table, file in zip(
        (trials_table(run.record, run.costs, reported_second(run)), history_table(run.record)), files, strict=True
    ):
        write(table, file)
    return files


def _write_parquet(table: pd.DataFrame, file: Path) -> None:
    """What Parquet has no type for, such as lists of numbers and names, is written as text."""
    try:
        table.to_parquet(file, index=False)
    except (ValueError, TypeError, NotImplementedError, OverflowError):  # pyarrow's errors
        odd = [name for name in table.columns if table[name].dtype == object]
        table.assign(**{name: table[name].map(str, na_action="ignore") for name in odd}).to_parquet(file, index=False)


def _without_mixtures(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns of mixed types as text, because Parquet's columns have one type."""
    types = {name: {*map(type, table[name].dropna())} for name in table.columns if table[name].dtype == object}
    mixed = [name for name, kinds in types.items() if len(kinds) > 1]
    return table.assign(**{name: table[name].map(str, na_action="ignore") for name in mixed})
