"""A number for each image, such as an age, an angle or a grade: regression."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.metrics import NamedMetric, by_name
from tuner.trial.tasks.task import Label, LabelError, Strata, Task

LARGEST = 1e30  # its square and those of many images are finite
LIKE_A_NUMBER = re.compile(r"([-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?)\s*[^\W\d]*[%°]?")  # maybe with a unit
RANGES = 10  # into which images are divided by their numbers, with equally many in each
FEWEST = 10  # images of a range, so that a cut holds a tenth of them out, and no larger share


@dataclass(frozen=True)
class OfNumbers(NamedMetric):
    """A metric of numbers."""

    computed_by: ClassVar[str] = "tuner.train.tasks.number:of_numbers"


class Number(Task):
    """A finite number for each image, in the user's unit."""

    name = "number"
    called = ("regression", "numbers", "numeric", "float", "continuous", "value")
    described = "a number"
    needed = "different numbers"
    seen_by = "most cells are numbers, some with a decimal point"
    metric = "val_mae"
    metric_reason = "the mean error in the numbers' own unit, which a few large errors don't decide"
    metrics: ClassVar = {"mae": "min", "rmse": "min", "r2": "max", "loss": "min"}
    paired = "mae"
    named: ClassVar = by_name(
        OfNumbers("spearman", "max", "spearman_corrcoef"),
        OfNumbers("pearson", "max", "pearson_corrcoef"),
    )
    other_words: ClassVar = {
        "mean_absolute_error": "mae",
        "root_mean_squared_error": "rmse",
        "r_squared": "r2",
        "mse": "rmse",
        "mean_squared_error": "rmse",
        "srcc": "spearman",
        "plcc": "pearson",
    }
    stratum = ("range", "ranges")
    alike, differing = "with the same number", "with different numbers"
    has_classes = False
    hyperparameters = (
        Hyperparameter(
            "loss",
            "categorical",
            "mse",
            "Loss of numbers, which are standardised for it: squared (`mse`), absolute (`mae`), or squared up to one "
            "standard deviation and absolute beyond (`huber`). For `task='number'` alone.",
            choices=("mse", "mae", "huber"),
            aliases=("criterion", "loss_function"),
            costs=False,
        ),
    )
    proposed: ClassVar = {
        "loss": ('choice(["mse", "mae"])', "absolute errors mind wrong numbers less, and are what val_mae counts")
    }
    unused = ("label_smoothing", "class_weights")
    training = "tuner.train.tasks.number:NumberTargets"
    inspection = "tuner.inspection.tasks.number:NumberAnswers"
    facts_file = "scale.json"
    plots = ("tuner.plots.number:predicted_against_true", "tuner.plots.number:errors_by_target")

    def is_of(self, cells: Sequence[str]) -> bool:
        """See `Task.is_of`: most are like numbers, and one has decimals, as classes seldom have."""
        each = {cell.strip() for cell in cells}
        alike = [cell for cell in each if LIKE_A_NUMBER.fullmatch(cell)]
        return 2 * len(alike) > len(each) and any("." in cell or "," in cell for cell in alike)

    def may_be_of(self, outputs: Sequence[str]) -> bool:
        """See `Task.may_be_of`: numbers, and more of them than a digit has."""
        return len(outputs) > RANGES and all(map(LIKE_A_NUMBER.fullmatch, outputs))

    def label(self, cells: Sequence[str], columns: Sequence[str]) -> Label:
        """See `Task.label`: a finite number, with a point before its decimals."""
        try:
            number = float(cells[0])
        except ValueError:
            number = math.nan
        if not abs(number) < LARGEST:
            text = cells[0].strip()
            meant = LIKE_A_NUMBER.fullmatch(text)
            fix = f"write {meant[1].replace(',', '.')}" if meant and math.isnan(number) else "correct it"
            rule = f"every row needs a number, with a point before decimals and below {LARGEST:g}"
            raise LabelError(rule, text, f"{fix} (or task='one' if labels are classes)")
        return number

    def outputs(self, labels: Iterable[Label], columns: Sequence[str]) -> tuple[str, ...]:
        """The column's name."""
        return tuple(columns)

    def content(self, labels: Iterable[Label], columns: Sequence[str]) -> str:
        """The least and the highest number."""
        numbers: Any = {*labels}
        return f"with numbers from {min(numbers):g} to {max(numbers):g}"

    def strata(self, labels: Counter[Label]) -> Strata:
        """Ranges with about equally many images, or single numbers if there are few different ones."""
        numbers: Any = labels
        known, distinct = sorted(numbers.elements()), sorted(numbers)
        count = min(RANGES, max(2, len(known) // FEWEST))
        if len(distinct) <= count:
            starts, ends = distinct, distinct
        else:
            starts = sorted({known[len(known) * place // count] for place in range(count)})
            ends = [*starts[1:], known[-1]]
        names = tuple(_range(low, high) for low, high in zip(starts, ends, strict=True))
        return Strata(names, lambda label: (bisect_right(starts, label) - 1,))


def _range(low: float, high: float) -> str:
    return f"{low!r}" if low == high else f"{low!r} to {high!r}"


NUMBER = Number()
