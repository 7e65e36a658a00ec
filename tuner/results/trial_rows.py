"""The table of trials as people read it: its columns, and the content of each cell.

A report, a service's page and notebooks show this table; the terminal and a followed search, which have less room, use
cells from here. `tables.py` has trials as data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Literal

from tuner.history.event_lines import finite
from tuner.history.records import RunRecord, TrialRecord, flat_config, full_length
from tuner.history.worth import Worth
from tuner.results.front import second_of, value_in
from tuner.results.run import RecordedRun
from tuner.results.wording import duration, outcome, settings, short, valued
from tuner.space.mode import Objective
from tuner.text import in_utf8

Kind = Literal["trial", "status", "value", "number", "word", "text"]


@dataclass(frozen=True)
class Column:
    """Its heading, and what kind of cells it has: `value` is the study's metric, `text` may be long."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Cell:
    """What is read, and more quietly beside it; `value` is what to sort by where the text is no number."""

    text: str
    aside: str = ""
    value: float | None = None

    def __str__(self) -> str:
        return f"{self.text} {self.aside}" if self.aside else self.text


@dataclass(frozen=True)
class Row:
    """A trial; a `shorter` one was trained for fewer epochs than others, so its value compares only in part."""

    trial: str
    status: str
    shorter: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class TrialRows:
    """A table of trials."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


class Cells:
    """The cells of a record's trials. `longest` is how many epochs a trial has unless it is stopped, `now` the time."""

    def __init__(self, record: RunRecord, longest: int, now: float | None = None) -> None:
        self._record, self._longest = record, longest
        self._now = now if now is not None else record.last_time or 0.0

    def worth(self, trial: TrialRecord) -> Worth | None:
        """The row's value: the configuration's for the trial that stands for it, else the trial's own."""
        represents = self._record.represents(trial)
        return self._record.standing_of(trial.trial) if represents else self._record.worth_of(trial.trial)

    def is_shorter(self, trial: TrialRecord) -> bool:
        """Whether it was trained for fewer epochs than its configuration and the budget say."""
        return trial.epoch < full_length(trial.config, self._longest)

    def trial(self, trial: TrialRecord) -> Cell:
        """The trial's id."""
        return Cell(trial.trial)

    def status(self, trial: TrialRecord) -> Cell:
        """The trial's status."""
        return Cell(outcome(trial))

    def epochs(self, trial: TrialRecord) -> Cell:
        """How many epochs it was trained, and of how many."""
        of = f"of {full_length(trial.config, self._longest)}" if self.is_shorter(trial) else ""
        return Cell(str(trial.epoch), of, trial.epoch)

    def value(self, trial: TrialRecord) -> Cell:
        """The value by which it is compared."""
        worth = self.worth(trial)
        if worth is None:
            return Cell("")
        return Cell(valued(worth), f"{worth.seeds} seeds", worth.value) if worth.seeds > 1 else Cell(valued(worth))

    def time(self, trial: TrialRecord) -> Cell:
        """How long the trial has run until now."""
        running = 0.0 if trial.running_since is None else max(0.0, self._now - trial.running_since)
        seconds = trial.running_seconds + running
        return Cell(duration(seconds), value=round(seconds, 1))

    def settings(self, trial: TrialRecord) -> Cell:
        """Its whole configuration, for tables with one column for it."""
        return Cell(settings(trial.config))

    def setting(self, name: str, trial: TrialRecord) -> Cell:
        """One hyperparameter; None is written as such, a missing one as an empty cell."""
        flat = flat_config(trial.config)
        return Cell(short(flat[name]) if name in flat else "")

    def metric(self, name: str, trial: TrialRecord) -> Cell:
        """A metric after its last epoch."""
        value = trial.metrics().get(name)
        return Cell("" if value is None else short(value))

    def notes(self, trial: TrialRecord) -> Cell:
        """Users' notes about it."""
        return Cell("; ".join(note.text for note in self._record.steered.notes_of(trial.trial)))


def trial_rows(run: RecordedRun, trials: Iterable[TrialRecord], metrics: Sequence[str] = ()) -> TrialRows:
    """A row per trial; `metrics` have columns in addition to the study's own. All text is UTF-8."""
    cells = Cells(run.record, run.longest_trial)
    columns = _columns(run, cells, metrics)
    rows = [
        Row(trial.trial, trial.status, cells.is_shorter(trial), tuple(_encoded(of(trial)) for _, of in columns))
        for trial in trials
    ]
    return TrialRows(tuple(Column(in_utf8(column.name), column.kind) for column, _ in columns), tuple(rows))


def searched(run: RecordedRun) -> list[str]:
    """Names of the hyperparameters that differ between trials, as far as the run records what is constant."""
    return list(_searched(run))


def as_html(columns: Iterable[str], rows: Iterable[Iterable[Cell]]) -> str:
    """A table for a notebook, which doesn't have our style sheet."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


# Inside

CellOf = Callable[[TrialRecord], Cell]


def _columns(run: RecordedRun, cells: Cells, metrics: Sequence[str]) -> list[tuple[Column, CellOf]]:
    noted = [(Column("notes", "text"), cells.notes)] if any(note.trial for note in run.record.steered.notes) else []
    return [
        (Column("trial", "trial"), cells.trial),
        (Column("status", "status"), cells.status),
        (Column("epochs", "number"), cells.epochs),
        (Column(run.metric, "value"), cells.value),
        *([(Column(second.metric, "number"), partial(second_cell, run, second))] if (second := second_of(run)) else []),
        (Column("time", "number"), cells.time),
        *((Column(name, "number"), partial(cells.metric, name)) for name in metrics),
        *((Column(name, kind), partial(cells.setting, name)) for name, kind in _searched(run).items()),
        *noted,
    ]


def second_cell(run: RecordedRun, second: Objective, trial: TrialRecord) -> Cell:
    """The trial's second metric, or its network's cost."""
    best = run.record.best_of(trial.trial)
    value = value_in(run.costs, second.metric, trial, best[0] if best else trial.epoch)
    return Cell("" if value is None else short(value), value=value)


def _searched(run: RecordedRun) -> dict[str, Kind]:
    """The searched hyperparameters, each with whether all of its values are numbers, in the order of the space."""
    found: dict[str, Kind] = {}
    constants = run.space.constants
    for trial in run.record.trials.values():
        for name, value in flat_config(trial.config).items():
            if name not in constants:
                found[name] = "number" if finite(value) and found.get(name, "number") == "number" else "word"
    return {name: found[name] for name in (*run.space.dimensions, *found) if name in found}


def _encoded(cell: Cell) -> Cell:
    return Cell(in_utf8(cell.text), cell.aside, cell.value)
