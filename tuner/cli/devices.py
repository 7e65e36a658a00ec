"""`tuner devices`: a service's devices, and who has them."""

from __future__ import annotations

import argparse

from tuner.cli.parsing import Verbs
from tuner.cli.remote import add_server, client_of, name_of, show, table


def add(verbs: Verbs) -> None:
    """Its arguments."""
    parser = verbs.add_parser("devices", help="list a service's devices, who has them, and how busy they are")
    parser.set_defaults(perform=perform)
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
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
