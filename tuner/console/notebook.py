"""A search while it runs, in a notebook: a table and the curve of the best value, redrawn in place."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from tuner.console.live_table import Display, display
from tuner.console.standing import ORDERS, Plan, Progress, answered
from tuner.history.events import CONCLUDING, OPENING, Event
from tuner.history.records import TrialRecord
from tuner.history.similar_failures import failure_groups
from tuner.results.trial_rows import Cell, Cells, as_html
from tuner.results.wording import best_so_far, plural
from tuner.text import in_utf8

SECONDS = 0.5  # between two drawings
ROWS = 15
FAILURES = 5  # reasons that are shown
RARE = ("study_ended", "study_interrupted", "notice", CONCLUDING, *ORDERS)  # each is drawn at once
WIDTH, HEIGHT = 560, 120  # pixels of the curve


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel, which can draw HTML."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and shell.has_trait("kernel")


class NotebookDisplay:
    """Draws a search into the cell that started it."""

    def __init__(self, plan: Plan, earlier: Iterable[Event] = ()) -> None:
        """`earlier` events are known but not shown."""
        from IPython.display import HTML, display

        self._progress, self._html = Progress(plan, earlier), HTML
        self._concluding = ""  # the present step after the search
        self._answers: list[str] = []  # to users' orders
        self._handle: Any = display(HTML(f"<p>{escape(plan.study)}: starting Ray</p>"), display_id=True)
        self._drawn = time.monotonic()

    def __enter__(self) -> NotebookDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._concluding = ""
        if self._progress.record.trials:
            self._draw()

    def on_event(self, event: Event) -> None:
        """Take the event; draw if the last drawing is old or the event is a rare one."""
        kind = event["event"]
        if kind == OPENING:
            self._handle.update(
                self._html(in_utf8(f"<p>{escape(self._progress.plan.study)}: {escape(event['step'])}</p>"))
            )
            return
        if kind == CONCLUDING:
            self._concluding = str(event["step"])
        if self._progress.on_event(event) and kind in ORDERS:
            self._answers.append(answered(event))
        if kind in RARE or time.monotonic() - self._drawn > SECONDS:
            self._draw()

    def _draw(self) -> None:
        html = progress_html(self._progress, self._answers[-ROWS:], self._concluding)
        self._handle.update(self._html(in_utf8(html)))
        self._drawn = time.monotonic()


def shown_here(plan: Plan, *, quiet: bool, earlier: Iterable[Event] = ()) -> Display:
    """The display of a search that was called from Python: in a notebook's cell, else on stderr, or none."""
    if in_notebook() and not quiet:
        return NotebookDisplay(plan, earlier)
    return display(plan, sys.stderr, quiet=quiet or sys.stderr is None, earlier=earlier)


def progress_html(progress: Progress, answers: Sequence[str] = (), concluding: str = "") -> str:
    """The state of a search: trials, totals, the best so far and its curve, failures, and the answers to orders.
    `concluding` is the current step after the search.
    """
    columns = ("trial", "status", "epochs", progress.plan.metric, "curve", "time", "settings")
    cells = Cells(progress.record, progress.ahead.max_epochs, time.time())
    table = as_html(columns, (_row(progress, cells, trial) for trial in progress.shown(ROWS)))
    said = [*_failures(progress), *answers, *(f"note: {notice}" for notice in progress.record.notices)]
    return (
        f"<p><b>{escape(progress.plan.study)}</b>: {escape(progress.totals())}<br>"
        f"best {escape(best_so_far(progress.record))}</p>{_curve(progress.leads)}"
        f"{table}"
        + "".join(f"<p>{escape(line)}</p>" for line in said)
        + (f"<p>now: {escape(concluding)}</p>" if concluding else "")
    )


def _failures(progress: Progress) -> list[str]:
    """Why trials failed, the most frequent reason first."""
    groups = failure_groups(progress.record)
    return [f"{plural(len(group.trials), 'trial')} failed: {group.described}" for group in groups[:FAILURES]]


def _row(progress: Progress, cells: Cells, trial: TrialRecord) -> list[Cell]:
    return [
        cells.trial(trial),
        cells.status(trial),
        cells.epochs(trial),
        cells.value(trial),
        Cell(progress.sparkline(trial)),
        cells.time(trial),
        cells.settings(trial),
    ]


def _curve(leads: list[float]) -> str:
    """The leader's value against the reports, as a drawing of steps."""
    if len(set(leads)) < 2:
        return ""
    low, high = min(leads), max(leads)
    step = max(1, len(leads) // WIDTH)
    drawn = [*leads[:-1:step], leads[-1]]
    places = [
        (index * WIDTH / (len(drawn) - 1), HEIGHT - HEIGHT * (value - low) / (high - low))
        for index, value in enumerate(drawn)
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    line = f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/>'
    box = f'viewBox="-4 -4 {WIDTH + 8} {HEIGHT + 8}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg {box} role="img" aria-label="best so far, from {low:.4g} to {high:.4g}">{line}</svg>'
