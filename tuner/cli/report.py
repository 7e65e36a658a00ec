"""`tuner report`: a page about a run."""

from __future__ import annotations

import argparse
import json

from tuner.cli.at_service import is_study, study_of
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.text import printable

HELP = "a run folder (default: the newest run under runs/); the report of @17, a study of a service, is saved here"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("run", metavar="RUN", nargs="?", default="runs", help=HELP)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    if is_study(options.run):
        study = study_of(options.run)
        return _tell(options, study.download("report", f"study-{study.id}.html"))
    from tuner.html_report import write_report
    from tuner.results import load_run

    run = load_run(options.run)
    written = write_report(run)
    tell_damages(run)
    return _tell(options, written)


def _tell(options: argparse.Namespace, report: object) -> int:
    print(json.dumps({"report": str(report)}) if options.json else printable(report))
    return SUCCESS
