"""A scrambled Sobol sequence: the same points as `scipy.stats.qmc.Sobol`, bit for bit, without its slow import.

scipy.stats is more than half of what `check` would load. The direction numbers (Joe and Kuo 2008) come from a file of
scipy; if a version of scipy doesn't have it, scipy's own class is used. Scrambled by a random lower triangular matrix
and a shift for each dimension (Matoušek 1998).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tuner.search.base import Floats

Integers = npt.NDArray[np.int64]

BITS = 30  # bits of a coordinate; there are 2^BITS points
PLACES = np.arange(BITS - 1, -1, -1)  # places of binary digits, the highest first
DIRECTIONS = "stats/_sobol_direction_numbers.npz"  # in scipy's folder


class Sequence(Protocol):
    """Points of the unit cube, which are spread evenly."""

    def point(self, number: int) -> Floats:
        """The point [dimensions] of this number, from 0 to 2^30 - 1."""


def sobol(dimensions: int, generator: np.random.Generator) -> Sequence:
    """A sequence of this many dimensions; equal generators scramble equally."""
    file = _file()
    return Scipys(dimensions, generator) if file is None else Sobol(_directions(file, dimensions), generator)


class Sobol:
    """The sequence of these direction numbers [dimensions, BITS]."""

    def __init__(self, directions: Integers, generator: np.random.Generator) -> None:
        dimensions, generator = len(directions), generator.spawn(1)[0]  # as scipy does
        self._shift = generator.integers(2, size=(dimensions, BITS), dtype=np.uint32) @ (1 << np.arange(BITS))
        lower = np.tril(generator.integers(2, size=(dimensions, BITS, BITS), dtype=np.uint32), -1) + np.eye(BITS)
        scrambled = np.einsum("drc,dnc->dnr", lower, _digits(directions)) % 2
        self._directions = scrambled.astype(np.int64) @ (1 << PLACES)

    def point(self, number: int) -> Floats:
        """See `Sequence`."""
        gray, coordinates = number ^ (number >> 1), self._shift.copy()
        for place in range(gray.bit_length()):
            if gray >> place & 1:
                coordinates ^= self._directions[:, place]
        return coordinates * 2.0**-BITS


class Scipys:
    """The same sequence, by scipy's class."""

    def __init__(self, dimensions: int, generator: np.random.Generator) -> None:
        from scipy.stats.qmc import Sobol as Found

        self._found = Found(dimensions, rng=generator)

    def point(self, number: int) -> Floats:
        """See `Sequence`."""
        self._found.reset()
        if number:
            self._found.fast_forward(number)
        found: Floats = self._found.random(1)[0]
        return found


def _file() -> Path | None:
    """The file of direction numbers in scipy's folder; None if there is none."""
    found = find_spec("scipy")
    folders = (found and found.submodule_search_locations) or []
    return next((path for folder in folders if (path := Path(folder, DIRECTIONS)).is_file()), None)


@cache  # the file is larger than what is needed of it, and one process may play a search many times
def _directions(file: Path, dimensions: int) -> Integers:
    """The direction numbers [dimensions, BITS], by the recurrence of each dimension's primitive polynomial."""
    with np.load(file) as table:
        polynomials, first = table["poly"][:dimensions].tolist(), table["vinit"][:dimensions].tolist()
    found = [[1] * BITS]
    for polynomial, row in zip(polynomials[1:], first[1:], strict=True):
        degree = polynomial.bit_length() - 1
        numbers = row[:degree]
        for place in range(degree, BITS):
            new = numbers[place - degree]
            for back in range(1, degree + 1):
                if polynomial >> (degree - back) & 1:
                    new ^= numbers[place - back] << back
            numbers.append(new)
        found.append(numbers)
    directions = np.array(found[:dimensions]) << PLACES
    directions.flags.writeable = False
    return directions


def _digits(numbers: Integers) -> Integers:
    """Their binary digits [..., BITS], the highest first."""
    return numbers[..., None] >> PLACES & 1
