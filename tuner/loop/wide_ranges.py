"""Ranges of a space that reach far beyond all values that did well in the studies that come with tuner."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from tuner.loop.first_configurations import portfolio_knows
from tuner.search.portfolio import shipped
from tuner.space import Float
from tuner.study.declaration import Study

WORTH_TELLING = 0.25  # of a range
MARGIN = 3.0  # times beyond what did well: larger networks and longer trainings need lower learning rates


def wide_ranges(study: Study) -> Iterator[str]:
    """A sentence about each such range, or one that has none of these values, with a better one.

    Only of networks that train from random weights, or of which only the head learns: others were seldom recorded, and
    large transformers need lower learning rates. None with `--no-portfolio`, or where the metric is no accuracy.
    """
    trial, space = study.declared_trial, study.search_space
    if not portfolio_knows(study):
        return
    finetune, *others = space.possible("finetune") or [trial.known_hyperparameters["finetune"].default]
    for name, domain in space.dimensions.items():
        known = shipped().space.dimensions.get(name)
        if others or not isinstance(domain, Float) or domain.q or not isinstance(known, Float):
            continue
        studies, *limits = shipped().good_range(name, trial.portfolio[-1], finetune)
        low, high = _rounded(limits[0] / MARGIN, math.floor), _rounded(limits[1] * MARGIN, math.ceil)
        of_them = f"in {studies} studies of other data (of 9 epochs, tuner's portfolio)"
        if domain.high < low or domain.low > high:
            good = replace(domain, low=max(low, known.low), high=min(high, known.high))
            yield f"{name}={domain.describe()} has no value that did well {of_them}; {good.describe()} has those"
            continue
        narrow = replace(domain, low=max(low, domain.low), high=min(high, domain.high))
        left_out = 1 - (domain.encode(narrow.high) - domain.encode(narrow.low))
        if left_out >= WORTH_TELLING:
            yield (
                f"{name}={domain.describe()} reaches far beyond all values that did well {of_them}; "
                f"{narrow.describe()} leaves out {left_out:.0%} of it"
            )


def _rounded(value: float, direction: Callable[[float], int]) -> float:
    """One digit of it."""
    if math.isinf(value):
        return value
    digit = 10.0 ** math.floor(math.log10(value))
    return float(f"{direction(value / digit) * digit:.0e}")
