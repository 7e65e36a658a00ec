"""The verbs, each with its sentence in `tuner --help`, and their parsers: nothing else is loaded to show them."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from tuner.cli.outcome import BAD_INPUT

VERBS = {
    "init": "look at a folder of images and at this machine, and write a first study file",
    "run": "run the search that a study file declares",
    "check": "check a study file and show which configurations would be tried; starts nothing",
    "resume": "go on with an interrupted run, or extend a finished one",
    "retry": "run failed trials of a run again, after their cause was corrected",
    "confirm": "train the best configurations of a run again under other seeds, to see which is best",
    "refit": "train the winner of a run again, on training and validation images together",
    "combine": "make one model of a run's best trials, if validation images show that it pays",
    "stop": "end a running search with winner and report, or one trial of it",
    "pause": "save a running search and free its devices; resume continues it",
    "set": "change the limits of a search, or how many trials run at once",
    "try": "run a configuration that you choose on the next free worker of a search",
    "note": "write a note about a run or a trial; show and report print it",
    "runs": "list the runs under a storage folder, newest first",
    "show": "show a run's trials, winner, and failures by cause",
    "rename": "give a run a name; its folder stays where it is",
    "report": "write report.html into a run's folder, also while its search runs",
    "refine": "write a new study file around the good region of a run",
    "compare": "compare runs at equal cost",
    "export": "write a run's trials for other tools",
    "predict": "classify images with a run's winner",
    "labels": "list images whose label is probably wrong, by what a run's networks answer",
    "replay": "train a trial again, and compare its curve with the recorded one",
    "clean": "show how much disk space runs take, and delete what you choose",
    "doctor": "check that searches will work on this machine, in about 20 s",
    "serve": "start a service for a team: a queue of studies, shown live in a browser",
    "login": "log in to a service, or set your password with a link that works once",
    "submit": "put a study into the queue of a service",
    "queue": "list the studies that a service runs, and those that wait and why",
    "logs": "show the output of a service's study, or of one of its trials",
    "priority": "change a study's priority at a service, -10 to 10; only admins give more than 0",
    "cancel": "end a study of a service at once, without a winner; its files stay",
    "devices": "list a service's devices, who has them, and how busy they are",
    "usage": "list for how many hours a service's studies have held devices",
    "user": "add, remove and change users of a service (for its admins)",
    "token": "create, list and revoke tokens for programs that use a service",
    "webhook": "let a service send messages to your address when studies end, fail, pause or improve",
    "completion": "print a script that completes verbs, options and run folders in your shell",
}  # in the order of the help
MODULES = {
    **dict.fromkeys(("pause", "stop", "set", "try", "note"), "orders"),
    **dict.fromkeys(("resume", "retry", "confirm", "refit", "combine"), "resume"),
    **dict.fromkeys(("runs", "rename"), "runs"),
    **dict.fromkeys(("queue", "logs", "priority", "cancel", "devices", "usage"), "queue"),
    **dict.fromkeys(("login", "user", "token", "webhook"), "users"),
}  # which have several verbs; every other verb has the module of its name
_UNKNOWN_VERB = re.compile(r"argument VERB: invalid choice: '([^']*)'")
CLOSE = 0.8  # similarity from 0 to 1: a less similar option may do something else


class Verbs:
    """Where a verb gets its parser; the sentence of the help is in VERBS."""

    def __init__(self, parsers: Any):
        """Take what `ArgumentParser.add_subparsers` returned."""
        self._parsers = parsers

    def add_parser(self, name: str) -> argparse.ArgumentParser:
        """An empty parser for one of VERBS, without its arguments."""
        return self._parsers.add_parser(name, help=VERBS[name])  # type: ignore[no-any-return]

    def add(self, name: str) -> None:
        """The parser of one of VERBS with the arguments that its module adds, and the function that performs it."""
        module = import_module(f"tuner.cli.{MODULES.get(name, name)}")
        add, perform = module.TABLE[name] if name in MODULES else (module.add, module.perform)
        parser = self.add_parser(name)
        parser.set_defaults(perform=perform)
        add(parser)


class Parser(argparse.ArgumentParser):
    """Reports what is wrong in one line."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Like the base class, but unknown arguments are refused here, so that the message names the verb's own
        help.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return found, unknown

    def _meant(self, unknown: Sequence[str]) -> str:
        known = self._option_string_actions
        options = (each.partition("=")[0] for each in unknown if each.startswith("--"))
        close = [name for each in options for name in difflib.get_close_matches(each, known, 1, cutoff=CLOSE)]
        return f"; did you mean {' and '.join(close)}?" if close else ""

    def error(self, message: str) -> NoReturn:
        """Print one line and where to find help, instead of the whole usage."""
        if (unknown := _UNKNOWN_VERB.match(message)) is not None:
            close = difflib.get_close_matches(unknown[1], VERBS, 1)
            hint = f"did you mean {close[0]}?" if close else f"verbs are {', '.join(VERBS)}"
            message = f"tuner has no verb {unknown[1]!r}; {hint}"
        end = "" if message.endswith("?") else ";"
        print(f"tuner: {message}{end} see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(BAD_INPUT)
