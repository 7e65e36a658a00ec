"""A hyperparameter: its allowed values, and the messages about others."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tuner.errors import StudyError, shown
from tuner.space.values import is_number, is_one_of

Kind = Literal["int", "float", "bool", "categorical", "text"]


@dataclass(frozen=True)
class Hyperparameter:
    """One row of the table: the allowed values, the default if the space leaves it out, and the effect.

    `low` and `high` are inclusive and belong to the kinds `int` and `float`; `choices` belongs to `categorical`, and to
    an `int` that takes only some values. `default` is None if the data, the model or the budget decides. `log` says
    that a log scale suits a search, `costs` that memory, or the time per image, depends on it.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] | tuple[int, ...] = ()
    log: bool = False
    aliases: tuple[str, ...] = ()
    costs: bool = True

    @property
    def range(self) -> str:
        """The allowed values, for people: `1 to 10000`, `adam or sgd`."""
        if self.kind == "bool":
            return "True or False"
        if self.choices:
            return ", ".join(map(str, self.choices[:-1])) + f" or {self.choices[-1]}"
        if self.kind == "text":
            return "text"
        return f"{self.low:g} to {self.high:g}"

    def accepts(self, value: object) -> bool:
        """Whether `value` is of the kind and in the range; an integral float such as 32.0 is an int."""
        if self.kind == "bool":
            return isinstance(value, bool)
        if self.kind == "categorical":
            return is_one_of(value, [str(choice) for choice in self.choices])
        if self.kind == "text":
            return isinstance(value, str)
        if not is_number(value) or (self.choices and value not in self.choices):
            return False
        return self.low <= value <= self.high and (self.kind == "float" or float(value).is_integer())

    def check(self, value: object) -> None:
        """Raise StudyError unless `value` is of the kind and in the range."""
        if not self.accepts(value):
            raise StudyError(f"{self.name} must be {self.rule}, got {shown(value)}; {self._fix_for(value)}")

    def _fix_for(self, value: object) -> str:
        """The fix: a list of valid values was meant as a choice; text isn't in a range."""
        if isinstance(value, list | tuple | set | frozenset | range) and all(map(self.accepts, value)):
            return f"write choice({shown(list(value))}) to try each"
        if self.kind in ("int", "float") and not self.choices and not is_number(value):
            return "write a number in that range"
        return self.fix

    @property
    def rule(self) -> str:
        """The first part of a message: `an int from 1 to 10000`."""
        if self.choices or self.kind in ("bool", "text"):
            return self.range
        return f"{'an int' if self.kind == 'int' else 'a float'} from {self.low:g} to {self.high:g}"

    @property
    def fix(self) -> str:
        """The last part of a message: what to write instead."""
        if self.kind == "bool":
            return "write True or False"
        if self.choices:
            return f"choose among {', '.join(map(repr, self.choices))}"
        if self.kind == "text":
            return "write it in quotes"
        return "move it into that range"

    def coerce(self, value: Any) -> Any:
        """The value as the kind's own Python type.

        Raises:
            StudyError: the value isn't of the kind, or is out of the range.
        """
        self.check(value)
        return {"int": int, "float": float, "bool": bool, "categorical": str, "text": str}[self.kind](value)


def spellings_of(rows: Iterable[Hyperparameter]) -> dict[str, str]:
    """The hyperparameters' names, by their own names and by their aliases."""
    return {spelling: row.name for row in rows for spelling in (row.name, *row.aliases)}
