"""Limits of a service as `tuner serve --limit NAME=VALUE` says them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from tuner.errors import StudyError, did_you_mean, shown
from tuner.service.model import Limits

NAMES = tuple(field.name for field in fields(Limits))
_MOST = {"page": Limits.page, "bundle_files": 1_000}  # the most that requests may contain at any server
_FROM_ZERO = ("external_at_once", "free_bytes")


def limits_of(told: Iterable[str]) -> Limits:
    """The limits with those that were given, each as NAME=VALUE. Raises StudyError."""
    found: dict[str, float] = {}
    for each in told:
        name, _, text = each.partition("=")
        if name not in NAMES:
            raise StudyError(f"--limit needs the name of a limit, got {shown(name)}; {did_you_mean(name, NAMES)}")
        found[name] = _number(name, text)
    return Limits(**found)  # type: ignore[arg-type]


def _number(name: str, text: str) -> float:
    default = getattr(Limits, name)
    least, most = 0 if name in _FROM_ZERO else 1, _MOST.get(name, 10**15)
    try:
        value = type(default)(text.replace("_", ""))
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        kind = "number" if isinstance(default, float) else "whole number"
        upto = f" to {most:,}" if name in _MOST else ""
        rule = f"--limit {name} needs a {kind} from {least}{upto}"
        raise StudyError(f"{rule}, got {shown(text)}; its default is {default}")
    found: float = value
    return found
