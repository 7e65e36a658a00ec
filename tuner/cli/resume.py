"""The verbs that go on with a run: `resume`, `retry`, `confirm`, `refit` and `combine`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from tuner.cli.at_service import go_on, is_study
from tuner.cli.orders import order
from tuner.cli.outcome import conclude, tell_damages
from tuner.cli.parsing import (
    RUN,
    RUN_OR_STUDY,
    add_driver_options,
    add_limits,
    add_take_over,
    count,
    driver_options,
    limits,
)
from tuner.errors import StudyError
from tuner.machine.installation import check_trains
from tuner.machine.starting import release_interrupt
from tuner.study.budget import limits_of
from tuner.study.declaration import AUTO, COMBINATIONS, DISTILLED, ENSEMBLE, SOUP
from tuner.text import command

if TYPE_CHECKING:
    from tuner.loop.shipping import Ships


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `resume`."""
    parser.add_argument("run", metavar="RUN", help=RUN_OR_STUDY)
    _add_limits(parser)
    _add_how(parser)


def add_retry(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `retry`."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--trial",
        metavar="ID",
        action="append",
        default=[],
        dest="trials_again",
        help="this failed trial; may be given several times (default: all but those that diverged)",
    )
    _add_limits(parser)
    _add_how(parser)


def retry(options: argparse.Namespace) -> int:
    """Run failed trials again after their cause was corrected; returns the exit code."""
    from tuner.results import load_run

    run = load_run(options.run)
    if not run.alive or options.take_over:
        return resume(options, retry=options.trials_again)
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


def add_confirm(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `confirm`."""
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
    _add_how(parser)


def confirm(options: argparse.Namespace) -> int:
    """Train the best configurations of a run again under other seeds; returns the exit code."""
    from tuner.results import load_run

    run = load_run(options.run)
    if not run.alive or options.take_over:
        return resume(options, confirm=(options.top, options.seeds))
    arguments = {"top": options.top, "seeds": options.seeds}
    options.no_wait = False
    given = {name: value for name, value in arguments.items() if value is not None}
    return order(options, "confirm", given, "asks the search to train its best configurations under other seeds")


def add_refit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `refit`."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--undo", action="store_true", help="put the winner's own network back into best/; trains nothing"
    )
    _add_how(parser)


def refit(options: argparse.Namespace) -> int:
    """Train the winner of a run again on training and validation images together; returns the exit code."""
    return resume(options, ships="no-refit" if options.undo else "refit")


def add_combine(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `combine`."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--as",
        choices=COMBINATIONS,
        default=AUTO,
        dest="how",
        help=f"{AUTO} for what pays, as validation images show; in any case {ENSEMBLE}, the mean of the answers, "
        f"{SOUP}, a network with the mean of the weights, or {DISTILLED}, one that learns from the mean of the answers "
        f"(default: {AUTO})",
    )
    which.add_argument("--undo", action="store_true", help="put the winner's own network back into best/")
    _add_how(parser)


def combine(options: argparse.Namespace) -> int:
    """Average the answers of a run's best trials; returns the exit code."""
    return resume(options, ships="no-combination" if options.undo else options.how)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    add_limits(parser.add_argument_group("limits", "for the whole run, including what it has already used"))


def _add_how(parser: argparse.ArgumentParser) -> None:
    """Add the options of all these verbs, which say how the run goes on."""
    parser.set_defaults(searches=True)
    add_take_over(parser)
    add_driver_options(parser)


def resume(
    options: argparse.Namespace,
    retry: Sequence[str] | None = None,
    confirm: tuple[int | None, int | None] | None = None,
    *,
    ships: Ships | None = None,
) -> int:
    """Go on with a run, with these failed trials first (without names all that can run again); returns the exit code.

    `confirm` says how many of the best configurations are trained again first, and with how many other seeds. `ships`
    says what `best/` shall have.
    """
    if is_study(options.run):
        if ships is not None:
            verb = "refit" if "refit" in ships else "combine"
            raise StudyError(
                f"{verb} needs the folder of a run, got {options.run!r}; name the one that "
                f"`{command('show', options.run, '--json')}` shows, on the service's machine"
            )
        return go_on(options, limits(options))
    check_trains("a search")
    from tuner.console.live_table import Plan, display
    from tuner.loop.confirming import check_asked, cost_of
    from tuner.loop.shipping import in_words
    from tuner.results import load_run

    earlier = load_run(options.run)
    tell_damages(earlier)
    wanted = {} if confirm is not None or ships is not None else limits(options)
    plan = Plan.of_run(earlier, wanted)
    opening = "reading the run, then starting Ray"
    if confirm is not None:
        check_asked(earlier)
        opening = f"confirm {cost_of(earlier, *confirm)}; starting Ray"
    if ships is not None:
        opening = in_words(earlier, ships)
    from tuner import driver

    release_interrupt()
    with (
        redirect_stdout(sys.stderr),
        display(plan, sys.stderr, quiet=options.quiet, earlier=earlier.events, opening=opening) as shown,
    ):
        driving = driver.Driving(listeners=[shown], **driver_options(options))
        asked: dict[str, Any] = {"retry": retry, "confirm": confirm, "ships": ships}
        finished = driver.resume(options.run, wanted, driving, take_over=options.take_over, **asked)
    return conclude(finished, options)


TABLE = {
    "resume": (add_resume, resume),
    "retry": (add_retry, retry),
    "confirm": (add_confirm, confirm),
    "refit": (add_refit, refit),
    "combine": (add_combine, combine),
}
