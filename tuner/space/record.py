"""A space as plain data, for files that outlive the study file, and back."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tuner.errors import SpaceError
from tuner.space import constructors
from tuner.space.domain import Domain
from tuner.space.nesting import nest
from tuner.space.space import Space
from tuner.space.values import recorded, value_of

KINDS = (
    "uniform",
    "quniform",
    "loguniform",
    "qloguniform",
    "randint",
    "qrandint",
    "lograndint",
    "qlograndint",
    "randn",
    "qrandn",
    "choice",
    "grid_search",
)


def space_record(space: Space) -> dict[str, Any]:
    """Each dotted name with its domain as the study file has it, and its conditions; or with its constant value."""
    record: dict[str, Any] = {}
    for name in space.names:
        domain = space.dimensions.get(name)
        if domain is None:
            record[name] = {"constant": recorded(space.constants[name])}
        else:
            conditions = {other: recorded(list(values)) for other, values in domain.conditions}
            record[name] = {"domain": domain.describe()} | ({"when": conditions} if conditions else {})
    return record


def recorded_space(record: Mapping[str, Any]) -> Space:
    """The space that `space_record` wrote, as far as plain data can express it.

    Left out are functions (`sample_from`), choices of things that aren't plain, and conditions on either.
    """
    found: dict[str, Any] = {}
    for name, entry in record.items():
        if "constant" in entry:
            found[name] = value_of(entry["constant"])
        elif (domain := recorded_domain(entry["domain"])) is not None:
            found[name] = domain
    for name, entry in record.items():
        conditions = {o: value_of(values) for o, values in entry.get("when", {}).items() if _names(found, name, o)}
        if name in found and conditions:
            found[name] = _with_conditions(found[name], conditions)
    return Space(nest(found))


def _names(found: Mapping[str, Any], name: str, other: str) -> bool:
    """Whether a condition's name is one of the space: a sibling, or from the top."""
    section = name.rpartition(".")[0]
    return other in found or f"{section}.{other}" in found


def _with_conditions(domain: Domain, conditions: Mapping[str, list[Any]]) -> Domain:
    for other, values in conditions.items():
        domain = domain.when(**{other: values})
    return domain


def recorded_domain(text: str) -> Domain | None:
    """The domain that `describe` wrote; None if it isn't a known one of plain values."""
    try:
        kind, arguments = call_in(text)
        domain = getattr(constructors, kind)(*arguments)
        domain.validate(kind)
    except (ValueError, TypeError, SpaceError):
        return None
    return domain if isinstance(domain, Domain) else None


def call_in(text: str) -> tuple[str, list[Any]]:
    """Kind and arguments of a domain that `describe` wrote; raises ValueError if they aren't known and plain."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(text) from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in KINDS:
        raise ValueError(text)
    return call.func.id, [ast.literal_eval(_Literals().visit(argument)) for argument in call.args]


class _Literals(ast.NodeTransformer):
    """Replaces what the `repr` of a plain value has although it is no literal: `inf`, `frozenset({1})`."""

    _names: Mapping[str, float] = {"inf": math.inf, "nan": math.nan}
    _calls: Mapping[str, Callable[..., Any]] = {"frozenset": frozenset, type(Path()).__name__: Path}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._names[node.id]) if node.id in self._names else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        kind = self._calls.get(node.func.id) if isinstance(node.func, ast.Name) else None
        return node if kind is None else ast.Constant(kind(*map(ast.literal_eval, node.args)))
