"""`tuner show`: a run in the terminal, also while it goes on."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import Verbs
from tuner.cli.plans import plan_of

if TYPE_CHECKING:
    from tuner.results import Run

WATCH_SECONDS = 0.5


def add(verbs: Verbs) -> None:
    """Its arguments."""
    parser = verbs.add_parser("show", help="a run's trials, winner, and failures by cause")
    parser.set_defaults(perform=perform)
    parser.add_argument("run", metavar="RUN", nargs="?", default="runs", help="default: the newest run under runs/")
    parser.add_argument("--trial", metavar="ID", help="one trial: its epochs, and the traceback if it failed")
    parser.add_argument("--watch", action="store_true", help="follow a search that another process runs, then show it")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
    from tuner.console.tables import print_run
    from tuner.results import load_run

    run = load_run(options.run)
    if options.watch:
        _watch(run)
        run = load_run(run.path)
    if options.json:
        print(json.dumps(run.trial_summary(options.trial) if options.trial else run.summary()))
    else:
        print_run(run, traceback_of=options.trial)
    tell_damages(run)
    return SUCCESS


def _watch(run: Run) -> None:
    """Show a search that another process runs, until it ends or Ctrl-C."""
    from tuner.console.progress import display
    from tuner.results import EventFollower, load_run

    follower, alive = EventFollower(run.folder), True
    with suppress(KeyboardInterrupt):
        plan = plan_of(run)
        with display(plan, sys.stderr, quiet=False, earlier=follower.new(), opening="followed") as shown:
            while alive:
                alive = load_run(run.path).alive  # asked before the last events are read
                for event in follower.new():
                    shown.on_event(event)
                time.sleep(WATCH_SECONDS if alive else 0)
