"""Converts nested mappings to dotted names, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import SpaceError, shown
from tuner.space.domain import Domain, contains_domain
from tuner.space.foreign import own_domain
from tuner.space.values import is_recordable, plain, unrecordable


def entries_of(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """Domains and constants of a declared space by dotted name; raises SpaceError for what can't be written down."""
    try:
        entries = dict(_entries(declaration))
    except RecursionError as error:
        raise SpaceError(
            f"space needs dicts that don't contain themselves, got {shown(declaration)}; remove the one that does"
        ) from error
    for name, value in entries.items():
        if isinstance(value, range | Iterator) or getattr(value, "__name__", "") == "<lambda>":
            raise SpaceError(
                f"a constant needs to be plain, got {shown(value)} for {name!r}; use choice([...]) or "
                "sample_from(function)"
            )
        if not isinstance(value, Domain) and not is_recordable(value):
            raise SpaceError(unrecordable("a constant", value, name))
    return entries


def _entries(declaration: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, raw in declaration.items():
        if not isinstance(name, str) or not name or "." in name or not name.isprintable():
            raise SpaceError(
                f"a hyperparameter's name is a text without dots, got {shown(name)}; nest dicts instead of dots"
            )
        value = plain(own_domain(raw, prefix + name))
        if isinstance(value, Mapping) and value:
            yield from _entries(value, f"{prefix}{name}.")
        elif not isinstance(value, Domain) and contains_domain(value):
            raise SpaceError(
                f"a constant needs to be plain, got a domain inside {shown(value)} for {prefix + name!r}; name each one"
            )
        else:
            yield prefix + name, value


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with dotted names as nested mappings."""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *sections, name = path.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return nested
