"""The winner's metrics as text, with their uncertainty."""

from __future__ import annotations

from typing import Any

from tuner.history.event_lines import finite
from tuner.results import findings
from tuner.results.run import RecordedRun
from tuner.results.wording import short
from tuner.trial.tasks import SHARES, USUAL

STANDARD_ERROR = "_se"  # suffix of the name of a metric's standard error in a cross-validation
NBSP = "\N{NO-BREAK SPACE}"  # no line break there on a narrow page
MOST_CLASSES = 20  # of which the gain is shown
NORMAL_90 = 1.645  # 90 % lie within so many standard errors on either side of the mean


def epoch_metrics(run: RecordedRun) -> list[tuple[str, str]]:
    """The winner's metrics at its epoch; in a cross-validation with standard error and 90 % interval."""
    metrics = {name: value for name, value in run.best_metrics.items() if not name.startswith("test_")}
    errors = {f"{name}{STANDARD_ERROR}" for name in metrics} & metrics.keys()
    told = []
    for name, value in metrics.items():
        if value is None or name in errors:
            continue
        error = metrics.get(f"{name}{STANDARD_ERROR}")
        spread = ""
        if finite(value) and error is not None and finite(error):
            low, high = short(value - NORMAL_90 * error), short(value + NORMAL_90 * error)
            spread = f" ± {error:.2g} (90{NBSP}% interval {low} to {high})"
        told.append((name, short(value) + spread))
    return told


def class_gains(run: RecordedRun) -> list[dict[str, Any]]:
    """For each class of the test images what an average of several trials gains: the greatest changes, the gains first.

    Each with "class", "images", and the shares that the winner's network "own" and the "average" answer right; empty if
    `best/` has no average.
    """
    classes: list[dict[str, Any]] = list((run.average or {}).get("classes", []))
    greatest = sorted(classes, key=lambda one: -abs(one["average"] - one["own"]))[:MOST_CLASSES]
    return sorted(greatest, key=lambda one: one["own"] - one["average"])


def test_metrics(run: RecordedRun) -> list[tuple[str, str]]:
    """The winner's test metrics, with 95 % intervals or, from older runs, shares with their errors."""
    images, intervals = run.images.get("test"), run.test_intervals
    told = []
    for name, value in run.best_metrics.items():
        if name.startswith("test_") and isinstance(value, int | float):
            error = f" ± {findings.share_error(value, images):.2g}" if name in SHARES and images else ""
            if name in intervals:
                low, high, _ = intervals[name]
                error = f" (95{NBSP}% interval {short(low)} to {short(high)})"
            told.append((name, short(value) + error))
    return told


def first_test_metric(run: RecordedRun) -> tuple[str, str] | None:
    """The most important of `test_metrics`; None if there are none."""
    told, usual = test_metrics(run), {name.replace("val_", "test_", 1) for name in USUAL}
    return next((pair for pair in told if pair[0] in usual), told[0] if told else None)
