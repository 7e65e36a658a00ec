"""Two objectives at once: which points are better, in which order they come, and how much all of them are worth."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def fronts(points: Floats) -> npt.NDArray[np.int64]:
    """The front of each of points [n, 2], of which higher values are better: [n], 0 for those that none is as good as.

    A point is on the next front if another one is at least equal in both; of equal points the first is better. Takes n
    log n operations (Jensen 2003).
    """
    found = np.zeros(len(points), dtype=np.int64)
    highest: list[float] = []  # of each front the highest second value so far, with its sign changed: ascending
    for index in np.lexsort((np.arange(len(points)), -points[:, 1], -points[:, 0])):
        found[index] = front = bisect_right(highest, -points[index, 1])
        highest[front : front + 1] = [-float(points[index, 1])]
    return found


def order(points: Floats) -> list[int]:
    """The places of points [n, 2], the best first: front after front, and within one as an ε-net.

    An ε-net begins with the best in the first objective, and goes on with whichever is farthest from all before it, in
    both objectives as shares of their ranges: so the first few are spread over the whole front (Schmucker et al. 2021,
    Multi-objective Asynchronous Successive Halving, arXiv 2106.12639).
    """
    of = fronts(points)
    return [place for front in range(int(of.max(initial=-1)) + 1) for place in spread_out(points, of == front)]


def spread_out(points: Floats, chosen: npt.NDArray[np.bool_]) -> list[int]:
    """The places of some of points [n, 2], which one front has, in the order of an ε-net; see `order`."""
    if not len(points):
        return []
    spread = points.max(0) - points.min(0)
    return _net(np.flatnonzero(chosen), points / np.where(spread > 0, spread, 1.0))


def _net(members: npt.NDArray[np.int64], points: Floats) -> list[int]:
    """The members [m] of a front in the order of an ε-net, given points [n, 2]."""
    own, chosen = points[members], list[int]()
    apart = own[:, 0] - own[:, 0].min()  # first the best in the first objective
    for _ in members:
        chosen.append(int(np.argmax(apart)))
        distances = np.abs(own - own[chosen[-1]]).max(1)
        apart = distances if len(chosen) == 1 else np.minimum(apart, distances)
        apart[chosen] = -1
    return [int(member) for member in members[chosen]]


def knee(points: Floats) -> int:
    """The place of the point of a front [n, 2] that is farthest above the line between its ends; higher is better.

    Both objectives count as shares of their ranges (Das 1999, "On characterizing the knee of the Pareto curve"). Of a
    front without such a point it is the best in the first objective.
    """
    spread = points.max(0) - points.min(0)
    above = ((points - points.min(0)) / np.where(spread > 0, spread, 1.0)).sum(1)
    best = int(points[:, 0].argmax())
    return int(above.argmax()) if above.max() > above[best] + 1e-9 else best


def hypervolume(points: Floats, reference: tuple[float, float]) -> float:
    """The area between points [n, 2], of which higher values are better, and a reference that is worse (Zitzler 1999).

    What isn't better than the reference in both counts nothing.
    """
    area, highest = 0.0, reference[1]
    for first, second in sorted(map(tuple, points), reverse=True):
        if first > reference[0] and second > highest:
            area += (first - reference[0]) * (second - highest)
            highest = second
    return float(area)
