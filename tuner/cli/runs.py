"""`tuner runs`: the runs under a storage folder."""

from __future__ import annotations

import argparse
import json
import sys

from tuner.cli.outcome import SUCCESS
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("runs")
    parser.set_defaults(perform=perform)
    parser.add_argument("--storage", default="runs", metavar="DIR|s3://…", help="where run folders lie (default: runs)")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.console.tables import print_damages, print_runs
    from tuner.results.found import survey

    runs, refused = survey(options.storage)
    if options.json:
        print(json.dumps([run.summary() for run in runs]))
    else:
        print_runs(runs, options.storage)
    print_damages(refused, sys.stderr, of="left out: ")
    for run in runs:
        print_damages(run.damages, sys.stderr, of=f"{run.path}: ")
    return SUCCESS
