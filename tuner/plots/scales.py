"""The positions of a hyperparameter's values on an axis: options in order and evenly spaced, "not used" apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.plots.figure import LONGEST_OPTION, label
from tuner.plots.value_axes import log_ticks, written
from tuner.search.points import is_ordered
from tuner.space import Choice, Domain, Integer

Floats = npt.NDArray[np.float64]
NOT_USED = "not used"
GAP = 0.15  # share of the axis, between its values and "not used"
TICKS = 5
FEW_TICKS = 4  # within a decade of a logarithmic axis, where plotly's own ticks would overlap
MOST_DECADES = 3.5  # the most decades with a tick at each


class Absent:
    """Marks a hyperparameter that is not part of a configuration; None can't, because None may be an option."""

    def __repr__(self) -> str:
        return NOT_USED


ABSENT = Absent()


@dataclass(frozen=True)
class Scale:
    """A hyperparameter's axis.

    Attributes:
        domain: of the hyperparameter
        places: [N], for each trial: the position of its option, the number, or its decimal logarithm; trials that don't
            use it are below all others
        texts: [N], the values as text
        used: [N] bool
        ticks: places with names
        names: names of the ticks
    """

    domain: Domain
    places: Floats
    texts: list[str]
    used: npt.NDArray[np.bool_]
    ticks: list[float]
    names: list[str]

    @property
    def log(self) -> bool:
        """Whether places are decimal logarithms."""
        return is_log(self.domain)

    @property
    def drawn(self) -> Floats:
        """The places [N] as plotly's axis needs them."""
        return self.on_axis(self.places)

    def on_axis(self, places: Floats) -> Floats:
        """Places as plotly's axis needs them: on a logarithmic one the numbers themselves."""
        return 10**places if self.log else places

    @property
    def is_named(self) -> bool:
        """Whether its places need names: options do, and "not used"."""
        return isinstance(self.domain, Choice) or not bool(self.used.all())

    @property
    def axis(self) -> dict[str, Any]:
        """The settings of plotly's axis: plotly's own ticks if all values are numbers."""
        named = self.is_named
        ticks: dict[str, Any] = {}
        if named:
            ticks = {"tickvals": self.on_axis(np.array(self.ticks)).tolist(), "ticktext": self.names}
            if not isinstance(self.domain, Choice):  # ticks: "not used", one in the middle, the highest
                chosen = sorted({0, len(self.ticks) // 2, len(self.ticks) - 1})
                ticks = {key: [values[place] for place in chosen] for key, values in ticks.items()}
        if self.log:
            span = np.ptp(self.places) if len(self.places) else 0.0
            wide = {"dtick": 1 + (span > MOST_DECADES), "exponentformat": "power"}
            power = {} if named else wide if span > 1 else {"nticks": FEW_TICKS}
            return {"type": "log", **power, **ticks}
        if isinstance(self.domain, Choice):
            return {"type": "linear", **ticks, "range": [self.ticks[0] - 0.5, self.ticks[-1] + 0.5]}
        return {"type": "linear", **ticks}


def scale_of(domain: Domain, values: Sequence[Any]) -> Scale:
    """The axis for the values of some trials, ABSENT if a configuration doesn't have the hyperparameter."""
    used = np.array([value is not ABSENT for value in values], dtype=bool)
    if isinstance(domain, Choice):
        places, ticks, names = _options(domain, values)
    else:
        places, ticks, names = _numbers(domain, values)
    if not used.all():
        ticks, names = _with_unused(ticks, names, whole=isinstance(domain, Choice))
        places = np.where(used, places, ticks[0])
    return Scale(domain, places, [_text(value) for value in values], used, ticks, names)


def is_log(domain: Domain | None) -> bool:
    """Whether the hyperparameter is searched, and therefore drawn, on a logarithmic scale."""
    return bool(getattr(domain, "log", False))


def _options(domain: Choice, values: Sequence[Any]) -> tuple[Floats, list[float], list[str]]:
    """Those options that a trial had: numbers in their order, others as they were declared."""
    order = sorted(domain.options) if is_ordered(domain) else list(domain.options)
    ranks = {domain.index(option): rank for rank, option in enumerate(order)}
    found = [math.nan if value is ABSENT else ranks.get(domain.index(value), math.nan) for value in values]
    tried = sorted({int(rank) for rank in found if not math.isnan(rank)})
    position = {rank: float(place) for place, rank in enumerate(tried)}
    places = np.array([math.nan if math.isnan(rank) else position[int(rank)] for rank in found])
    return (
        places,
        [float(place) for place in range(len(tried))],
        [label(_text(order[rank]), LONGEST_OPTION) for rank in tried],
    )


def _numbers(domain: Domain, values: Sequence[Any]) -> tuple[Floats, list[float], list[str]]:
    numbers = np.array([math.nan if value is ABSENT else float(value) for value in values])
    places = np.log10(numbers) if is_log(domain) else numbers
    if np.isnan(places).all():
        return places, [], []
    low, high = float(np.nanmin(places)), float(np.nanmax(places))
    if is_log(domain):
        ticks = log_ticks(low, high)
        return places, ticks, [written(10**tick) for tick in ticks]
    ticks = np.linspace(low, high, TICKS).tolist()
    if isinstance(domain, Integer):
        ticks = sorted({float(round(tick)) for tick in ticks})
    return places, ticks, [written(tick) for tick in ticks]


def _with_unused(ticks: list[float], names: list[str], *, whole: bool) -> tuple[list[float], list[str]]:
    """The scale with one more place, below the others."""
    if not ticks:
        return [0.0], [NOT_USED]
    gap = 1.0 if whole else GAP * ((ticks[-1] - ticks[0]) or 1.0)
    return [ticks[0] - gap, *ticks], [NOT_USED, *names]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value) if value is not ABSENT else NOT_USED
