"""A configuration that notes which of its values a trial's code reads.

Only a function that does nothing with its configuration but ask it for single values (`config["lr"]`,
`config.get("lr")`, `"lr" in config`) gets one: that is told from its source. Any other may hand it on to code that
takes nothing but a dict, or copies all of it: it gets the dict itself, and counts as one that reads everything.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from tuner.errors import did_you_mean

OF_TUNER = ("epochs", "strategy")  # tuner itself does what these say
MOST_ABSENT = 10  # names that are kept
REACH_EVERYTHING = {"locals", "vars", "eval", "exec"}


class Reading(dict[str, Any]):
    """The configuration of one trial, for a function whose source `asks_by_name`.

    Values that were replaced aren't noted, and sections are read as a whole.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._waiting = set(config) - set(OF_TUNER)
        self._read = {name: None for name in OF_TUNER if name in config}
        self._absent: dict[str, None] = {}
        self._told: tuple[int, int] | None = None

    def news(self) -> dict[str, list[str]] | None:
        """All names that were `read`, with those inside sections, and some that were asked for and are `absent`.

        None if that is the same as at the last call.
        """
        now = len(self._read), len(self._absent)
        if now == self._told:
            return None
        self._told = now
        names = [name for section in self._read for name in _names(section, dict.get(self, section))]
        return {"read": names, "absent": list(self._absent)}

    def advice(self, error: KeyError) -> str | None:
        """What the configuration has in place of the missing name; None if the error is about something else."""
        name = error.args[0] if error.args else None
        if not isinstance(name, str) or name not in self._absent:
            return None
        return f"the configuration has no {name!r}; {did_you_mean(name, self)}"

    def __getitem__(self, name: str) -> Any:
        """The value, which is noted."""
        self._note(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value, which is noted."""
        self._note(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        """Reads no value, but may ask for a name that is absent."""
        found = super().__contains__(name)
        if not found:
            self._note(name)
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        """What is read from now on is the code's own value."""
        self._waiting.discard(name)
        super().__setitem__(name, value)

    def _note(self, name: object) -> None:
        if name in self._waiting:
            self._read[str(name)] = None
        elif isinstance(name, str) and not super().__contains__(name) and len(self._absent) < MOST_ABSENT:
            self._absent[name] = None


def asks_by_name(function: Any) -> bool:
    """Whether a function only asks its first argument for single values, as far as its source is known."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return False
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.name != function.__name__:
        return False
    arguments = [*node.args.posonlyargs, *node.args.args]
    named = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    if not arguments or REACH_EVERYTHING & {each.id for each in named}:
        return False
    name = arguments[0].arg
    direct = {id(each) for each in _asked(node, name)} | {id(each) for each in named if isinstance(each.ctx, ast.Store)}
    return all(id(each) in direct for each in named if each.id == name)


def _asked(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """Where an argument is asked for a value, apart from functions and classes inside, which may run elsewhere."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        yield from _asked(inner, name)
        asked: ast.expr | None = None
        if isinstance(inner, ast.Subscript) and not isinstance(inner.ctx, ast.Del):
            asked = inner.value
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "get":
            asked = inner.func.value
        elif isinstance(inner, ast.Compare) and len(inner.ops) == 1 and isinstance(inner.ops[0], ast.In | ast.NotIn):
            asked = inner.comparators[0]
        if isinstance(asked, ast.Name) and asked.id == name:
            yield asked


def _names(name: str, value: Any) -> list[str]:
    inner = [each for key in value for each in _names(f"{name}.{key}", value[key])] if isinstance(value, dict) else []
    return [name, *inner]
