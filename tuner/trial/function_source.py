"""Identifies a function's code by a fingerprint of its source, which neither comments nor formatting change."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import partial
from types import FunctionType
from typing import Any

DIGITS = 16


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
