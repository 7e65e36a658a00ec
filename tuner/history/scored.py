"""The winner's results on the test split in `best/`, as far as its files can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tuner.history.event_lines import DEEPEST, finite, is_count, nested_deeper
from tuner.storage.folder import Folder
from tuner.text import in_utf8

BEST = "best"
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


def read_scored(folder: Folder, name: str) -> tuple[Any, str | None]:
    """The content of a file of `best/`, None if the run doesn't have it; and a sentence if it can't be used."""
    try:
        content = json.loads(folder.read(f"{BEST}/{name}").decode(), parse_constant=lambda _: None)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return None, f"{BEST}/{name} can't be read ({error.strerror or error}); it is left out"
    except (ValueError, RecursionError):
        return None, f"{BEST}/{name} isn't JSON; it is left out"
    if nested_deeper(content, DEEPEST) or not _CHECKS[name](content):
        return None, f"{BEST}/{name} does not describe a winner; it is left out"
    return in_utf8(content), None


def _are_metrics(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and isinstance(content.get("trial", ""), str)
        and isinstance(content.get("metrics", {}), dict)
        and isinstance(refit := content.get("refit", {}), dict)
        and _is_of_own(refit.get("own"))
        and _is_average(content.get("combined"))
        and isinstance(images := content.get("images", {}), dict)
        and all(map(is_count, images.values()))
        and isinstance(intervals := content.get("intervals", {}), dict)
        and all(map(_is_interval, intervals.values()))
    )


def _is_of_own(content: Any) -> bool:
    """Whether it is a valid comparison of the winner's own network with its refit, or null."""
    return content is None or (
        isinstance(content, dict)
        and isinstance(metric := content.get("metric", "accuracy"), str)
        and all(finite(content.get(name)) for name in (f"test_{metric}", "gain", "error"))
        and is_count(content.get("validation_images", 0))
    )


def _is_average(content: Any) -> bool:
    """Whether it says what averaging several trials gains, or only that nothing is averaged, or null."""
    if content is None:
        return True
    if not isinstance(content, dict) or not isinstance(content.get("in"), bool):
        return False
    if set(content) <= {"asked", "in", "failed"}:
        return not content["in"] and isinstance(content.get("failed", ""), str)
    return (
        all(finite(content.get(name)) for name in ("loss", "gain", "error", "better", "better_error"))
        and is_count(content.get("images"))
        and is_count(content.get("candidates"))
        and (not content["in"] or (_are_members(content.get("members")) and _has_own(content)))
    )


def _are_members(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(one, dict) and isinstance(one.get("trial"), str) and finite(one.get("share")) for one in content
    )


def _has_own(content: Any) -> bool:
    cost = content.get("cost")
    names = ("milliseconds", "own_milliseconds", "bytes", "own_bytes")
    return (
        content.get("own") is not None
        and _is_of_own(content["own"])
        and isinstance(cost, dict)
        and all(finite(cost.get(name)) for name in names)
        and _are_classes(content.get("classes", []))
    )


def _are_classes(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(one, dict)
        and isinstance(one.get("class"), str)
        and is_count(one.get("images"))
        and all(finite(one.get(name)) for name in ("own", "average"))
        for one in content
    )


def _is_interval(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and all(finite(content.get(name)) for name in ("low", "high"))
        and isinstance(content.get("method"), str)
    )


def _is_confusion(content: Any) -> bool:
    if not isinstance(content, dict) or not {"classes", "counts"} <= set(content):
        return False
    classes, counts = content["classes"], content["counts"]
    return (
        isinstance(classes, list)
        and all(isinstance(label, str) for label in classes)
        and isinstance(counts, list)
        and len(counts) == len(classes)
        and all(isinstance(row, list) and len(row) == len(classes) and all(map(is_count, row)) for row in counts)
    )


def _are_mistakes(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(one, dict) and _is_mistake(one) for one in content)


def _is_mistake(one: dict[str, Any]) -> bool:
    return (
        set(MISTAKE) <= set(one)
        and is_count(one["index"])
        and all(isinstance(one[name], str) for name in ("label", "predicted", "image", "file") if name in one)
        and all(_is_image(one[name]) for name in ("image", "saliency") if name in one)
        and ("confidence" not in one or finite(one["confidence"]))
    )


def _is_image(value: object) -> bool:
    return isinstance(value, str) and _BASE64.fullmatch(value) is not None


def _is_calibration(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and all(finite(content.get(name)) for name in CALIBRATED)
        and all(name in content and (content[name] is None or finite(content[name])) for name in SCALED)
        and all(_are_bins(content.get(name)) for name in ("bins", "scaled_bins"))
    )


def _are_bins(bins: object) -> bool:
    return isinstance(bins, list) and all(
        isinstance(one, dict)
        and is_count(one.get("images"))
        and one["images"] > 0
        and all(finite(one.get(name)) and 0 <= one[name] <= 1 for name in BIN)
        for one in bins
    )


def _are_labels(content: Any) -> bool:
    if not isinstance(content, dict) or not isinstance(labels := content.get("labels"), list):
        return False
    counts = (content.get(name) for name in ("hits", "answered", "having"))
    shares = content.get("thresholds"), content.get("average_precision")
    together = content.get("wrong_together")
    return (
        all(isinstance(label, str) for label in labels)
        and all(_are_of(each, len(labels), is_count) for each in counts)
        and all(_are_of(each, len(labels), lambda one: one is None or finite(one)) for each in shares)
        and _are_of(together, len(labels), lambda row: _are_of(row, len(labels), is_count))
    )


def _are_numbers(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and isinstance(content.get("name"), str)
        and isinstance(labels := content.get("labels"), list)
        and all(_are_of(content.get(name), len(labels), finite) for name in ("labels", "answers"))
    )


def _are_of(content: object, count: int, check: Callable[[Any], bool]) -> bool:
    """Whether it is a list of so many values that pass the check."""
    return isinstance(content, list) and len(content) == count and all(map(check, content))


_CHECKS: dict[str, Callable[[Any], bool]] = {
    METRICS: _are_metrics,
    CONFUSION: _is_confusion,
    MISTAKES: _are_mistakes,
    LEAST_SURE: _are_mistakes,
    CALIBRATION: _is_calibration,
    LABELS: _are_labels,
    NUMBERS: _are_numbers,
}
