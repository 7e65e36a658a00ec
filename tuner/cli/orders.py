"""The verbs that send orders to a search: `pause`, `stop`, `set`, `try` and `note`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from tuner.cli.at_service import is_study, steer
from tuner.cli.outcome import BAD_INPUT, SUCCESS
from tuner.cli.parsing import RUN_OR_STUDY, add_limits, assignment, count, limits
from tuner.errors import StudyError
from tuner.text import printable


def pause(options: argparse.Namespace) -> int:
    """End a running search so that `resume` goes on with it; returns the exit code."""
    return order(options, "pause", {}, "asks the search to save and to free its devices")


def add_stop(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `stop`."""
    add_common(parser)
    parser.add_argument("--trial", metavar="ID", help="end only this trial; the search goes on")


def stop(options: argparse.Namespace) -> int:
    """End a running search, or one trial of it; returns the exit code."""
    if options.trial is None:
        return order(options, "stop", {}, "asks the search to end now, with the winner so far")
    return order(options, "stop", {"trial": options.trial}, f"asks the search to end trial {options.trial}")


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `set`."""
    add_common(parser)
    group = parser.add_argument_group("limits", "for the whole run, including what it has already used")
    add_limits(group)
    group.add_argument("--concurrency", type=count, metavar="N", help="trials at once; a lower number ends no trial")


def change(options: argparse.Namespace) -> int:
    """Change the limits of a search, or how many trials it runs at once; returns the exit code."""
    wanted = {**limits(options), "concurrency": options.concurrency}
    given = {name: value for name, value in wanted.items() if value is not None}
    if not given:
        raise StudyError("set needs a limit or --concurrency, got neither; see `python -m tuner set --help`")
    return order(options, "set", given, f"asks the search for {', '.join(f'{n} {v}' for n, v in given.items())}")


def add_try(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `try`."""
    add_common(parser)
    parser.add_argument(
        "values", nargs="+", metavar="NAME=VALUE", help="hyperparameters; those that you leave out are sampled"
    )


def try_out(options: argparse.Namespace) -> int:
    """Let a search run a configuration that the user chooses; returns the exit code."""
    config: dict[str, Any] = {}
    for name, value in (assignment(text, "") for text in options.values):
        if name in config:
            raise StudyError(f"try needs one value for {name!r}, got {config[name]!r} and {value!r}; leave one out")
        config[name] = value
    return order(options, "try", {"config": config}, f"asks the search to try {' '.join(options.values)}")


def add_note(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `note`."""
    add_common(parser)
    parser.add_argument("text", metavar="TEXT", help="in quotation marks")
    parser.add_argument("--trial", metavar="ID", help="about this trial")


def note(options: argparse.Namespace) -> int:
    """Write something down about a run, or about one of its trials; returns the exit code."""
    about = {} if options.trial is None else {"trial": options.trial}
    return order(options, "note", {"text": options.text, **about}, "asks the search to write the note down")


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


TABLE = {
    "pause": (add_common, pause),
    "stop": (add_stop, stop),
    "set": (add_set, change),
    "try": (add_try, try_out),
    "note": (add_note, note),
}
