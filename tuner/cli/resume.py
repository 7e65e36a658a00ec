"""`tuner resume`: go on with a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from tuner.cli.at_service import go_on, is_study
from tuner.cli.outcome import conclude, tell_damages
from tuner.cli.parsing import RUN_OR_STUDY, add_driver_options, add_limits, add_take_over, driver_options, limits
from tuner.cli.plans import plan_of
from tuner.cli.verbs import Verbs
from tuner.errors import StudyError
from tuner.installation import check_trains
from tuner.quoting import command
from tuner.starting import release_interrupt


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("resume")
    parser.set_defaults(perform=perform, searches=True)
    parser.add_argument("run", metavar="RUN", help=RUN_OR_STUDY)
    add_limits(parser.add_argument_group("limits", "for the whole run, including what it has already used"))
    add_take_over(parser)
    add_driver_options(parser)


def perform(
    options: argparse.Namespace,
    retry: Sequence[str] | None = None,
    confirm: tuple[int | None, int | None] | None = None,
    *,
    refit: bool = False,
    undo_refit: bool = False,
) -> int:
    """Run the verb, with these failed trials first (without names all that can run again); returns the exit code.

    `confirm` says how many of the best configurations are trained again first, and with how many other seeds. `refit`
    trains the winner again on training and validation images together; `undo_refit` puts its own network back.
    """
    if is_study(options.run):
        if refit:
            raise StudyError(
                f"refit needs the folder of a run, got {options.run!r}; name the one that "
                f"`{command('show', options.run, '--json')}` shows, on the service's machine"
            )
        return go_on(options, limits(options))
    check_trains("a search")
    from tuner.console.progress import display
    from tuner.loop.confirming import check_asked, cost_of
    from tuner.loop.refitting import check_undoable, refit_cost
    from tuner.results import load_run

    earlier = load_run(options.run)
    tell_damages(earlier)
    wanted = {} if confirm is not None or refit or undo_refit else limits(options)
    plan = plan_of(earlier, **wanted)
    opening = "reading the run, then starting Ray"
    if confirm is not None:
        check_asked(earlier)
        opening = f"confirm {cost_of(earlier, *confirm)}; starting Ray"
    if refit:
        opening = f"refit {refit_cost(earlier)}; starting Ray"
    if undo_refit:
        opening = f"best/ gets the winner's own network in place of that of trial {check_undoable(earlier).trial}"
    from tuner.driver import Driving, resume

    release_interrupt()
    with (
        redirect_stdout(sys.stderr),
        display(plan, sys.stderr, quiet=options.quiet, earlier=earlier.events, opening=opening) as shown,
    ):
        driving = Driving(listeners=[shown], **driver_options(options))
        asked: dict[str, Any] = {"retry": retry, "confirm": confirm, "refit": refit, "undo_refit": undo_refit}
        finished = resume(options.run, wanted, driving, take_over=options.take_over, **asked)
    return conclude(finished, options)
