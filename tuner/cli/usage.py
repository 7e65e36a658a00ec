"""`tuner usage`: who used a service's devices for how long."""

from __future__ import annotations

import argparse

from tuner.cli.parsing import positive
from tuner.cli.remote import add_server, client_of, show, table
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("usage")
    parser.set_defaults(perform=perform)
    parser.add_argument("--days", type=positive, default=7.0, metavar="N", help="how many days back (default: 7)")
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    found = client_of(options).usage(options.days)
    rows = [
        (one["user"], f"@{one['study']}", one["name"], one["kind"], f"{one['device_hours']:.2f}", one["state"])
        for one in found
    ]
    return show(options, found, table(("user", "study", "name", "kind", "hours held", "state"), rows))
