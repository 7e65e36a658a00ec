"""`tuner run`: search."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

from tuner.cli.outcome import conclude
from tuner.cli.parsing import add_driver_options, add_study_options, driver_options, study_options
from tuner.machine.installation import check_trains
from tuner.machine.starting import release_interrupt


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.set_defaults(searches=True)
    parser.add_argument("space", metavar="SPACE.py", help="a file that declares `study = Study(...)`")
    add_study_options(parser)
    parser.add_argument(
        "--storage", default="runs", metavar="DIR|s3://…", help="the folder of all runs (default: runs)"
    )
    add_driver_options(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    check_trains("a search")
    from tuner.console.live_table import Plan, display
    from tuner.study.file import load_study

    changes = study_options(options)
    with redirect_stdout(sys.stderr):
        study = load_study(options.space)
        ready = study.with_options(**changes)
    plan = Plan.of(ready)
    ready.check_here(cluster=options.address is not None)
    from tuner.driver import Driving, run, wandb_mode
    from tuner.mirrors.process import HOW_TO_SWITCH_ON

    if options.wandb is None and wandb_mode(None) == "off" and not options.quiet:
        print(HOW_TO_SWITCH_ON, file=sys.stderr)
    release_interrupt()
    with redirect_stdout(sys.stderr), display(plan, sys.stderr, quiet=options.quiet) as shown:
        driving = Driving(listeners=[shown], **driver_options(options))
        finished = run(study, changes, driving, storage=options.storage)
    return conclude(finished, options)
