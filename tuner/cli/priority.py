"""`tuner priority`: which study of a service goes first."""

from __future__ import annotations

import argparse

from tuner.cli.remote import STUDY, add_server, client_of, show
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("priority")
    parser.set_defaults(perform=perform)
    parser.add_argument("study", metavar="ID", help=STUDY)
    parser.add_argument("priority", metavar="N", type=int, help="the new priority; higher goes first")
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    study = client_of(options).study(options.study).change(priority=options.priority)
    return show(options, study.record, f"study @{study.id} has priority {study.record['priority']} now")
