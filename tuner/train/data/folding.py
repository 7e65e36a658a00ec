"""The parts of a cross-validation: classes spread evenly, images that belong together in the same part."""

from __future__ import annotations

import numpy as np

from tuner.train.data.grouping import Groups, joined
from tuner.train.data.holding_out import Keys, Labels


def spread(labels: Labels, keys: Keys, groups: Groups, count: int, generator: np.random.Generator) -> Groups:
    """The part in which each image is used for validation.

    Groups of several images come first, the largest before the others: each goes to the part where it keeps the classes
    most even. Single images follow class by class: each goes to the part with the fewest images of its class, or of
    these to the smallest. Groups that have an image in common, or the same one twice, are one group.

    Args:
        labels: [N] int64
        keys: [N] uint64, equal for identical images
        groups: [N] int64, equal for images that belong together
        count: of parts
        generator: decides the order

    Returns:
        [N] int64, from 0 to count - 1; a part may be empty if there are too few groups
    """
    together = joined(groups, keys)
    classes = int(labels.max(initial=0)) + 1
    sizes = np.bincount(together)
    of_class = np.bincount(labels, minlength=classes).clip(min=1)
    has = np.zeros((count, classes), dtype=np.int64)  # images of each part and class
    part_of = np.zeros(len(sizes), dtype=np.int64)
    order = generator.permutation(len(sizes))
    several = order[sizes[order] > 1]
    for group in several[np.argsort(-sizes[several], kind="stable")]:
        inside = np.bincount(labels[together == group], minlength=classes)
        uneven = ((2 * has + inside) * inside / of_class).sum(1)  # the increase of the sum of squared shares
        part_of[group] = part = _least(uneven, has.sum(1))
        has[part] += inside
    label_of = np.zeros(len(sizes), dtype=np.int64)
    label_of[together] = labels
    alone = order[sizes[order] == 1]
    for group in alone[np.argsort(label_of[alone], kind="stable")]:
        label = label_of[group]
        part_of[group] = part = _least(has[:, label], has.sum(1))
        has[part, label] += 1
    return np.asarray(part_of[together])


def _least(first: np.ndarray, then: np.ndarray) -> int:
    return int(np.lexsort((then, first))[0])
