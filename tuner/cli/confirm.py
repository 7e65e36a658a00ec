"""`tuner confirm`: train the best configurations of a run again under other seeds."""

from __future__ import annotations

import argparse

from tuner.cli import resume
from tuner.cli.ordering import order
from tuner.cli.parsing import RUN, add_driver_options, add_take_over, count
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("confirm")
    parser.set_defaults(perform=perform, searches=True)
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--top",
        type=count,
        metavar="N",
        help="how many of the best configurations (default: 3, or fewer if the run has fewer)",
    )
    parser.add_argument(
        "--seeds", type=count, metavar="N", help="number of other seeds for each configuration (default: 5)"
    )
    add_take_over(parser)
    add_driver_options(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.results import load_run

    run = load_run(options.run)
    if not run.alive or options.take_over:
        return resume.perform(options, confirm=(options.top, options.seeds))
    arguments = {"top": options.top, "seeds": options.seeds}
    options.no_wait = False
    given = {name: value for name, value in arguments.items() if value is not None}
    return order(options, "confirm", given, "asks the search to train its best configurations under other seeds")
