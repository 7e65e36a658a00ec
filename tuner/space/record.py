"""A space as plain data, for files that outlive the study file, and back."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tuner.errors import SpaceError
from tuner.space import constructors
from tuner.space.domain import Domain
from tuner.space.nesting import nest
from tuner.space.space import Space

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
            record[name] = {"constant": space.constants[name]}
        else:
            conditions = {other: list(values) for other, values in domain.conditions}
            record[name] = {"domain": domain.describe()} | ({"when": conditions} if conditions else {})
    return record


def recorded_space(record: Mapping[str, Any]) -> Space:
    """The space that `space_record` wrote, as far as plain data can express it.

    Left out are functions (`sample_from`), choices of things that aren't plain, and conditions on either.
    """
    found: dict[str, Any] = {}
    for name, entry in record.items():
        if "constant" in entry:
            found[name] = entry["constant"]
        elif (domain := _parse(entry["domain"])) is not None:
            found[name] = domain
    for name, entry in record.items():
        conditions = {other: values for other, values in entry.get("when", {}).items() if _names(found, name, other)}
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


def _parse(text: str) -> Domain | None:
    """The domain that `describe` wrote; None if it isn't a known one of plain values."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in KINDS:
            return None
        arguments = [ast.literal_eval(argument) for argument in call.args]
        domain = getattr(constructors, call.func.id)(*arguments)
        domain.validate(call.func.id)
    except (SyntaxError, ValueError, TypeError, SpaceError):
        return None
    return domain if isinstance(domain, Domain) else None
