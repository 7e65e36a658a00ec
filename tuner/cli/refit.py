"""`tuner refit`: train the winner of a run again on training and validation images together."""

from __future__ import annotations

import argparse

from tuner.cli import resume
from tuner.cli.parsing import RUN, add_driver_options, add_take_over
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("refit")
    parser.set_defaults(perform=perform, searches=True)
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--undo", action="store_true", help="put the winner's own network back into best/; trains nothing"
    )
    add_take_over(parser)
    add_driver_options(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    return resume.perform(options, refit=not options.undo, undo_refit=options.undo)
