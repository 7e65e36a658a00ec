"""The cells of a CSV or Parquet file as texts, read without pandas."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from tuner.errors import DataError, did_you_mean, one_line
from tuner.trial.data_source import listed
from tuner.trial.tasks.several_labels import BETWEEN, YES_OR_NO

SEPARATORS = ",;\t|"
FIRST = 1_000  # rows that show what a column is
Cells = tuple[str | None, ...]  # the wanted ones; None for a column that isn't there


@dataclass(frozen=True)
class Header:
    """The columns that are wanted of a table.

    Attributes:
        file: the table
        place: the table, for messages
        wanted: what columns say, and their names
        optional: what need not be said
    """

    file: Path
    place: str
    wanted: Sequence[tuple[str, str]]
    optional: Collection[str]

    def chosen(self, columns: Sequence[str]) -> list[int | None]:
        """Where the wanted columns are, None for an optional one that isn't there.

        Raises:
            DataError: a column is missing, or there twice.
        """
        names = [column.strip() for column in columns]
        for key, column in self.wanted:
            if column not in names and key not in self.optional:
                raise DataError(
                    f"a table needs the column {column!r}, got {listed(map(repr, names)) or 'no columns'} in the first "
                    f"row of {self.place}; {self._instead(key, column, names)}"
                )
            if names.count(column) > 1:
                raise DataError(
                    f"a table needs one column {column!r}, got {names.count(column)} in {self.place}; rename the others"
                )
        return [names.index(column) if column in names else None for _, column in self.wanted]

    def _instead(self, key: str, column: str, names: Sequence[str]) -> str:
        """The fix for a missing column: how to name another, or columns of labels."""
        labels = self._of_labels(names) if key == "label" else []
        if labels:
            query = "&".join(f"label={quote(name)}" for name in labels)
            these = labels[0] if len(labels) == 1 else labels
            told = f"name {'those' if len(labels) > 1 else 'the one'} of 0 and 1"
            return f"{told}, as data='table:{self.place}?{query}' or Table({self.place!r}, label={these!r})"
        return (
            f"{did_you_mean(column, filter(None, names))}, or name it, as data='table:{self.place}?{key}=COLUMN' or "
            f"Table({self.place!r}, {key}='COLUMN')"
        )

    def _of_labels(self, names: Sequence[str]) -> list[str]:
        """The columns that say 0 or 1 of each image, as far as the first rows show."""
        known = [column for _, column in self.wanted]
        others = [name for name in names if name and name not in known and names.count(name) == 1]
        whole = replace(self, wanted=[(name, name) for name in (known[0], *others)], optional=())
        rows = [cells for _, cells in islice(cells_of(whole), FIRST)] if others else []
        columns = zip(others, [*zip(*rows, strict=True)][1:], strict=False)
        return [name for name, cells in columns if all(str(cell).strip().casefold() in YES_OR_NO for cell in cells)]

    def separator(self, line: str) -> str:
        """The one between the columns of the first line: by which most wanted columns, then most columns are found."""

        def columns(separator: str) -> tuple[int, int]:
            names = [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
            return len({*names} & {column for _, column in self.wanted}), len(names)

        return max(SEPARATORS, key=columns)


def cells_of(header: Header) -> Iterator[tuple[int, Cells]]:
    """Each row's number, as in a spreadsheet, and its wanted cells; empty rows are skipped.

    Raises:
        DataError: the file can't be read, or lacks columns.
    """
    parquet = header.file.suffix.lower() in (".parquet", ".pq")
    return (_of_parquet if parquet else _of_csv)(header.file, header)


def _of_csv(file: Path, header: Header) -> Iterator[tuple[int, Cells]]:
    number = 1
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            first = lines.readline()
            if "\0" in first:  # UTF-16 without a mark
                raise DataError(_other_bytes(number, header))
            rows = csv.reader(chain([first], lines), delimiter=header.separator(first), strict=True)
            columns = next(rows, [])
            cells, width = itemgetter(*(-1 if at is None else at for at in header.chosen(columns))), len(columns)
            for number, row in enumerate(rows, start=2):
                if not any(row):
                    continue
                if len(row) != width:
                    raise DataError(
                        f"every row needs as many cells as the first, got {len(row)} in row {number} and {width} in "
                        f"the first of {header.place}; correct it, with quotes around texts that hold a separator"
                    )
                row.append(None)  # type: ignore[arg-type]  # for the columns that aren't there
                yield number, cells(row)
    except UnicodeDecodeError as error:
        raise DataError(_other_bytes(number, header)) from error
    except csv.Error as error:
        raise DataError(
            f"a table needs rows of cells, with pairs of quotes, got others after row {number} of {header.place} "
            f"({error}); correct them"
        ) from error
    except OSError as error:
        raise DataError(f"a table must be readable, got {file}: {error.strerror}; change that") from error


def _other_bytes(row: int, header: Header) -> str:
    return f"a table needs to be UTF-8 text, got other bytes after row {row} of {header.place}; save it as 'CSV UTF-8'"


def _of_parquet(file: Path, header: Header) -> Iterator[tuple[int, Cells]]:
    first = 1
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"a Parquet file needs pyarrow, which isn't installed, got {header.place}; pip install pyarrow, or save "
            "the table as CSV"
        ) from error
    try:
        with parquet.ParquetFile(file) as opened:
            columns = opened.schema_arrow.names
            named = [None if at is None else columns[at] for at in header.chosen(columns)]
            for batch in opened.iter_batches(columns=[*{column for column in named if column is not None}]):
                yield from enumerate(_of_batch(batch, named, header, pa), start=first)
                first += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"a table that ends in {file.suffix} needs to be a Parquet file, got {header.place} "
            f"({one_line(str(error))}); write it again"
        ) from error


def _of_batch(batch: Any, columns: list[str | None], header: Header, pa: Any) -> Iterator[Cells]:
    """The wanted cells of some rows of a Parquet file."""
    texts: list[list[str | None]] = []
    for column in columns:
        if column is None:
            texts.append([None] * len(batch))
            continue
        values = batch.column(column)
        try:
            if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
                texts.append([BETWEEN.join(map(str, cell or ())) for cell in values.to_pylist()])
            elif pa.types.is_floating(values.type):  # as text 1.0 would become a whole number
                texts.append(["" if cell is None else repr(float(cell)) for cell in values.to_pylist()])
            else:
                texts.append([cell or "" for cell in values.cast(pa.string()).to_pylist()])
        except pa.ArrowException as error:
            raise DataError(
                f"a table's columns need texts or numbers, got {values.type} for {column!r} in {header.place}; "
                "write it as text"
            ) from error
    yield from cast(Iterator[Cells], zip(*texts, strict=True))
