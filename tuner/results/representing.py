"""How Python shows a run: `repr` in one line, notebooks in a few lines and a table."""

from __future__ import annotations

from html import escape

from tuner.errors import SearchFailed
from tuner.history.refits import shipped_refit
from tuner.history.similar_failures import failure_groups
from tuner.results.run import RecordedRun
from tuner.results.trial_rows import as_html, trial_rows
from tuner.results.wording import (
    best_so_far,
    duration,
    settings,
    shipped,
    shown_path,
    trials_and_repeats,
    with_error,
)
from tuner.text import command, in_utf8, printable

SHOWN_TRIALS = 10  # in a notebook


def in_a_line(run: RecordedRun) -> str:
    """Name, status, trials, the winner's value and configuration, and the path in its short form."""
    trials = trials_and_repeats(run.record)
    return printable(f"<Run {run.title}: {run.status}, {trials}, {_won(run)}, {shown_path(run.path)}>")


def _won(run: RecordedRun) -> str:
    best = run.best
    worth = run.record.standing_of(best.trial) if best is not None else None
    if best is None or worth is None:
        return "no trial succeeded" if run.status == "failed" else "no winner yet"
    refit = shipped_refit(run.record)
    again = f", trained again by {refit.trial}" if refit else ""
    return f"best {run.metric} {with_error(worth)} by {best.trial} ({settings(best.config)}){again}"


def search_failure(run: RecordedRun) -> SearchFailed | None:
    """The exception for a search that ended without any successful trial; None for any other search.

    An interrupted search may still get some, unless an error ended it.
    """
    if run.best is not None or not (run.status == "failed" or run.end_reason == "error"):
        return None
    if run.end_reason == "error":
        return SearchFailed(f"the search was cut off by an error: {run.info['interrupted_by']}; see {run.path}", run)
    groups = failure_groups(run.record)
    if not groups:
        return SearchFailed(f"no trial reported {run.metric}; see {run.path}", run)
    most, total = groups[0], trials_and_repeats(run.record)
    again = command("show", run.path, "--trial", most.first.trial)
    return SearchFailed(
        f"no trial succeeded: {len(most.trials)} of {total} failed with {most.described}; for the traceback: {again}",
        run,
    )


def in_html(run: RecordedRun) -> str:
    """The run in a few lines, and its best trials."""
    counts = ", ".join(f"{count} {status}" for status, count in run.record.counts().items() if count)
    again = "".join(f"{escape(sentence)}<br>" for sentence in shipped(run))
    won = best_so_far(run.record, run.validation_images)
    head = (
        f"<p><b>{escape(run.title)}</b>, {run.status}: {trials_and_repeats(run.record)} ({counts or 'none'}) in "
        f"{duration(run.record.wall_seconds)}<br>best {escape(won)}<br>{again}"
        f"<code>{escape(shown_path(run.path))}</code></p>"
    )
    best = [one.trial for one in run.record.ranked()[:SHOWN_TRIALS]]
    table = trial_rows(run, best)
    shown = as_html((column.name for column in table.columns), (row.cells for row in table.rows)) if best else ""
    return str(in_utf8(head)) + shown
