"""A search while it runs: a live table on a terminal, plain lines (`lines.py`) anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import IO, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.console.charts import chart
from tuner.console.plain_lines import Lines
from tuner.console.standing import ORDERS, Plan, Progress, answered
from tuner.history.events import CONCLUDING, OPENING, Event
from tuner.history.records import TrialRecord
from tuner.results.wording import best_so_far, duration, outcome, settings, short
from tuner.text import printable

__all__ = ["Display", "Lines", "LiveTable", "Plan", "Progress", "Silence", "display"]

STYLES = {"running": "cyan", "paused": "blue", "completed": "green", "stopped": "yellow", "failed": "red"}
SHOWN_TRIALS = 12
CURVE_HEIGHT, CURVE_NEEDS_HEIGHT = 4, 26  # lines: of the curve, and of a terminal that has room for it


class Display(Protocol):
    """Follows a search from its first event to its last."""

    def __enter__(self) -> Display: ...
    def __exit__(self, *_: object) -> None: ...
    def on_event(self, event: Event) -> None: ...


def display(
    plan: Plan, stream: IO[str], *, quiet: bool, earlier: Iterable[Event] = (), opening: str = "starting Ray"
) -> Display:
    """The display that fits the stream: nothing, a live table, or lines.

    `earlier` events are known but not shown; `opening` says what is done before the first trial starts.
    """
    if quiet:
        return Silence()
    progress, console = Progress(plan, earlier), Console(file=stream)
    return LiveTable(progress, console, opening) if console.is_terminal else Lines(progress, stream, opening)


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def on_event(self, event: Event) -> None:
        """Show nothing."""


class LiveTable:
    """A table that is redrawn a few times a second, and stays when the search ends."""

    def __init__(self, progress: Progress, console: Console, opening: str = "starting Ray") -> None:
        self._progress, self._console, self._opening = progress, console, opening
        self._concluding = ""  # the present step after the search
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._concluding = ""
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Take the event; the next drawing shows it. Notices and orders are printed above the table."""
        if event["event"] == OPENING:
            self._opening = str(event["step"])
            return
        if event["event"] == CONCLUDING:
            self._concluding = str(event["step"])
        if not self._progress.on_event(event):
            return
        if event["event"] == "notice":
            self._live.console.print(Text(printable(f"note: {event['message']}"), style="yellow"))
        elif event["event"] in ORDERS:
            self._live.console.print(Text(printable(answered(event)), style="yellow"))

    def _render(self) -> RenderableType:
        progress = self._progress
        if not progress.record.trials:
            return Text(printable(f"{progress.plan.study}: {self._opening}"), style="dim")
        parts = [self._table(), *self._curve(), progress.bar(), Text(progress.totals())]
        use = progress.device_use()
        parts += [Text(use, style="dim")] if use else []
        computing = progress.computing().items()
        parts += [Text(printable(f"{said} (trial {trial})"), style="dim") for trial, said in computing]
        parts += [Text(printable(f"best {best_so_far(progress.record)}"))]
        return Group(*parts, *([Text(printable(self._concluding), style="dim")] if self._concluding else []))

    def _curve(self) -> list[RenderableType]:
        """The leader's value against the epochs trained, if there is room and a curve."""
        leads = self._progress.leads
        if len(set(leads)) < 2 or self._console.size.height < CURVE_NEEDS_HEIGHT:
            return []
        width = min(60, self._console.size.width - 24)
        lines = chart(leads, width, CURVE_HEIGHT)
        label = printable(f"{self._progress.plan.metric}, best so far")
        ends = {0: short(max(leads)), CURVE_HEIGHT - 1: short(min(leads))}
        drawn = [Text(f"{line.ljust(width)} {ends.get(row, '')}", style="cyan") for row, line in enumerate(lines)]
        return [Text(label, style="dim"), *drawn]

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("trial", "status", "epoch", self._progress.plan.metric, "curve", "time"):
            table.add_column(Text(printable(name)), no_wrap=True)
        table.add_column("settings")  # the one column that is cut where the terminal is narrow
        rows = max(3, min(SHOWN_TRIALS, self._console.size.height - 9))
        for trial in self._progress.shown(rows):
            table.add_row(*self._cells(trial))
        return table

    def _cells(self, trial: TrialRecord) -> tuple[str | Text, ...]:
        best = self._progress.record.best_trial()
        found = self._progress.record.best_of(trial.trial)
        winner = best is not None and best.trial == trial.trial
        value = Text(short(found[1]) if found else "", style="bold green" if winner else "")
        since = 0.0 if trial.running_since is None else max(0.0, time.time() - trial.running_since)
        status = Text(printable(outcome(trial)), style=STYLES.get(trial.status, ""))
        epochs = f"{trial.epoch}/{self._progress.full_length(trial)}"
        text = printable(settings(trial.config))
        config = Text(text, no_wrap=True, overflow="ellipsis")  # a setting may look like rich's markup
        seconds = duration(trial.running_seconds + since)
        return trial.trial, status, epochs, value, self._progress.sparkline(trial), seconds, config
