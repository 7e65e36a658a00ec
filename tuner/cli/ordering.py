"""Common parts of the verbs that send orders to a search: `stop`, `pause`, `set`, `try` and `note`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from tuner.cli.at_service import is_study, steer
from tuner.cli.outcome import BAD_INPUT, SUCCESS
from tuner.cli.parsing import RUN_OR_STUDY
from tuner.foreign_text import printable


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the run, and for how to wait for the answer and show it."""
    parser.add_argument("run", metavar="RUN", help=RUN_OR_STUDY)
    parser.add_argument(
        "--no-wait", action="store_true", help="leave the order in the run's inbox, and don't wait for the answer"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def order(options: argparse.Namespace, verb: str, arguments: Mapping[str, Any], what: str) -> int:
    """Send the order, say `what` it asks for, and print the answer; returns the exit code."""
    if is_study(options.run):
        return steer(options, verb, arguments)
    from tuner.orders.sending import foreseen, send
    from tuner.results import load_run

    run = load_run(options.run)
    sent = send(run, verb, arguments)
    if sent.running and not options.no_wait:
        print(printable(f"{what}; waiting for the answer"), file=sys.stderr)
    try:
        answer = sent.answer(wait=not options.no_wait)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(
            "no longer waiting; the order stays in the run's inbox, and will be carried out"
        ) from interrupt
    warning = foreseen(run, verb, arguments) if answer.outcome == "waiting" else None
    if options.json:
        told = {**answer.record(), "run": run.path, "arguments": dict(arguments), "by": sent.order.by}
        print(json.dumps({**told, "warning": warning} if warning else told))
    elif answer.outcome == "refused":
        print(printable(f"tuner: refused: {answer.message}"), file=sys.stderr)
    else:
        print(printable(f"{answer.message}; {warning}" if warning else answer.message))
    return BAD_INPUT if answer.outcome == "refused" else SUCCESS
