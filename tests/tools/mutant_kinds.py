"""The small changes that one place of a Python source can take, found in its syntax tree.

A change replaces only the text of one node, so that everything else stays as it is written. No change is offered in
docstrings, type annotations, `if TYPE_CHECKING:`, f-strings and what is raised, as these are read by people or by type
checkers. What is given to `kill` and `killpg` isn't changed either.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

COMPARISONS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
SWAPPED = {"and": "or", "or": "and", "+": "-", "-": "+", "min": "max", "max": "min"}
_COMPARISON = re.compile(r"is\s+not\b|not\s+in\b|is\b|in\b|[<>=!]=|[<>]")
_JUNCTION = re.compile(r"\b(?:and|or)\b")
_SIGN = re.compile(r"[+-]")
_CACHES = ("cache", "lru_cache")
_SIGNALS = ("kill", "killpg")
_UNCHANGED_KEYWORDS = ("stacklevel",)  # which line a warning names


@dataclass(frozen=True)
class Change:
    """One node's text replaced by another.

    `start` and `end` are offsets in the source's UTF-8 bytes. `lines` are the first and last line of the statement, or
    of the head of a compound statement. `scope` is the function or class around it, empty at the module's level. `once`
    says that the place runs once in a process at most: when the module is imported, or in a cached function. `number`
    tells equal changes of one scope apart.
    """

    kind: str
    start: int
    end: int
    before: str
    after: str
    lines: tuple[int, int]
    scope: str
    once: bool
    number: int = 0

    def applied(self, source: str) -> str:
        """The source with this change."""
        text = source.encode()
        return (text[: self.start] + self.after.encode() + text[self.end :]).decode()

    def line(self, source: str) -> int:
        """The line in which the changed text begins, from 1."""
        return source.encode()[: self.start].count(b"\n") + 1


def changes(source: str) -> list[Change]:
    """Every change that a source offers, in the order of its text."""
    text = _Text(source)
    found = (
        Change(kind, start, end, text.between(start, end), after, place.lines, place.scope, place.once)
        for place in _places(ast.parse(source))
        for kind, start, end, after in _OFFERS.get(type(place.node), _nothing)(place.node, text)
    )
    counted: Counter[tuple[str, str, str, str]] = Counter()
    numbered = []
    for change in sorted(found, key=lambda change: (change.start, change.end, change.after)):
        same = (change.scope, change.kind, change.before, change.after)
        numbered.append(replace(change, number=counted[same]))
        counted[same] += 1
    return numbered


class _Text:
    """A source by the positions that the syntax tree gives: lines from 1, columns in UTF-8 bytes."""

    def __init__(self, source: str) -> None:
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: Any) -> int:
        return self._starts[node.lineno - 1] + int(node.col_offset)

    def end(self, node: Any) -> int:
        return self._starts[node.end_lineno - 1] + int(node.end_col_offset)

    def between(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def operator(self, left: ast.expr, right: ast.expr, pattern: re.Pattern[str]) -> tuple[int, int, str] | None:
        """Start, end and words of what stands between two operands; None if a comment is between them."""
        start = self.end(left)
        words = self.between(start, self.start(right))
        match = pattern.search(words)
        if match is None or "#" in words or not words.isascii():
            return None
        return start + match.start(), start + match.end(), match.group()


@dataclass(frozen=True)
class _Place:
    node: ast.AST
    lines: tuple[int, int]
    scope: str
    once: bool


def _places(tree: ast.Module) -> Iterator[_Place]:
    """Every node that may change."""
    todo = [_Place(tree, (1, 1), "", True)]
    while todo:
        place = todo.pop()
        if not _is_left_alone(place.node):
            yield place
            todo += [_placed(child, place) for child in _children(place.node)]


def _placed(node: ast.AST, parent: _Place) -> _Place:
    lines = _lines(node) if isinstance(node, ast.stmt | ast.excepthandler) else parent.lines
    scope, once = parent.scope, parent.once
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return _Place(node, lines, f"{scope}.{node.name}".lstrip("."), once)
    if isinstance(parent.node, ast.FunctionDef | ast.AsyncFunctionDef) and node in parent.node.body:
        once = any(_name(decorator) in _CACHES for decorator in parent.node.decorator_list)
    if isinstance(parent.node, ast.Lambda) and node is parent.node.body:
        once = False
    return _Place(node, lines, scope, once)


def _lines(statement: ast.stmt | ast.excepthandler) -> tuple[int, int]:
    body = getattr(statement, "body", None)
    if not body:
        return statement.lineno, statement.end_lineno or statement.lineno
    return statement.lineno, max(statement.lineno, body[0].lineno - 1)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    left_out = {
        id(child) for field in ("annotation", "returns") if isinstance(child := getattr(node, field, None), ast.AST)
    }
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        left_out |= {id(child) for child in (node.test, *node.body)}
    return (child for child in ast.iter_child_nodes(node) if id(child) not in left_out)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):  # a signal to the wrong process is no fault that a test should look for
        return _name(node.func) in _SIGNALS
    if isinstance(node, ast.keyword):
        return node.arg in _UNCHANGED_KEYWORDS
    return isinstance(node, ast.Raise | ast.JoinedStr)


def _name(node: ast.AST) -> str:
    """The last part of a dotted name, also of one that is called."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


_Offers = Iterator[tuple[str, int, int, str]]  # kind, start, end, the text instead


def _nothing(_node: ast.AST, _text: _Text) -> _Offers:
    yield from ()


def _comparisons(node: ast.Compare, text: _Text) -> _Offers:
    operands = [node.left, *node.comparators]
    for left, right in pairwise(operands):
        if found := text.operator(left, right, _COMPARISON):
            start, end, words = found
            for other in COMPARISONS[" ".join(words.split())]:
                yield "comparison", start, end, other


def _junctions(node: ast.BoolOp, text: _Text) -> _Offers:
    for left, right in pairwise(node.values):
        if found := text.operator(left, right, _JUNCTION):
            start, end, word = found
            yield "and, or", start, end, SWAPPED[word]


def _sums(node: ast.BinOp, text: _Text) -> _Offers:
    yield from _sum(node.op, node.left, node.right, text)


def _sums_in_place(node: ast.AugAssign, text: _Text) -> _Offers:
    yield from _sum(node.op, node.target, node.value, text)


def _sum(operation: ast.operator, left: ast.expr, right: ast.expr, text: _Text) -> _Offers:
    if not isinstance(operation, ast.Add | ast.Sub) or _is_text(left) or _is_text(right):
        return  # no text can be subtracted, so every test would fail
    if found := text.operator(left, right, _SIGN):
        start, end, sign = found
        yield "sum", start, end, SWAPPED[sign]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _negations(node: ast.UnaryOp, text: _Text) -> _Offers:
    if isinstance(node.op, ast.Not):
        start, end = text.start(node), text.end(node)
        yield "not", start, end, text.between(start, end).removeprefix("not").lstrip()


def _numbers(node: ast.Constant, text: _Text) -> _Offers:
    if type(node.value) in (int, float):
        for other in (node.value + 1, node.value - 1):  # type: ignore[operator]
            yield "number", text.start(node), text.end(node), repr(other)


def _returned(node: ast.Return, text: _Text) -> _Offers:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "return", text.start(node.value), text.end(node.value), "None"


def _calls(node: ast.Expr, text: _Text) -> _Offers:
    if isinstance(node.value, ast.Call) and not _is_left_alone(node.value):
        yield "call", text.start(node), text.end(node), "pass"


def _branches(node: ast.If | ast.IfExp, text: _Text) -> _Offers:
    if _name(node.test) != "TYPE_CHECKING" and not isinstance(node.test, ast.Constant):
        for always in ("True", "False"):
            yield "if", text.start(node.test), text.end(node.test), always


def _extremes(node: ast.Call, text: _Text) -> _Offers:
    name = _name(node.func)
    if name in ("min", "max"):
        end = text.end(node.func)
        yield "min, max", end - len(name), end, SWAPPED[name]


def _breaks(node: ast.Break | ast.Continue, text: _Text) -> _Offers:
    yield "loop", text.start(node), text.end(node), "continue" if isinstance(node, ast.Break) else "break"


_OFFERS: dict[type[ast.AST], Callable[[Any, _Text], _Offers]] = {
    ast.Compare: _comparisons,
    ast.BoolOp: _junctions,
    ast.BinOp: _sums,
    ast.AugAssign: _sums_in_place,
    ast.UnaryOp: _negations,
    ast.Constant: _numbers,
    ast.Return: _returned,
    ast.Expr: _calls,
    ast.If: _branches,
    ast.IfExp: _branches,
    ast.Call: _extremes,
    ast.Break: _breaks,
    ast.Continue: _breaks,
}
