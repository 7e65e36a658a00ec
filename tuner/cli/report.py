"""`tuner report`: a page about a run."""

from __future__ import annotations

import argparse

from tuner.cli.at_service import is_study, study_of
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.verbs import Verbs
from tuner.foreign_text import printable

HELP = "default: the newest run under runs/; of @17, a study of a service, the report is saved here"


def add(verbs: Verbs) -> None:
    """Its arguments."""
    parser = verbs.add_parser("report")
    parser.set_defaults(perform=perform)
    parser.add_argument("run", metavar="RUN", nargs="?", default="runs", help=HELP)


def perform(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
    if is_study(options.run):
        study = study_of(options.run)
        print(printable(study.download("report", f"study-{study.id}.html")))
        return SUCCESS
    from tuner.html_report import write_report
    from tuner.results import load_run

    run = load_run(options.run)
    print(printable(write_report(run)))
    tell_damages(run)
    return SUCCESS
