"""`tuner cancel`: end a study of a service at once."""

from __future__ import annotations

import argparse

from tuner.cli.remote import STUDY, add_server, client_of, show_study
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("cancel")
    parser.set_defaults(perform=perform)
    parser.add_argument("study", metavar="ID", help=STUDY)
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    return show_study(options, client_of(options).study(options.study).cancel())
