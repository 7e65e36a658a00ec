"""One order to a search, as a JSON file describes it.

    {"verb": "set", "arguments": {"trials": 50}}

is enough for a file that is written by hand. Those that commands write also have `id` (the file's name), `by` and
`time` (seconds since 1970).
"""

from __future__ import annotations

import getpass
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import StudyError, did_you_mean, shown
from tuner.history.event_lines import DEEPEST, LATEST, MOST_SEEDS, finite, nested_deeper
from tuner.space.values import LARGEST_EXACT, is_recordable, unrecordable, value_of
from tuner.study.budget import LIMITS, Quantity

LARGEST_BYTES = 65_536
LONGEST_NOTE = 10_000  # characters
LONGEST_NAME = 200
MOST_CONFIRMED = 1000  # configurations
BY_HAND = "a file in the inbox"


@dataclass(frozen=True)
class Order:
    """An order: a verb with its arguments, which are valid in themselves; `time` in seconds since 1970.

    `file` is its name in the inbox.
    """

    id: str
    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    by: str = BY_HAND
    time: float = 0.0
    file: str = ""


@dataclass(frozen=True)
class Malformed:
    """A file that is not a valid order, and the reason in a sentence."""

    id: str
    problem: str
    time: float = 0.0
    file: str = ""


def sender() -> str:
    """`user@host` of this process, as far as they are known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without an entry, as in containers
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    return f"{user}@{platform.node() or 'unknown'}"[:LONGEST_NAME]


def parsed(name: str, content: bytes, modified: float) -> Order:
    """The order that a file of the inbox holds; `modified` is when it changed last, in seconds since 1970.

    Raises StudyError with rule, value and fix if something is wrong with it.
    """
    told = _decoded(content)
    _check_names("an order", told, ("id", "verb", "arguments", "by", "time"))
    by, time, arguments = told.get("by", BY_HAND), told.get("time", modified), told.get("arguments", {})
    if not isinstance(by, str):
        raise StudyError(f"an order needs a text as its by, got {shown(by)}; leave it out")
    if not finite(time) or not 0 <= time <= LATEST:
        raise StudyError(f"an order needs seconds since 1970 as its time, got {shown(time)}; leave it out")
    verb, sound = checked(told.get("verb"), arguments)
    return Order(identity(name, told.get("id"), modified), verb, sound, by[:LONGEST_NAME], float(time), name)


def identity(name: str, given: object, modified: float) -> str:
    """The order's id: its file's name, plus its time if the same name may be written again by hand."""
    stem = name.removesuffix(".json")
    return stem if given == stem else f"{stem}@{modified:.3f}"


def checked(verb: object, arguments: object) -> tuple[str, dict[str, Any]]:
    """A verb and its arguments, without those that are null.

    Raises StudyError for an unknown verb or argument, one that is missing, and one of another type.
    """
    if not isinstance(verb, str) or verb not in VERBS:
        known = did_you_mean(verb, VERBS) if isinstance(verb, str) else f"it has {', '.join(VERBS)}"
        raise StudyError(f"an order needs one of the known verbs, got {shown(verb)}; {known}")
    if not isinstance(arguments, Mapping):
        raise StudyError(f"an order needs an object as its arguments, got {shown(arguments)}; write {{}}")
    known_here = VERBS[verb]
    _check_names(repr(verb), arguments, known_here)
    given = {name: value for name, value in arguments.items() if value is not None}
    missing = [name for name in NEEDED.get(verb, ()) if name not in given]
    if missing or (verb == "set" and not given):
        wanted = missing[0] if missing else f"one of {', '.join(known_here)}"
        raise StudyError(f"{verb!r} needs {wanted}, got {shown(dict(arguments))}; add it to its arguments")
    return verb, {name: known_here[name](f"{verb} {name}", value) for name, value in given.items()}


# Types of arguments: each function takes the name and the value, and returns the value or raises StudyError


def _trial(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9:
        return f"{value:05d}"
    if not isinstance(value, str) or not value or len(value) > LONGEST_NAME:
        raise StudyError(f"{name} needs a trial's id, got {shown(value)}; `python -m tuner show RUN` lists them")
    return value.zfill(5) if value.isdecimal() else value


def _trials(name: str, value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise StudyError(f"{name} needs a list of trials' ids, got {shown(value)}; leave it out for all that failed")
    return [_trial(name, each) for each in value]


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise StudyError(f"{name} needs words, got {shown(value)}; write what you want to remember")
    if len(value) > LONGEST_NOTE:
        raise StudyError(f"{name} takes at most {LONGEST_NOTE:,} characters, got {len(value):,}; shorten it")
    return value


def _config(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise StudyError(f"{name} needs values of hyperparameters, got {shown(value)}; write lr=0.001")
    if not is_recordable(dict(value)):
        raise StudyError(unrecordable(name, value))
    return {key: value_of(one) for key, one in value.items()}


def _limit(quantity: Quantity) -> Callable[[str, object], float]:
    def check(name: str, value: object) -> float:
        quantity.check(name, value)
        if isinstance(value, int) and abs(value) >= LARGEST_EXACT:
            raise StudyError(f"{name} needs a number below {LARGEST_EXACT:,}, got {shown(value)}; use a lower one")
        return value  # type: ignore[return-value]

    return check


def _at_once(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 10**6:
        raise StudyError(f"{name} needs a whole number of at least 1, got {shown(value)}; use 1 or more")
    return value


def _few(most: int) -> Callable[[str, object], int]:
    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise StudyError(f"{name} needs a whole number from 1 to {most:,}, got {shown(value)}; use 3 or 5")
        return value

    return check


VERBS: Mapping[str, Mapping[str, Callable[[str, object], Any]]] = {
    "stop": {"trial": _trial},
    "pause": {},
    "set": {**{limit.name: _limit(limit.quantity) for limit in LIMITS}, "concurrency": _at_once},
    "try": {"config": _config},
    "retry": {"trials": _trials},
    "confirm": {"top": _few(MOST_CONFIRMED), "seeds": _few(MOST_SEEDS)},
    "note": {"text": _text, "trial": _trial},
}
NEEDED: Mapping[str, tuple[str, ...]] = {"try": ("config",), "note": ("text",)}


# Inside


def _decoded(content: bytes) -> dict[str, Any]:
    if len(content) > LARGEST_BYTES:
        raise StudyError(f"an order takes at most {LARGEST_BYTES:,} bytes, got more; shorten it")
    try:
        told = json.loads(content.decode("utf-8-sig"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise StudyError(f"an order needs to be JSON, got another file ({error}); write {_EXAMPLE}") from error
    if not isinstance(told, dict):
        raise StudyError(f"an order needs to be a JSON object, got {shown(told)}; write {_EXAMPLE}")
    if nested_deeper(told, DEEPEST // 2):
        raise StudyError(f"an order is nested at most {DEEPEST // 2} deep, got a deeper one; write {_EXAMPLE}")
    return told


_EXAMPLE = '{"verb": "set", "arguments": {"trials": 50}}'


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _check_names(what: str, given: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise StudyError(f"{what} has no {shown(name)}; {did_you_mean(str(name), known)}")
