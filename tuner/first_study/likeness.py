"""Images that are the same pixel for pixel, and near duplicates: the same scene scaled, compressed or brightened.

Near duplicates have difference hashes of nearly the same bits (N. Krawetz, "Kind of Like That", hackerfactor.com),
here with differences along rows and along columns, and thumbnails of nearly the same colours.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tuner.first_study.pictures import SMALL, Picture, pixels_of

if TYPE_CHECKING:
    from tuner.trial.pixels import DeepScale

BITS = 15  # of 128 that may differ: then at least one of the 16 bytes is the same
PARTS = 16
CORRELATED = 0.98  # least correlation of thumbnails, without brightness and contrast
FLAT = 6.0  # standard deviation of a thumbnail's levels, below which a hash is noise
BLOCK = 2_000  # images that are compared with others at once
MOST_COMPARED = 300_000_000  # pairs of hashes

Pairs = npt.NDArray[np.int64]  # [N, 2]


@dataclass(frozen=True)
class Likeness:
    """Groups of two or more images, as indices.

    Attributes:
        same: identical pixel for pixel
        near: near duplicates, including those of `same`
        whole: whether all images were compared
    """

    same: list[list[int]]
    near: list[list[int]]
    whole: bool = True


def likeness(files: Sequence[Path], pictures: Sequence[Picture | str], scale: DeepScale) -> Likeness:
    """Find identical images and near duplicates among those that could be read; `scale` is of the deep ones."""
    seen = [
        index
        for index, picture in enumerate(pictures)
        if isinstance(picture, Picture) and picture.thumbnail is not None
    ]
    same = _same(files, pictures, seen, scale)
    pairs, whole = near_pairs(np.array([_thumbnail(pictures[index]) for index in seen], dtype=np.uint8))
    linked = [(seen[one], seen[other]) for one, other in pairs.tolist()]
    linked += [(group[0], other) for group in same for other in group[1:]]
    return Likeness(same, groups_of(linked), whole)


def groups_of(pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The groups joined by pairs, each sorted, in the order of their first images."""
    roots: dict[int, int] = {}

    def root(node: int) -> int:
        roots.setdefault(node, node)
        while roots[node] != node:
            roots[node] = node = roots[roots[node]]
        return node

    for one, other in pairs:
        roots[root(other)] = root(one)
    found: dict[int, list[int]] = defaultdict(list)
    for node in sorted(roots):
        found[root(node)].append(node)
    return sorted(group for group in found.values() if len(group) > 1)


def _same(
    files: Sequence[Path], pictures: Sequence[Picture | str], seen: list[int], scale: DeepScale
) -> list[list[int]]:
    """Pairs of identical images: those with the same size and thumbnail are decoded completely and compared."""
    alike: dict[tuple[tuple[int, int], bytes], list[int]] = defaultdict(list)
    for index in seen:
        picture = pictures[index]
        if isinstance(picture, Picture):
            alike[picture.size, _thumbnail(picture).tobytes()].append(index)
    found = []
    for group in alike.values():
        if len(group) > 1:
            by_pixels: dict[bytes, list[int]] = defaultdict(list)
            for index in group:
                by_pixels[hashlib.blake2b(pixels_of(files[index], scale), digest_size=16).digest()].append(index)
            found += [each for each in by_pixels.values() if len(each) > 1]
    return sorted(found)


def _thumbnail(picture: Picture | str) -> npt.NDArray[np.uint8]:
    if isinstance(picture, str) or picture.thumbnail is None:
        raise TypeError("only of an image that was decoded")
    return picture.thumbnail


def hashes_of(thumbnails: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Difference hashes of [N, 16, 16, 3]: [N, 16] uint8, 64 bits along rows and 64 along columns."""
    grey = thumbnails.mean(axis=3)
    nine = np.linspace(0, grey.shape[1] - 1, 9).round().astype(int)
    eight = np.linspace(0, grey.shape[1] - 1, 8).round().astype(int)
    rows = grey[:, eight][:, :, nine]
    columns = grey[:, nine][:, :, eight]
    bits = np.concatenate(
        [
            (rows[:, :, 1:] > rows[:, :, :-1]).reshape(len(grey), -1),
            (columns[:, 1:] > columns[:, :-1]).reshape(len(grey), -1),
        ],
        axis=1,
    )
    return np.packbits(bits, axis=1)


def near_pairs(thumbnails: npt.NDArray[np.uint8]) -> tuple[Pairs, bool]:
    """Pairs of near duplicates among thumbnails [N, 16, 16, 3], and whether all were compared; flat ones have none."""
    flat = thumbnails.mean(axis=3).std(axis=(1, 2)) < FLAT if len(thumbnails) else np.empty(0, bool)
    told = np.flatnonzero(~flat)
    if len(told) < 2:
        return np.empty((0, 2), np.int64), True
    pairs, whole = _close(hashes_of(thumbnails[told]))
    small = thumbnails[told].reshape(len(told), 3 * SMALL**2).astype(np.float32)
    small -= small.mean(axis=1, keepdims=True)
    small /= np.linalg.norm(small, axis=1, keepdims=True)  # none is flat
    correlation = np.array([small[one] @ small[other] for one, other in pairs], dtype=float)
    return told[pairs[correlation >= CORRELATED]], whole


def _close(hashes: npt.NDArray[np.uint8]) -> tuple[Pairs, bool]:
    """Pairs whose hashes differ in few bits: only images that share one part of their hash are compared."""
    found: list[Pairs] = []
    left = MOST_COMPARED
    for part in range(PARTS):
        order = np.argsort(hashes[:, part], kind="stable")
        starts = np.flatnonzero(np.diff(hashes[order, part])) + 1
        for group in np.split(order, starts):
            for start in range(0, len(group) - 1, BLOCK):
                left -= min(BLOCK, len(group) - start) * (len(group) - start)
                if left < 0:
                    return _unique(found), False
                found.append(_pairs(hashes, group, start))
    return _unique(found), True


def _pairs(hashes: npt.NDArray[np.uint8], group: npt.NDArray[np.int64], start: int) -> Pairs:
    """Pairs of some images of a group with later ones."""
    block, after = group[start : start + BLOCK], group[start:]
    bits = np.zeros((len(block), len(after)), np.uint8)
    for part in range(PARTS):
        bits += np.bitwise_count(hashes[block, part][:, None] ^ hashes[after, part][None]).astype(np.uint8)
    rows, columns = np.nonzero(np.triu(bits <= BITS, 1))
    return np.sort(np.stack([block[rows], after[columns]], axis=1), axis=1)


def _unique(found: list[Pairs]) -> Pairs:
    return np.unique(np.concatenate(found), axis=0) if found else np.empty((0, 2), np.int64)
