"""The verbs about runs in their storage folder: `runs` and `rename`."""

from __future__ import annotations

import argparse
import json
import sys

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import RUN


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `runs`."""
    parser.add_argument("--storage", default="runs", metavar="DIR|s3://…", help="where run folders lie (default: runs)")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")


def list_runs(options: argparse.Namespace) -> int:
    """List the runs under a storage folder; returns the exit code."""
    from tuner.console.tables import print_damages, print_runs
    from tuner.results.run_folders import survey
    from tuner.results.summaries import summary_of_run

    runs, refused = survey(options.storage)
    if options.json:
        print(json.dumps([summary_of_run(run) for run in runs]))
    else:
        print_runs(runs, options.storage)
    print_damages(refused, sys.stderr, of="left out: ")
    for run in runs:
        print_damages(run.damages, sys.stderr, of=f"{run.path}: ")
    return SUCCESS


def add_rename(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rename`."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument("name", metavar="NAME", help="at most 100 characters, spaces included")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def rename(options: argparse.Namespace) -> int:
    """Give a run another name; returns the exit code."""
    from tuner.results import load_run, titles
    from tuner.text import printable

    run = load_run(options.run)
    titles.rename(run.folder, options.name)
    if options.json:
        print(json.dumps({"run": run.path, "name": run.title}))
    else:
        print(printable(f"{run.path} is called {run.title!r} now"))
    return SUCCESS


TABLE = {"runs": (add_runs, list_runs), "rename": (add_rename, rename)}
