"""Holding images out for validation and test: stratified, seeded, identical images never in two splits."""

from __future__ import annotations

import numpy as np

SHARE = 0.1  # of a class's images, for validation and for test each, unless the study says otherwise

Labels = np.ndarray[tuple[int], np.dtype[np.int64]]
Keys = np.ndarray[tuple[int], np.dtype[np.uint64]]


def quotas(labels: Labels, at_least: int, share: float = SHARE) -> dict[int, int]:
    """How many images of every class to hold out: `share`, at least one, none of a class below `at_least` images.

    Of a class of two or more images at least one stays.
    """
    classes, counts = np.unique(labels, return_counts=True)
    return {
        int(label): min(max(1, round(share * int(count))), max(1, int(count) - 1)) if count >= at_least else 0
        for label, count in zip(classes, counts, strict=True)
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
