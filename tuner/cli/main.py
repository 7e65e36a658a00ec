"""Parse, do what the verb does, and turn what went wrong into a line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tuner import __version__
from tuner.cli import (
    cancel,
    check,
    clean,
    compare,
    completion,
    devices,
    doctor,
    export,
    login,
    logs,
    note,
    pause,
    predict,
    priority,
    queue,
    refine,
    rename,
    replay,
    report,
    resume,
    retry,
    run,
    runs,
    serve,
    set,  # noqa: A004 -- the verb
    show,
    stop,
    submit,
    token,
    try_,
    usage,
    user,
)
from tuner.cli.outcome import BAD_INPUT, INTERRUPTED, SUCCESS
from tuner.cli.parsing import Parser
from tuner.errors import StudyError, TrialError, one_line
from tuner.foreign_text import printable
from tuner.starting import release_interrupt

VERBS = (
    run,
    check,
    resume,
    retry,
    stop,
    pause,
    set,
    try_,
    note,
    runs,
    show,
    rename,
    report,
    refine,
    compare,
    export,
    predict,
    replay,
    clean,
    doctor,
    serve,
    login,
    submit,
    queue,
    logs,
    priority,
    cancel,
    devices,
    usage,
    user,
    token,
    completion,
)  # in the order of the help


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    whole = parser()
    completion.answer(whole)
    options = whole.parse_args(arguments)
    if not options.searches:  # which has nothing to put in order until it shows something
        release_interrupt()
    try:
        return int(options.perform(options))
    except (StudyError, TrialError) as error:
        print(printable(f"tuner: {one_line(str(error))}"), file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as interrupt:
        before = "interrupted before the search started; nothing was written"
        otherwise = before if options.searches else "interrupted"
        print(f"tuner: {str(interrupt) or otherwise}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `tuner show RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCESS


def parser() -> argparse.ArgumentParser:
    """All verbs with their options."""
    found = Parser(prog="python -m tuner", description="Hyperparameter search for image classifiers, on Ray Tune.")
    found.set_defaults(searches=False)
    found.add_argument("--version", action="version", version=f"tuner {__version__}", help="print the version and exit")
    verbs = found.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=Parser)
    for verb in VERBS:
        verb.add(verbs)
    return found
