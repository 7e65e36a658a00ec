"""The parser of the command line: it loads nothing that a verb needs."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import NoReturn

from tuner.cli.outcome import BAD_INPUT

CLOSE = 0.8  # similarity from 0 to 1: a less similar option may do something else


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
        end = "" if message.endswith("?") else ";"
        print(f"tuner: {message}{end} see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(BAD_INPUT)
