"""The winner's results on the test split in `best/`, as far as its files can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tuner.history.event_lines import DEEPEST, Check, finite, is_count, is_mapping, nested_deeper
from tuner.storage.folder import Folder
from tuner.text import in_utf8

BEST = "best"
UNSCORED = "unscored"  # in metrics.json: why a network of the front wasn't scored
FRONT = "front"  # folder of the networks on the front of two metrics, each in a folder like `best`
METRICS, CONFUSION, MISTAKES = "metrics.json", "confusion_matrix.json", "mistakes.json"
LEAST_SURE, CALIBRATION = "least_sure.json", "calibration.json"  # runs of older versions don't have them
LABELS, NUMBERS = (
    "labels.json",
    "numbers.json",
)  # of several labels, and of a number, instead of confusion and calibration
CALIBRATED = ("ece", "accuracy", "confidence")
SCALED = ("temperature", "scaled_ece")  # null if no validation images were left to fit the temperature
BIN = ("confidence", "accuracy")
MISTAKE = ("index", "label", "predicted", "image")  # and for classes the confidence
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*")


def read_scored(folder: Folder, name: str, best: str = BEST) -> tuple[Any, str | None]:
    """The content of a file of `best/`, None if the run doesn't have it; and a sentence if it can't be used."""
    try:
        content = json.loads(folder.read(f"{best}/{name}").decode(), parse_constant=lambda _: None)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return None, f"{best}/{name} can't be read ({error.strerror or error}); it is left out"
    except (ValueError, RecursionError):
        return None, f"{best}/{name} isn't JSON; it is left out"
    if nested_deeper(content, DEEPEST) or not _CHECKS[name](content):
        return None, f"{best}/{name} does not describe a winner; it is left out"
    return in_utf8(content), None


# What the files are


def _record(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Whether it is an object with sound values: it has the needed names, and may have the optional ones."""
    checks = {**needed, **(optional or {})}

    def is_sound(content: object) -> bool:
        return (
            isinstance(content, dict)
            and needed.keys() <= content.keys()
            and all(check(content[name]) for name, check in checks.items() if name in content)
        )

    return is_sound


def _each(check: Check) -> Check:
    """Whether it is a list of sound values."""
    return lambda content: isinstance(content, list) and all(map(check, content))


def _each_value(check: Check) -> Check:
    """Whether it is an object with sound values, whatever their names."""
    return lambda content: isinstance(content, dict) and all(map(check, content.values()))


def _or_null(check: Check) -> Check:
    return lambda content: content is None or check(content)


def _is_text(content: object) -> bool:
    return isinstance(content, str)


def _is_share(content: Any) -> bool:
    return finite(content) and bool(0 <= content <= 1)


def _is_image(content: object) -> bool:
    return isinstance(content, str) and _BASE64.fullmatch(content) is not None


def _is_of_own(content: Any) -> bool:
    """Whether it compares the winner's own network with what is shipped in its place; older runs name no metric."""
    is_sound = _record({"gain": finite, "error": finite}, {"metric": _is_text, "validation_images": is_count})
    return is_sound(content) and finite(content.get(f"test_{content.get('metric', 'accuracy')}"))


def _is_average(content: Any) -> bool:
    """Whether it says what averaging or scaling gains, or only that nothing is averaged."""
    if not isinstance(content, dict) or not isinstance(content.get("in"), bool):
        return False
    if set(content) <= {"asked", "metric", "in", "failed", "epochs"}:
        return not content["in"] and isinstance(content.get("failed", ""), str)
    return _GAIN(content) and (not content["in"] or _IN_USE(content))


def _are_of(content: object, count: int, check: Check) -> bool:
    """Whether it is a list of so many sound values."""
    return isinstance(content, list) and len(content) == count and all(map(check, content))


def _is_confusion(content: Any) -> bool:
    if not _record({"classes": _each(_is_text)})(content):
        return False
    count = len(content["classes"])
    return _are_of(content.get("counts"), count, lambda row: _are_of(row, count, is_count))


def _are_labels(content: Any) -> bool:
    if not _record({"labels": _each(_is_text)})(content):
        return False
    count = len(content["labels"])
    counts = (content.get(name) for name in ("hits", "answered", "having"))
    shares = content.get("thresholds"), content.get("average_precision")
    return (
        all(_are_of(each, count, is_count) for each in counts)
        and all(_are_of(each, count, _or_null(finite)) for each in shares)
        and _are_of(content.get("wrong_together"), count, lambda row: _are_of(row, count, is_count))
    )


def _are_numbers(content: Any) -> bool:
    is_sound = _record({"name": _is_text, "labels": _each(finite), "answers": _each(finite)})
    return is_sound(content) and len(content["labels"]) == len(content["answers"])


def _finite(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, finite)


_GAIN = _record(
    {**_finite("loss", "gain", "error", "better", "better_error"), "images": is_count, "candidates": is_count}
)
_IN_USE = _record(
    {
        "members": _each(_record({"trial": _is_text, "share": finite}, {"scale": finite})),
        "own": _is_of_own,
        "cost": _record(_finite("milliseconds", "own_milliseconds", "bytes", "own_bytes")),
    },
    {"classes": _each(_record({"class": _is_text, "images": is_count, **_finite("own", "average")}))},
)
_METRICS = _record(
    {},
    {
        "trial": _is_text,
        "metrics": is_mapping,
        "refit": _record({}, {"own": _or_null(_is_of_own)}),
        "combined": _or_null(_is_average),
        "images": _each_value(is_count),
        "intervals": _each_value(_record({**_finite("low", "high"), "method": _is_text})),
    },
)
_MISTAKES = _each(
    _record(
        {"index": is_count, "label": _is_text, "predicted": _is_text, "image": _is_image},
        {"file": _is_text, "saliency": _is_image, "confidence": finite},
    )
)
_BINS = _each(_record({"images": lambda count: is_count(count) and count != 0, **dict.fromkeys(BIN, _is_share)}))
_CHECKS: dict[str, Check] = {
    METRICS: _METRICS,
    CONFUSION: _is_confusion,
    MISTAKES: _MISTAKES,
    LEAST_SURE: _MISTAKES,
    CALIBRATION: _record(
        {**_finite(*CALIBRATED), **dict.fromkeys(SCALED, _or_null(finite)), "bins": _BINS, "scaled_bins": _BINS}
    ),
    LABELS: _are_labels,
    NUMBERS: _are_numbers,
}
