"""Parse the command, run the verb, and turn errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tuner import __version__
from tuner.cli.outcome import BAD_INPUT, INTERRUPTED, SUCCESS
from tuner.cli.verbs import VERBS, Parser, Verbs
from tuner.errors import TunerError, one_line
from tuner.machine.starting import release_interrupt
from tuner.text import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if "_ARGCOMPLETE" in os.environ:  # set by argcomplete's scripts: a shell asks for completions
        from tuner.cli.completion import answer

        answer(parser())
    options = parser(next((each for each in given if not each.startswith("-")), "")).parse_args(given)
    if not options.searches:  # the verb has nothing to clean up until it shows something
        release_interrupt()
    try:
        return int(options.perform(options))
    except TunerError as error:
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


def parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The parser of all verbs; with the options of one verb, so that only its module is loaded, or by default of
    all.
    """
    found = Parser(prog="python -m tuner", description="Hyperparameter search for image classifiers, on Ray Tune.")
    found.set_defaults(searches=False)
    found.add_argument("--version", action="version", version=f"tuner {__version__}", help="print the version and exit")
    verbs = Verbs(found.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=Parser))
    for name in VERBS:
        if verb in (None, name):
            verbs.add(name)
        else:
            verbs.add_parser(name)
    return found
