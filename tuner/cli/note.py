"""`tuner note`: write something down about a run, or about one of its trials."""

from __future__ import annotations

import argparse

from tuner.cli.ordering import add_common, order
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("note")
    parser.set_defaults(perform=perform)
    add_common(parser)
    parser.add_argument("text", metavar="TEXT", help="in quotation marks")
    parser.add_argument("--trial", metavar="ID", help="about this trial")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    about = {} if options.trial is None else {"trial": options.trial}
    return order(options, "note", {"text": options.text, **about}, "asks the search to write the note down")
