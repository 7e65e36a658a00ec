"""How a verb ends: exit codes, and the last lines of a search."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from tuner.text import printable

if TYPE_CHECKING:
    from tuner.results.run import RecordedRun

SUCCESS, NO_WINNER, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def conclude(run: RecordedRun, options: argparse.Namespace) -> int:
    """Print the outcome of a search; returns its exit code."""
    from tuner.console.tables import print_failure, print_winner
    from tuner.results.summaries import summary_of_run
    from tuner.text import command

    summary = summary_of_run(run)
    if options.json:
        print(json.dumps(summary))
    elif run.best is not None:
        print_winner(run)
    if run.status == "interrupted":
        by_itself = run.end_reason == "error"
        what = f"the search was cut off by an error: {run.info['interrupted_by']}" if by_itself else None
        what = what or f"interrupted ({run.end_reason})"
        print(printable(f"{what}; go on with:\n{command('resume', run.path)}"), file=sys.stderr)
        return NO_WINNER if by_itself else INTERRUPTED
    if run.best is None:
        print_failure(run, sys.stderr)
        return NO_WINNER
    return SUCCESS


def tell_damages(*runs: RecordedRun) -> None:
    """Say on stderr which parts of the runs can't be read."""
    from tuner.console.tables import print_damages

    for run in runs:
        print_damages(run.damages, sys.stderr, of=f"{run.path}: " if len(runs) > 1 else "")
