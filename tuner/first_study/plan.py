"""A study as settings, each with its reason, and as the text of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from textwrap import wrap

WIDTH = 100  # characters of a line


@dataclass(frozen=True)
class Setting:
    """A line of the file: `name`, the value as Python text, and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """A study of an image classifier.

    Attributes:
        name: of the study
        opening: the file's first words
        trial: settings of `ImageClassifier`
        space: hyperparameters
        study: the other settings of `Study`
    """

    name: str
    opening: str
    trial: tuple[Setting, ...]
    space: tuple[Setting, ...]
    study: tuple[Setting, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings."""
        return (*self.trial, *self.space, *self.study)

    def with_setting(self, changed: Setting) -> Plan:
        """The plan with another value of one of the study's settings, by name."""
        return replace(self, study=tuple(changed if each.name == changed.name else each for each in self.study))

    def text(self) -> str:
        """The file's text."""
        body = "\n".join(each.value for each in self.settings)
        optional = ("Folds", "choice", "loguniform", "uniform")
        called = [name for name in optional if re.search(rf"\b{name}\(", body)]
        lines = [
            *_docstring(self.opening),
            "",
            f"from tuner import {', '.join(sorted(['Budget', 'ImageClassifier', 'Study', *called]))}",
            "",
            "study = Study(",
            f"    name={quoted(self.name)},",
            "    trial=ImageClassifier(",
            *_lines(self.trial, 8, "{}={},"),
            "    ),",
            "    space={",
            *_lines(self.space, 8, '"{}": {},'),
            "    },",
            *_lines(self.study, 4, "{}={},"),
            ")",
        ]
        return "\n".join(lines) + "\n"


def _docstring(text: str) -> Iterator[str]:
    lines = wrap(text.replace("\\", "/").replace('"""', "'''"), WIDTH - 3)
    yield f'"""{lines[0]}' + ('"""' if len(lines) == 1 else "")
    yield from lines[1:-1]
    if len(lines) > 1:
        yield f'{lines[-1]}"""'


def _lines(settings: Iterable[Setting], indent: int, form: str) -> Iterator[str]:
    """Lines with each setting after its reason."""
    space = " " * indent
    for each in settings:
        yield from (f"{space}# {line}" for line in wrap(each.reason, WIDTH - indent - 2))
        yield space + form.format(each.name, each.value)


def quoted(value: object) -> str:
    """A value as Python text; strings in double quotes if they contain none."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{quoted(name)}: {quoted(each)}' for name, each in value.items())}}}"
    told = repr(value)
    return f'"{told[1:-1]}"' if isinstance(value, str) and told.startswith("'") and '"' not in told else told
