"""Holding images out for validation and test: stratified, seeded, identical images never in two splits.

Also whole groups of images that belong together, such as those of one patient or one burst of a camera.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.errors import DataError

SHARE = 0.1  # of a class's images, for validation and for test each, unless the study says otherwise

Labels = np.ndarray[tuple[int], np.dtype[np.int64]]
Kinds = np.ndarray  # strata: [N] int64, or [N, K] bool of images that are in several
Keys = np.ndarray[tuple[int], np.dtype[np.uint64]]
Groups = np.ndarray[tuple[int], np.dtype[np.int64]]


def quotas(counts: Labels, at_least: int, share: float = SHARE) -> dict[int, int]:
    """How many images of every class to hold out, from its number of images: `share`, at least one, none of a class
    below `at_least` images.

    Of a class of two or more images at least one stays.
    """
    return {
        label: min(max(1, round(share * count)), max(1, count - 1)) if count >= at_least else 0
        for label, count in enumerate(counts.tolist())
        if count
    }


def hold_out(
    labels: Labels, keys: Keys, quota: dict[int, int], generator: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which images to hold out.

    Images that share a key are held out together or not at all; if their labels differ, never.

    Args:
        labels: [N] int64
        keys: [N] uint64, equal for identical images
        quota: class -> number of images, reached unless groups of identical images don't fit
        generator: decides which ones

    Returns:
        [N] bool
    """
    _, first, group, sizes = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    group_labels = labels[first].copy()
    group_labels[group[labels != group_labels[group]]] = -1  # an image with two labels stays in training
    taken = np.zeros(len(sizes), dtype=np.bool_)
    for label in sorted(quota):
        candidates = generator.permutation(np.flatnonzero(group_labels == label))
        taken[_fill(candidates, sizes, quota[label])] = True
    return np.asarray(taken[group])


def _fill(candidates: np.ndarray, sizes: np.ndarray, room: int) -> list[int]:
    """Take candidates in their order, each if it still fits."""
    chosen: list[int] = []
    for candidate in candidates:
        if room == 0:
            break
        if sizes[candidate] <= room:
            chosen.append(int(candidate))
            room -= int(sizes[candidate])
    return chosen


def group_of(name: str, pattern: str) -> str | None:
    """The part of a file's name that its group shares: the pattern's first group, else its match; None if neither."""
    match = re.search(pattern, name)
    if match is None:
        return None
    return match[1] if match.re.groups and match[1] is not None else match[0]


def name_groups(files: Sequence[Path], pattern: str) -> Groups:
    """A number for each file, shared within its group; a file whose name doesn't match is its own group.

    Raises:
        DataError: no file's name matches, or all are one group.
    """
    names = [group_of(path.name, pattern) for path in files]
    if not any(name is not None for name in names):
        raise DataError(
            f"group needs a pattern that fits names of files, got {pattern!r}, which fits none, such as "
            f"'{files[0].name}'; correct it, as in group=r'^([^_]+)_'"
        )
    if len(set(names)) == 1:
        raise DataError(
            f"group needs a pattern that tells files apart, got {pattern!r}, for which all are one group, "
            f"'{names[0]}'; correct it, as in group=r'^([^_]+)_'"
        )
    return numbered_groups(names)


def numbered_groups(names: Sequence[str | None]) -> Groups:
    """A number for each name, the same for equal ones; None is a group by itself."""
    numbers: dict[str, int] = {}
    found = [
        len(numbers) + index + len(names) if name is None else numbers.setdefault(name, len(numbers))
        for index, name in enumerate(names)
    ]
    return np.array(found, dtype=np.int64)


def joined(groups: Groups, keys: Keys) -> Groups:
    """Groups that also keep identical images together: two groups that share a key become one.

    Args:
        groups: [N] int64
        keys: [N] uint64, equal for identical images

    Returns:
        [N] int64, numbers from 0
    """
    parents = np.arange(2 * len(groups))  # first of images' groups, then of their keys
    _, by_group = np.unique(groups, return_inverse=True)
    _, by_key = np.unique(keys, return_inverse=True)

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = int(parents[node])
        return node

    for group, key in zip(by_group.tolist(), by_key.tolist(), strict=True):
        parents[root(len(groups) + key)] = root(group)
    roots = np.array([root(group) for group in by_group.tolist()], dtype=np.int64)
    return np.asarray(np.unique(roots, return_inverse=True)[1], dtype=np.int64)


def in_strata(kinds: Kinds, groups: Groups, strata: int = 0) -> np.ndarray:
    """How many images of each group are in each stratum: [groups, K] int64, K at least `strata`."""
    known = kinds.shape[1] if kinds.ndim == 2 else max(strata, int(kinds.max(initial=-1)) + 1)
    counts = np.zeros((int(groups.max(initial=-1)) + 1, known), dtype=np.int64)
    if kinds.ndim == 2:
        np.add.at(counts, groups, kinds)
    else:
        np.add.at(counts, (groups, kinds), 1)
    return counts


def hold_out_groups(
    kinds: Kinds, keys: Keys, groups: Groups, quota: dict[int, int], generator: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which images to hold out, whole groups at a time, so that the classes' numbers come close to the quota.

    A group with the same image under two labels isn't held out. If all groups of a class are larger than its quota, the
    best fitting one is held out, unless it is the class's only one.

    Args:
        kinds: [N] int64, or [N, K] bool of images that are in several classes
        keys: [N] uint64, equal for identical images
        groups: [N] int64, equal for images that belong together
        quota: class -> number of images
        generator: decides which ones

    Returns:
        [N] bool
    """
    together = joined(groups, keys)
    counts = in_strata(kinds, together)  # [groups, classes]
    wanted = np.array([quota.get(label, 0) for label in range(counts.shape[1])])
    free = ~np.isin(np.arange(len(counts)), together[_in_two_classes(kinds, keys)])
    order = generator.permutation(np.flatnonzero(free))
    taken = np.zeros(len(counts), dtype=np.bool_)
    room, left = wanted.copy(), counts.sum(0)

    def leaves_some(group: int) -> bool:
        """Whether every class of the group has images outside of it that aren't held out."""
        return bool((left > counts[group])[counts[group] > 0].all())

    def take(group: int) -> None:
        nonlocal room, left
        taken[group] = True
        room, left = room - counts[group], left - counts[group]

    for group in order:
        if _far(room - counts[group]) < _far(room) and leaves_some(group):
            take(group)
    for label in np.flatnonzero(wanted):
        if room[label] < wanted[label]:
            continue  # some images of the class are held out already
        fitting = [g for g in order if counts[g, label] and not taken[g] and leaves_some(g)]
        if fitting:
            take(min(fitting, key=lambda group: _far(room - counts[group])))
    return np.asarray(taken[together])


def _far(room: np.ndarray) -> int:
    """How far the classes' numbers are from the quota: one that is far off counts more than several that are near."""
    return int((room**2).sum())


def _in_two_classes(kinds: Kinds, keys: Keys) -> np.ndarray:
    """Which images [N] bool have an identical one under another label."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    differs = kinds != kinds[first][inverse]
    return np.isin(inverse, inverse[differs if kinds.ndim == 1 else differs.any(1)])
