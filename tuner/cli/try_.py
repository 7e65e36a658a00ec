"""`tuner try`: let a search run a configuration that you choose."""

from __future__ import annotations

import argparse
from typing import Any

from tuner.cli.ordering import add_common, order
from tuner.cli.parsing import assignment
from tuner.cli.verbs import Verbs
from tuner.errors import StudyError


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("try")
    parser.set_defaults(perform=perform)
    add_common(parser)
    parser.add_argument(
        "values", nargs="+", metavar="NAME=VALUE", help="hyperparameters; those that you leave out are sampled"
    )


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    config: dict[str, Any] = {}
    for name, value in (assignment(text, "") for text in options.values):
        if name in config:
            raise StudyError(f"try needs one value for {name!r}, got {config[name]!r} and {value!r}; leave one out")
        config[name] = value
    return order(options, "try", {"config": config}, f"asks the search to try {' '.join(options.values)}")
