"""Text for the outside: what other people's files say made safe to show, and commands to paste into a shell."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

# Control characters except for line end and tab, changes of the writing direction, line separators, lone surrogates
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]"
)
_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")  # they would change the direction of tuner's words, too
_SURROGATE = re.compile("[\ud800-\udfff]")
_RUNS = re.compile(r"'*[=+\-@\t\r\n]")


def printable(text: object) -> str:
    r"""The text for a terminal: control and direction characters are written as `\x1b` and `\u202e`."""
    return _UNPRINTABLE.sub(_escaped, str(text))


def in_one_direction(value: Any) -> Any:
    r"""A text of a page without changes of the writing direction, which are written as `\u202e`; else the value."""
    return _DIRECTIONS.sub(_escaped, value) if type(value) is str else value


def in_utf8(value: Any) -> Any:
    r"""Plain data whose texts can all be encoded: lone surrogates, as of file names that aren't UTF-8, as `\udcff`."""
    if isinstance(value, str):
        return _SURROGATE.sub(_escaped, value)
    if isinstance(value, dict):
        return {in_utf8(name): in_utf8(one) for name, one in value.items()}
    return [in_utf8(one) for one in value] if isinstance(value, list) else value


def spreadsheet_cell(value: Any) -> Any:
    """The value of a CSV cell, changed so that no spreadsheet takes it for a formula; only text is changed.

    Text that begins with `=`, `+`, `-`, `@`, a tab or a line end, perhaps after apostrophes, gets one more apostrophe
    in front. `text_of_cell` removes it: one apostrophe if apostrophes are followed by one of these.
    """
    return f"'{value}" if isinstance(value, str) and _RUNS.match(value) else value


def text_of_cell(value: Any) -> Any:
    """What `spreadsheet_cell` was given."""
    return value[1:] if isinstance(value, str) and value.startswith("'") and _RUNS.match(value) else value


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def command(*arguments: str) -> str:
    """`python -m tuner` with its arguments, to paste into a shell: quoted where a path has special characters."""
    words = ["python", "-m", "tuner", *arguments]
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)
