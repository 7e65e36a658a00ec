"""`tuner devices`: a service's devices, and who has them."""

from __future__ import annotations

import argparse

from tuner.cli.remote import add_server, client_of, name_of, show, table
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("devices")
    parser.set_defaults(perform=perform)
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    found = client_of(options).devices()
    rows = [
        (
            name_of(use["device"]),
            "free" if use["study"] is None else f"@{use['study']}",
            use["user"],
            use["trial"],
            "" if use["busy"] is None else f"{use['busy']:.0%}",
        )
        for use in found
    ]
    return show(options, found, table(("device", "study", "user", "trial", "busy"), rows))
