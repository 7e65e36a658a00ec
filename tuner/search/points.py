"""Configurations as points, which models compare."""

from __future__ import annotations

import numpy as np

from tuner.search.base import Floats
from tuner.space import Choice, Domain, Space
from tuner.space.values import is_number


def is_ordered(domain: Domain) -> bool:
    """Whether neighbours in the encoding are similar: true for numbers and lists of numbers."""
    return not isinstance(domain, Choice) or all(is_number(option) for option in domain.options)


def unordered_options(space: Space) -> list[int]:
    """For each dimension the number of its options that have no order; 1 for a dimension of numbers."""
    return [1 if is_ordered(domain) else int(domain.size) for domain in space.dimensions.values()]


class Features:
    """Maps rows of the space's encoding to points whose Euclidean distance says how different configurations are.

    A number is one column in [0, 1]. A choice of other things is a column for each option, such that any two options
    are 1 apart. A hyperparameter that isn't part of a configuration gets its middle value: the hyperparameter that its
    condition names already makes the difference.
    """

    def __init__(self, space: Space) -> None:
        self._options = unordered_options(space)

    def points(self, rows: Floats) -> Floats:
        """Rows [n, dimensions] of encodings, nan where inactive, as points [n, columns]."""
        columns = []
        for options, column in zip(self._options, rows.T, strict=True):
            inactive = np.isnan(column)
            if options == 1:
                columns.append(np.where(inactive, 0.5, column)[:, None])
            else:
                index = np.where(inactive, 0, column * options).astype(int)
                one_hot = np.eye(options)[index] / np.sqrt(2)
                columns.append(np.where(inactive[:, None], 1 / (options * np.sqrt(2)), one_hot))
        return np.hstack(columns) if columns else np.zeros((len(rows), 0))
