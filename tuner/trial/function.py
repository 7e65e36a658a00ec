"""A trial that is any user's function."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

from tuner.errors import StudyError
from tuner.space import Space
from tuner.trial.base import Trial

DIGITS = 16


@dataclass(frozen=True)
class FunctionTrial(Trial):
    """`def train(config): ...` that calls `tuner.report(...)` once per epoch."""

    kind: ClassVar[str] = "function"
    implementation: ClassVar[str] = "tuner.worker.function:FunctionCall"
    is_code: ClassVar[bool] = True

    function: Callable[[dict[str, Any]], Any]

    @property
    def name(self) -> str:
        """The function's own name."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def reports(self) -> None:
        """Unknown until it runs."""
        return

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The function."""
        return (self.function,)

    def identity(self) -> dict[str, str]:
        """The function's name only, because its code may be corrected."""
        return {"trial": self.name}

    def source_fingerprint(self) -> str | None:
        """A fingerprint of its source, and of the functions and classes in the same file that it uses."""
        return source_fingerprint(self.function)

    def check(self, space: Space) -> None:
        """Raise StudyError unless the function can be called with one configuration."""
        try:
            inspect.signature(self.function).bind({})
        except TypeError as error:
            raise StudyError(
                f"a trial function takes one argument, the configuration, got {self.name}: {error}; "
                f"write def {self.name}(config): ..."
            ) from error
        except ValueError:  # a built-in without a signature
            return


def source_fingerprint(function: Any) -> str | None:
    """16 hexadecimal digits of a function's source and of what it uses in the same file; None if it can't be read.

    What it uses are the functions and classes at the top of its file that its code names, and those that these name.
    Comments, docstrings and formatting don't count. A partial function also counts the arguments that it holds.
    """
    try:
        texts = sorted(_texts(function))
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:DIGITS]


def _texts(function: Any) -> Iterator[str]:
    if isinstance(function, partial):
        yield f"partial{function.args!r}{sorted(function.keywords.items())!r}"
        yield from _texts(function.func)
        return
    if not isinstance(function, FunctionType | type):
        function = getattr(function, "__func__", type(function))  # a method, or an object that can be called
    waiting, seen = [inspect.unwrap(function)], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        tree = _tree(one)
        yield ast.unparse(tree)
        waiting += _used(one, tree)


def _tree(one: Any) -> ast.Module:
    """The source without docstrings; for a lambda, that of all lambdas that begin in its line."""
    tree = _lambdas(one) if one.__name__ == "<lambda>" else ast.parse(textwrap.dedent(inspect.getsource(one)))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _lambdas(one: FunctionType) -> ast.Module:
    """A lambda is part of a statement, which inspect may cut at any place."""
    whole = ast.parse("".join(inspect.findsource(one)[0]))
    first = one.__code__.co_firstlineno
    found = [node for node in ast.walk(whole) if isinstance(node, ast.Lambda) and node.lineno == first]
    return ast.Module([ast.Expr(node) for node in found], [])


def _used(one: Any, tree: ast.Module) -> Iterator[Any]:
    """The functions and classes of the same file that the code names."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    there = vars(inspect.getmodule(one)) if isinstance(one, type) else one.__globals__
    for name in sorted(names & there.keys()):
        found = there[name]
        if isinstance(found, FunctionType | type) and found.__module__ == one.__module__:
            yield inspect.unwrap(found)
