"""`tuner retry`: run failed trials again after their cause was corrected."""

from __future__ import annotations

import argparse

from tuner.budget import limits_of
from tuner.cli import resume
from tuner.cli.ordering import order
from tuner.cli.parsing import RUN, add_driver_options, add_limits, add_take_over, limits
from tuner.cli.verbs import Verbs
from tuner.errors import StudyError
from tuner.quoting import command
from tuner.results import load_run


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("retry")
    parser.set_defaults(perform=perform, searches=True)
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--trial",
        metavar="ID",
        action="append",
        default=[],
        dest="trials_again",
        help="this failed trial; may be given several times (default: all but those that diverged)",
    )
    add_limits(parser.add_argument_group("limits", "for the whole run, including what it has already used"))
    add_take_over(parser)
    add_driver_options(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    run = load_run(options.run)
    if not run.alive or options.take_over:
        return resume.perform(options, retry=options.trials_again)
    given = {limit.option: f"{value:g}" for limit, value in limits_of(limits(options))}
    if given:
        words = [word for each in given.items() for word in each]
        raise StudyError(
            f"retry takes no limits while the search runs, got {', '.join(given)}; "
            f"change them with: {command('set', run.path, *words)}"
        )
    which = ", ".join(options.trials_again) or "that failed"
    arguments = {"trials": options.trials_again or None}
    options.no_wait = False
    return order(options, "retry", arguments, f"asks the search to run the trials {which} again")
