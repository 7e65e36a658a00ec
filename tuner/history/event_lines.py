"""One event as a line of a file: how it is written with a checksum, and which lines are refused when reading.

A line is a JSON object of ASCII characters. Its last member is `"sum"`, eight hexadecimal digits: the CRC-32 of the
line's bytes without that member, `,"sum":"…"`. Lines of format 1 have none and are read without the check.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tuner.space.values import LARGEST_EXACT, recorded, value_of
from tuner.study.budget import LONGEST_TRIAL
from tuner.study.declaration import COMBINATIONS

Event = dict[str, Any]
EVENTS = "events"  # the folder of their files
DEEPEST = 100  # nested brackets; at Python's own limit the program would end
LATEST = 9e9  # seconds since 1970, in the year 2255: tables and calendars can still hold it
VALUES = ("config", "configs", "learned", "arguments")  # fields that hold values of hyperparameters
MOST_SEEDS = 1000  # of one configuration
_SUM = re.compile(rb',"sum":"([0-9a-f]{8})"}$')
_HUGE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}")  # may be a number too large for a float
_TRIAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")  # it is used as a folder's name
_OUTCOMES = ("completed", "stopped", "failed")


class DamagedLineError(ValueError):
    """A line that can't be used; the message says why."""


def in_json(event: Event) -> Event:
    """The event as plain data for JSON, with its hyperparameters as `recorded` has them."""
    return _with_each(event, recorded)


def with_values(event: Event) -> Event:
    """The event that `in_json` was given."""
    return _with_each(event, value_of)


def _with_each(event: Event, convert: Callable[[Any], Any]) -> Event:
    found = [name for name in VALUES if name in event]
    return event | {name: convert(event[name]) for name in found} if found else event


def written(event: Event) -> bytes:
    """The event, as `in_json` has it, as a line with its checksum, without the line's end."""
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode()
    return b'%b,"sum":"%08x"}' % (body[:-1], zlib.crc32(body))


def parsed(line: bytes) -> Event:
    """The event of a line, with fields of the right types for its kind; raises DamagedLineError.

    Hyperparameters have the values that the trial was given.
    """
    found = _SUM.search(line)
    if found is not None:
        line = line[: found.start()] + b"}"
        if zlib.crc32(line) != int(found[1], 16):
            raise DamagedLineError("its checksum doesn't fit")
    event = _decoded(line)
    wrong = flaw(event)
    if wrong is None and found is None and "sum" in event:
        wrong = "its checksum is cut off or not at its end"
    if wrong is not None:
        raise DamagedLineError(wrong)
    checked: Event = event
    return with_values(checked)


def _decoded(line: bytes) -> Any:
    try:
        event = json.loads(line.decode(), parse_constant=_no_number, parse_float=_HUGE.search(line) and _number)
    except UnicodeDecodeError as error:
        raise DamagedLineError("it isn't UTF-8") from error
    except RecursionError as error:
        raise DamagedLineError(f"it is nested more than {DEEPEST} deep") from error
    except ValueError as error:
        raise DamagedLineError("it isn't JSON") from error
    if line.count(b"[") + line.count(b"{") > DEEPEST and nested_deeper(event, DEEPEST):
        raise DamagedLineError(f"it is nested more than {DEEPEST} deep")
    return event


def _number(text: str) -> float | None:
    """A number, unless it is too large for a float."""
    value = float(text)
    return value if math.isfinite(value) else None


def nested_deeper(value: Any, most: int) -> bool:
    """Whether lists and dicts are nested more than `most` deep."""
    level = [value]
    for _ in range(most + 1):
        level = [inner for one in level if isinstance(one, list | dict) for inner in _members(one)]
    return bool(level)


def _members(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _no_number(constant: str) -> None:
    """NaN and infinities aren't JSON: they are read as null."""


# What each kind's fields are


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def is_count(value: object) -> bool:
    """Whether it is a whole number from 0 on that is exact as a float, too."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST_EXACT


def _is_epoch(value: object) -> bool:
    """Whether a trial can have so many epochs: the terminal and pages go through them one by one."""
    return is_count(value) and isinstance(value, int) and value <= LONGEST_TRIAL


def _is_some(value: object) -> bool:
    return is_count(value) and value != 0


def _is_repeats(value: object) -> bool:
    """Whether it is a valid number of seeds for training a configuration."""
    return is_count(value) and isinstance(value, int) and 1 <= value <= MOST_SEEDS


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LATEST


def is_mapping(value: object) -> bool:
    """Whether it is an object of JSON."""
    return isinstance(value, dict)


def _is_outcome(value: object) -> bool:
    return value in _OUTCOMES if isinstance(value, str) else False


def _is_trial(value: object) -> bool:
    return isinstance(value, str) and _TRIAL.fullmatch(value) is not None


def _are_trials(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_trial, value))


def _is_ending(value: object) -> bool:
    """Whether it has the fields of the event that ends a trial."""
    texts = ("cause", "message", "by")
    return (
        isinstance(value, dict)
        and _is_outcome(value.get("status"))
        and all(map(_is_text_or_none, map(value.get, texts)))
    )


def _is_combination(value: object) -> bool:
    return value in COMBINATIONS


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_mappings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _is_device(value: object) -> bool:
    """Whether it describes the devices that a driver's trials shared, as `tuner.loop.packing` reads them."""
    if not isinstance(value, dict):
        return False
    return _is_text(value.get("model")) and isinstance(value.get("overlaps"), bool)


Check = Callable[[object], bool]
_EPOCH: dict[str, Check] = {"trial": _is_trial, "epoch": _is_epoch}
_ORDER: dict[str, Check] = {
    **dict.fromkeys(("order", "verb", "by", "message"), _is_text),
    "arguments": is_mapping,
}
_NEEDED: Mapping[str, Mapping[str, Check]] = {
    "trial_started": {"trial": _is_trial, "number": is_count, "config": is_mapping, "seed": is_count},
    "trial_placed": {"trial": _is_trial, "host": _is_text, "pid": is_count, "devices": _are_texts},
    "trial_handed": {"trial": _is_trial, "worker": _is_text},
    "features_computed": {
        **{"trial": _is_trial, "model": _is_text, "images": is_count, "total": is_count},
        **{"seconds": _is_time, "seconds_left": _is_time},
    },
    "epoch_reported": {**_EPOCH, "metrics": is_mapping, "decision": _is_text},
    "checkpoint_saved": _EPOCH,
    "checkpoint_deleted": _EPOCH,
    "trial_paused": {"trial": _is_trial},
    "trial_resumed": {"trial": _is_trial},
    "trial_lost": {"trial": _is_trial, "message": _is_text},
    "trial_retried": {"trial": _is_trial, "cause": _is_text, "message": _is_text},
    "retry_requested": {"trials": _are_trials},
    "confirmation_requested": {"trials": _are_trials, "seeds": _is_repeats},
    "combination_requested": {"how": _is_combination},
    "trial_ended": {"trial": _is_trial, "status": _is_outcome},
    "notice": {"message": _is_text},
    "study_ended": {"reason": _is_text_or_none},
    "configuration_refused": {"config": is_mapping},
    **dict.fromkeys(("order_obeyed", "order_refused"), _ORDER),
}
_PACKED: Mapping[str, Check] = {"devices": lambda value: isinstance(value, list) and all(map(_is_device, value))}
_PLACED: Mapping[str, Check] = {
    "device": _is_text,
    "alike": _is_text,
    "predicted_bytes": lambda value: value is None or finite(value),
}
_STEERED: Mapping[str, Check] = {"limits": is_mapping, "concurrency": is_count}
_ALONE: Mapping[str, Check] = {"alone": _is_bool, "ended_by": _is_text_or_none}
_OPTIONAL: Mapping[str, Mapping[str, Check]] = {
    "study_started": {
        **{"study_file": _is_text, "study_version": is_count, "max_epochs": _is_epoch, "learned": _are_mappings},
        **_PACKED,
        **_STEERED,
    },
    "study_resumed": {
        **{"study_file": _is_text, "study_version": is_count, "max_epochs": _is_epoch, "search_on": _is_bool},
        **_PACKED,
        **_STEERED,
    },
    "trial_started": {
        **{"from_epoch": _is_epoch, "order": _is_text, "repeats": _is_trial, "confirms": _is_bool},
        **{"refits": _is_trial, "refit_epochs": _is_epoch},
        **_PLACED,
    },
    **dict.fromkeys(
        (
            *("confirmation_requested", "refit_requested", "refit_undone"),
            *("combination_requested", "combination_undone"),
        ),
        _ALONE,
    ),
    "trial_resumed": {"from_epoch": _is_epoch, **_PLACED},
    "configuration_refused": {"order": _is_text, "repeats": _is_trial},
    "order_obeyed": {"config": is_mapping, "trials": _are_trials, "seeds": _is_repeats},
    "trial_placed": {"gpus": _are_texts, "waited": _is_time, "together": _is_some},
    "trial_lost": {"cause": _is_text_or_none, "traceback": _is_text_or_none},
    "trial_retried": {"traceback": _is_text_or_none, "alone": _is_bool, "used": _is_bool},
    "epoch_reported": {"ending": _is_ending, "ago": _is_time, "read": _are_texts, "absent": _are_texts},
    "trial_ended": dict.fromkeys(("cause", "message", "traceback", "by"), _is_text_or_none),
    "study_interrupted": {"reason": _is_text_or_none},
    "notice": {"code": _is_text_or_none, "configs": _are_mappings},
}


def flaw(event: object) -> str | None:
    """What is wrong with an event considered alone, in a few words; None for a valid one and for unknown kinds."""
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return "it is no event"
    if not _is_time(event.get("time")):
        return f"its time is {_told(event, 'time')}"
    kind = event["event"]
    for name, is_sound in _NEEDED.get(kind, {}).items():
        if name not in event or not is_sound(event[name]):
            return f"{kind} has {name} {_told(event, name)}"
    for name, is_sound in _OPTIONAL.get(kind, {}).items():
        if name in event and not is_sound(event[name]):
            return f"{kind} has {name} {_told(event, name)}"
    return None


def introduces(event: Event) -> bool:
    """Whether the event is the first that names its trial."""
    return bool(event["event"] == "trial_started")


def names_trial(event: Event) -> bool:
    """Whether the event is about a trial that an earlier one has started."""
    return "trial" in _NEEDED.get(event["event"], {}) and not introduces(event)


def _told(event: Event, name: str) -> str:
    if name not in event:
        return "missing"
    value = event[name]
    return "a number out of range" if isinstance(value, int) and abs(value) >= LARGEST_EXACT else cut(value)


def cut(value: object) -> str:
    """The first characters of a foreign value, in ASCII."""
    text = ascii(value)
    return text if len(text) <= 40 else text[:40] + "…"


def finite(value: object) -> bool:
    """Whether a reported value is a number that can be compared."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False
