"""The good region of a finished search: a narrower space around its best trials, or a grid there."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from tuner.search.base import Floats
from tuner.search.points import is_ordered
from tuner.space import Choice, Config, Domain, Float, GridSearch, Integer, Normal, Space
from tuner.space.values import is_number, same

MARGIN = 0.1  # by which the range of the good trials is widened on either side, as a share of its width
NARROWEST = 0.05  # share of the old range that the new one has at least on either side of the best
BORDER = 0.05  # share of the range: the best counts as at the border if it is nearer to an end than this
BEYOND = 0.25  # how far a new range goes beyond a border where the best is, as a share of the old range
FEWEST_GOOD = 3
MATTERS = 0.02  # share of the variance that a hyperparameter needs to get several values in a grid
DIGITS = 2  # significant digits of a new bound

Limits = tuple[float, float]


@dataclass(frozen=True)
class Region:
    """The good region of a search.

    `entries` are its hyperparameters by dotted name, each a domain or a constant; `best` is the best configuration, of
    `good` ones with a value of at least `threshold`; `widened` go beyond the range that was searched.
    """

    entries: dict[str, Any]
    best: Config
    good: int
    threshold: float
    widened: tuple[str, ...]


def good_region(
    space: Space,
    configs: Sequence[Config],
    values: Sequence[float],
    *,
    quantile: float = 0.25,
    limits: Mapping[str, Limits] | None = None,
    kept: Collection[str] = (),
) -> Region:
    """The region of the best `quantile` of the trials, of which there is at least one, given the best first.

    Their order is not that of the `values` where some of these say less, as those of trials that were stopped early;
    higher values are better. A number's new range is that of the good trials, somewhat widened. If the best trial is at
    the border of the old range, the new one goes beyond it, as far as `limits` (lowest and highest value by dotted
    name) allow. A choice keeps the options that good trials had; constants, functions and those that are `kept` stay as
    they are.
    """
    count = min(len(configs), max(FEWEST_GOOD, math.ceil(quantile * len(configs))))
    good = configs[:count]
    units = np.array([space.encode(config) for config in good]).reshape(count, len(space.dimensions))
    entries: dict[str, Any] = dict(space.constants)
    widened = []
    for name, domain, column in zip(space.dimensions, space.dimensions.values(), units.T, strict=True):
        known = column[~np.isnan(column)]
        if not domain.encodable or name in kept:
            entries[name] = domain
        elif len(known):  # else none of the good trials had it
            entries[name], beyond = _narrowed(domain, known, column[0], (limits or {}).get(name))
            widened += [name] if beyond else []
    return Region(_settled(space, entries), good[0], count, float(min(values[:count])), tuple(widened))


def grid_of(region: Region, space: Space, importance: Mapping[str, float], *, configurations: int = 30) -> Region:
    """The region as a grid of at most `configurations`, with the best one among them.

    Hyperparameters get their values in the order of their `importance` (shares of the variance by dotted name): a
    number five, or three if that is too many, a choice all its options; one that hardly matters, or comes too late,
    keeps the value of the best configuration.
    """
    best = space.flatten(region.best)
    grid = dict(region.entries)
    ranked = sorted(
        (name for name, entry in grid.items() if isinstance(entry, Domain) and entry.encodable),
        key=lambda name: -importance.get(name, 0.0),
    )
    for name in ranked:
        counts = (5, 3) if importance.get(name, 0.0) >= MATTERS else ()
        levels = [_levels(grid[name], best.get(name), count) for count in counts]
        found = next((values for values in levels if 1 < len(values) <= configurations), None)
        if found is not None:
            configurations //= len(found)
            grid[name] = GridSearch(tuple(found), conditions=grid[name].conditions)
        elif name in best:
            grid[name] = best[name]
        else:  # isn't part of the best configuration: the middle value, for configurations that have it
            grid[name] = GridSearch((grid[name].decode(0.5),), conditions=grid[name].conditions)
    settled = _settled(space, grid)
    tried = {name for name, entry in settled.items() if isinstance(entry, Domain)}
    return replace(region, entries=settled, widened=tuple(name for name in region.widened if name in tried))


def _narrowed(domain: Domain, known: Floats, best: float, limits: Limits | None) -> tuple[Any, bool]:
    """The domain around the good trials' units, without conditions, and whether it goes beyond the old one."""
    if isinstance(domain, Choice):
        return _fewer_options(domain, known, best, limits)
    low, high = float(known.min()), float(known.max())
    margin = MARGIN * (high - low)
    middle = best if not math.isnan(best) else float(np.median(known))
    low, high = min(low - margin, middle - NARROWEST), max(high + margin, middle + NARROWEST)
    if isinstance(domain, Normal):  # has no borders
        curve = NormalDist(domain.mean, domain.sd)
        bottom, top = (curve.inv_cdf(min(max(unit, 0.001), 0.999)) for unit in (low, high))
        return _rounded(Float(0, 1, q=domain.q), bottom, top, (-math.inf, math.inf)), False
    assert isinstance(domain, Float | Integer)
    lowest, highest = limits or _natural_limits(domain)
    least, most = domain.low, domain.high
    low, high = max(low, 0.0), min(high, 1.0)
    best = 0.5 if math.isnan(best) else best
    if best <= BORDER or domain.decode(best) <= domain.decode(0.0):
        low, least = -BEYOND, min(least, lowest)
    if best >= 1 - BORDER or domain.decode(best) >= domain.decode(1.0):
        high, most = 1 + BEYOND, max(most, highest)
    new = _rounded(domain, domain.number_at(low), domain.number_at(high), (least, most))
    return new, isinstance(new, Float | Integer) and (new.low < domain.low or new.high > domain.high)


def _rounded(domain: Float | Integer, low: float, high: float, allowed: Limits) -> Any:
    """The domain with other bounds, rounded outwards to few digits (or the domain's steps); a constant if they meet."""
    if domain.q is None:
        low, high = _round_to(low, math.floor), _round_to(high, math.ceil)
    if domain.q is not None or isinstance(domain, Integer):
        step = domain.q or 1
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    low, high = max(low, allowed[0]), min(high, allowed[1])
    if isinstance(domain, Integer):
        low, high = int(low), int(high)
        return replace(domain, low=low, high=high, conditions=()) if low < high else low
    low, high = _clean(low), _clean(high)
    return replace(domain, low=low, high=high, conditions=()) if low < high else low


def _round_to(value: float, direction: Any) -> float:
    """The value to DIGITS significant digits, up or down."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - DIGITS + 1)
    return _clean(direction(round(value / unit, 9)) * unit)


def _clean(value: float) -> float:
    """The number as a person writes it: 3 steps of 0.1 are 0.3."""
    return float(f"{value:.12g}")


def _natural_limits(domain: Float | Integer) -> Limits:
    """The natural limits of a range if no others are known: shares stay shares, counts stay counts, and so on."""
    lowest = 0 if domain.low >= 0 else -math.inf
    if isinstance(domain, Integer) and domain.low >= 1:
        lowest = 1
    if domain.log and domain.q is not None:
        lowest = domain.q
    return lowest, 1 if isinstance(domain, Float) and domain.low >= 0 and domain.high <= 1 else math.inf


def _fewer_options(domain: Choice, known: Floats, best: float, limits: Limits | None) -> tuple[Any, bool]:
    """A choice of the good trials' options; of ordered numbers also those between, and one more beyond the border."""
    size = len(domain.options)
    had = sorted({int(unit * size) for unit in known})
    options = list(domain.options)
    if not is_ordered(domain) or options != sorted(options):
        return _choice(domain, [options[index] for index in had]), False
    kept = options[had[0] : had[-1] + 1]
    following = None if math.isnan(best) or size < 2 else _next_option(options, int(best * size))
    lowest, highest = limits or (0 if options[0] >= 0 else -math.inf, math.inf)
    if following is None or not lowest <= following <= highest:
        return _choice(domain, kept), False
    return _choice(domain, sorted([*kept, following])), True


def _next_option(options: list[Any], index: int) -> Any:
    """The next number beyond the end of a list where the best is: by the same factor, or the same step."""
    if index not in (0, len(options) - 1) or not all(is_number(option) for option in options):
        return None
    end, before = (options[0], options[1]) if index == 0 else (options[-1], options[-2])
    following = end * end / before if options[0] > 0 else 2 * end - before
    if all(isinstance(option, int) for option in options):
        return int(following) if following == int(following) else None
    return _clean(following)


def _choice(domain: Choice, options: list[Any]) -> Any:
    return replace(domain, options=tuple(options), conditions=()) if len(options) > 1 else options[0]


def _levels(domain: Domain, best: Any, count: int) -> list[Any]:
    """Evenly spaced values of a number, of which the best value replaces the nearest; for a choice, its options."""
    if isinstance(domain, Choice):
        return list(domain.options)
    values = [domain.decode(unit) for unit in np.linspace(0, 1, count).tolist()]
    if isinstance(domain, Float) and domain.q is None:
        values = [min(max(_round_to(value, round), domain.low), domain.high) for value in values]
    if best is not None and is_number(best):
        nearest = min(range(count), key=lambda index: abs(domain.encode(values[index]) - domain.encode(best)))
        values[nearest] = best
    return sorted(set(values))


def _settled(space: Space, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries in the space's order, with only the conditions that still matter; impossible entries are left out."""
    found: dict[str, Any] = dict(entries)
    for name in space.dimensions:
        if name not in found:
            continue
        open_conditions = []
        for other, allowed in space.conditions[name]:
            possible = [value for value in allowed if other in found and _may_be(found[other], value)]
            if not possible:
                del found[name]
                break
            if isinstance(found[other], Domain) and not _is_all(found[other], possible):
                open_conditions.append((other, tuple(possible)))
        else:
            if isinstance(found[name], Domain):
                found[name] = replace(found[name], conditions=tuple(open_conditions))
            elif open_conditions:  # a constant that is only part of some configurations
                found[name] = Choice((found[name],), conditions=tuple(open_conditions))
    return {name: found[name] for name in space.names if name in found}


def _may_be(entry: Any, value: Any) -> bool:
    return entry.contains(value) if isinstance(entry, Domain) else same(entry, value)


def _is_all(domain: Domain, values: Sequence[Any]) -> bool:
    return isinstance(domain, Choice) and len({domain.index(value) for value in values}) == domain.size
