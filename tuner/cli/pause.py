"""`tuner pause`: end a running search so that `resume` goes on with it."""

from __future__ import annotations

import argparse

from tuner.cli.ordering import add_common, order
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("pause")
    parser.set_defaults(perform=perform)
    add_common(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    return order(options, "pause", {}, "asks the search to save and to free its devices")
