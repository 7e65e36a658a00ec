"""`tuner rename`: another name for a run."""

from __future__ import annotations

import argparse
import json

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import RUN
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("rename")
    parser.set_defaults(perform=perform)
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument("name", metavar="NAME", help="at most 100 characters, spaces included")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.foreign_text import printable
    from tuner.results import load_run
    from tuner.results.titles import rename

    run = load_run(options.run)
    rename(run.folder, options.name)
    if options.json:
        print(json.dumps({"run": run.path, "name": run.title}))
    else:
        print(printable(f"{run.path} is called {run.title!r} now"))
    return SUCCESS
