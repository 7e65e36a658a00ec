"""`tuner stop`: end a running search, or one trial of it."""

from __future__ import annotations

import argparse

from tuner.cli.ordering import add_common, order
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("stop")
    parser.set_defaults(perform=perform)
    add_common(parser)
    parser.add_argument("--trial", metavar="ID", help="end only this trial; the search goes on")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    if options.trial is None:
        return order(options, "stop", {}, "asks the search to end now, with the winner so far")
    return order(options, "stop", {"trial": options.trial}, f"asks the search to end trial {options.trial}")
