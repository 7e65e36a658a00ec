"""`python -m tuner set`: change the limits of a search, or how many trials it runs at once."""

from __future__ import annotations

import argparse

from tuner.cli.ordering import add_common, order
from tuner.cli.parsing import add_limits, count, limits
from tuner.cli.verbs import Verbs
from tuner.errors import StudyError


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("set")
    parser.set_defaults(perform=perform)
    add_common(parser)
    group = parser.add_argument_group("limits", "for the whole run, including what it has already used")
    add_limits(group)
    group.add_argument("--concurrency", type=count, metavar="N", help="trials at once; a lower number ends no trial")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    wanted = {**limits(options), "concurrency": options.concurrency}
    given = {name: value for name, value in wanted.items() if value is not None}
    if not given:
        raise StudyError("set needs a limit or --concurrency, got neither; see `python -m tuner set --help`")
    return order(options, "set", given, f"asks the search for {', '.join(f'{n} {v}' for n, v in given.items())}")
