"""Density of configurations: a product kernel around each one that was seen."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from tuner.search.base import Floats
from tuner.search.points import is_ordered, unordered_options
from tuner.space import Space

NARROWEST = 1e-3  # bandwidth, as a share of the dimension


class KernelDensity:
    """The density of which `rows` [n, dimensions] of a space's encoding are a sample.

    Numbers have normal kernels cut off at the dimension's ends, with the normal reference bandwidth (Scott 1992);
    choices of other things the kernel of Aitchison and Aitken (1976). A value that isn't part of a configuration is
    replaced by that of another row, or by a random one if no row has one (Levesque et al. 2017).
    """

    def __init__(self, space: Space, rows: Floats, generator: np.random.Generator) -> None:
        count, width = rows.shape
        self._ordered = np.array([is_ordered(domain) for domain in space.dimensions.values()], dtype=bool)
        self._options = np.array(unordered_options(space))
        self._rows = np.column_stack([_filled(column, generator) for column in rows.T])
        reference = 1.06 * self._rows.std(axis=0) * count ** (-1 / (4 + width))
        uneven = (self._options - 1) / self._options * count ** (-2 / (4 + width))
        self._bandwidths = np.where(self._ordered, np.maximum(reference, NARROWEST), uneven)

    def __call__(self, places: Floats) -> Floats:
        """The density's logarithm at places [m, dimensions], over those of their dimensions that are not nan: [m]."""
        logs = np.zeros((len(places), len(self._rows)))
        for column in range(self._rows.shape[1]):
            place, own, width = places[:, column, None], self._rows[:, column], self._bandwidths[column]
            if self._ordered[column]:
                inside = ndtr((1 - own) / width) - ndtr(-own / width)
                kernel = np.exp(-0.5 * ((place - own) / width) ** 2) / (width * inside * math.sqrt(2 * math.pi))
            else:
                options = self._options[column]
                same = np.floor(place * options) == np.floor(own * options)
                kernel = np.where(same, 1 - width, width / max(options - 1, 1))
            logs += np.where(np.isnan(place), 0.0, np.log(np.maximum(kernel, 1e-300)))
        peak = logs.max(axis=1)
        return np.asarray(peak + np.log(np.exp(logs - peak[:, None]).mean(axis=1)))

    def sample(self, count: int, generator: np.random.Generator, *, widened: float = 1.0) -> Floats:
        """Places [count, dimensions] drawn around the rows, with bandwidths this many times as wide."""
        centres = self._rows[generator.integers(len(self._rows), size=count)]
        uniform = generator.random(centres.shape)
        widths = np.maximum(self._bandwidths * widened, 1e-12)
        lower, upper = ndtr(-centres / widths), ndtr((1 - centres) / widths)
        numbers = np.clip(centres + widths * ndtri(lower + uniform * (upper - lower)), 0, 1)
        moved = generator.random(centres.shape) < np.minimum(widths, (self._options - 1) / self._options)
        step = 1 + np.floor(uniform * (self._options - 1))
        others = (np.floor(centres * self._options) + step) % self._options
        choices = np.where(moved, (others + 0.5) / self._options, centres)
        return np.where(self._ordered, numbers, choices)


def _filled(column: Floats, generator: np.random.Generator) -> Floats:
    """The column with its missing values filled in."""
    gaps = np.isnan(column)
    known = column[~gaps]
    drawn = generator.random(len(column))
    fill = known[(drawn * len(known)).astype(int)] if len(known) else drawn
    return np.where(gaps, fill, column)
