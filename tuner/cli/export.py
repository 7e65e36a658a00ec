"""`tuner export`: trials for other tools."""

from __future__ import annotations

import argparse

from tuner.cli.at_service import located
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import RUN_OR_STUDY
from tuner.cli.verbs import Verbs
from tuner.foreign_text import printable


def add(verbs: Verbs) -> None:
    """Its arguments."""
    parser = verbs.add_parser("export")
    parser.set_defaults(perform=perform)
    parser.add_argument("run", metavar="RUN", help=RUN_OR_STUDY)
    kinds = ["csv", "parquet", "optuna", "tensorboard"]
    parser.add_argument("--to", choices=kinds, required=True, dest="kind", help="the form")
    parser.add_argument("path", metavar="PATH", help="a folder for tables; for optuna a new SQLite file")


def perform(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
    from tuner.results import export, load_run

    run = load_run(located(options.run))
    for file in export(run, options.kind, options.path):
        print(printable(file))
    tell_damages(run)
    return SUCCESS
