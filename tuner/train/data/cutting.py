"""Which images are for training, validation and test: as the files are split, otherwise cut from training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.errors import DataError
from tuner.train.data.holding_out import (
    SHARE,
    Groups,
    Keys,
    Kinds,
    hold_out,
    hold_out_groups,
    in_strata,
    joined,
    name_groups,
    quotas,
)
from tuner.train.data.pool import PARTS, Pool
from tuner.trial.splitting import Folds, Joined, Validation, check_given, check_groups

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Cut:
    """How a data set is cut.

    Attributes:
        seed: decides which images are held out
        validation: share of the training images, "folder" for the data's own split, None for that or a tenth; `Folds`:
            one part, or all parts, whose images are then for training and for validation; `Joined`: as its `cut` says,
            and then all for training
        group: pattern of names of files that stay on one side; None for none
    """

    seed: int
    validation: Validation = None
    group: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """The key for caches of the cut."""
        validation = self.validation
        if isinstance(validation, Joined):
            return ("joined", *self.apart.key)
        how = ("folds", validation.count, validation.part) if isinstance(validation, Folds) else validation
        given = (how, self.group)
        return (self.seed,) if given == (None, None) else (self.seed, *given)

    @property
    def apart(self) -> Cut:
        """The same cut, but with images for validation if it has none."""
        return replace(self, validation=self.validation.cut) if isinstance(self.validation, Joined) else self

    @property
    def share(self) -> float:
        """The share of the training images for validation, if it is a share."""
        given = self.validation
        return float(given) if isinstance(given, int | float) else SHARE

    @property
    def whole_key(self) -> tuple[object, ...]:
        """The key of all cross-validated images, independent of their parts."""
        return self.seed, "cross-validated", self.group


def cut(pool: Pool, scheme: Cut, name: str) -> dict[str, Rows]:
    """Rows of training, validation and test; splits that the data lacks are cut from training.

    Args:
        pool: all images
        scheme: how to cut
        name: of the data, for messages

    Raises:
        DataError: a split would be empty, or the data has other splits than the scheme requires.
    """
    if isinstance(scheme.validation, Joined):
        return _together(cut(pool, scheme.apart, name))
    rows: dict[str, Any] = {part: np.flatnonzero(pool.parts == index) for index, part in enumerate(PARTS)}
    given = {part for part in PARTS if len(rows[part])}
    check_given(scheme.validation, name, has_own="validation" in given)
    check_groups(scheme.group, name, has_own=pool.groups is not None)
    groups = name_groups(pool.files, scheme.group) if scheme.group is not None and pool.files else pool.groups
    whole = pool.count(rows["train"])
    for stream, (part, at_least) in enumerate((("test", 3), ("validation", 2))):
        if part not in given:
            generator = np.random.default_rng([scheme.seed, stream])
            if part == "validation" and isinstance(scheme.validation, Folds):
                rows |= _folded(pool, rows["train"], groups, scheme.validation, generator)
                continue
            share = SHARE if part == "test" else scheme.share
            held = _held_out(pool, rows["train"], groups, quotas(whole, at_least, share), generator)
            rows["train"], rows[part] = rows["train"][~held], rows["train"][held]
    lost = np.flatnonzero((whole > 0) & (pool.count(rows["train"]) == 0))
    if gone := [pool.kind_names[kind] for kind in lost if pool.kind_names[kind] in pool.classes]:
        raise DataError(
            f"training must keep images of every {pool.task.stratum[0]}, got validation={scheme.validation}, which "
            f"leaves none of '{gone[0]}' in {name}; lower it, or add images"
        )
    for part in ("test", "validation"):
        if not len(rows[part]):
            raise DataError(
                f"data must leave images for training, validation and test, got none for {part} of {name}; add images "
                f"that differ, at least 3 a {pool.task.stratum[0]}{', or groups' if groups is not None else ''}"
            )
    return rows


def _together(rows: dict[str, Rows]) -> dict[str, Rows]:
    """Training rows, then validation rows, each once: in a cross-validation all images are both."""
    more = np.setdiff1d(rows["validation"], rows["train"])
    return {**rows, "train": np.concatenate([rows["train"], more]), "validation": more[:0]}


def _folded(
    pool: Pool, rest: Rows, groups: Groups | None, folds: Folds, generator: np.random.Generator
) -> dict[str, Rows]:
    """Training and validation rows of one part, or all images as both."""
    kinds, keys = pool.kinds[rest], pool.keys[rest]
    parts = spread(kinds, keys, np.arange(len(rest)) if groups is None else groups[rest], folds.count, generator)
    empty = np.setdiff1d(np.arange(folds.count), parts)
    if len(empty):
        raise DataError(
            f"each part of a cross-validation needs images, got {folds}, of which {len(empty)} would have none; use "
            "fewer, or add images"
        )
    if folds.part is None:
        return {"train": rest, "validation": rest}
    return {"train": rest[parts != folds.part], "validation": rest[parts == folds.part]}


def _held_out(
    pool: Pool, rest: Rows, groups: Groups | None, quota: dict[int, int], generator: np.random.Generator
) -> np.ndarray:
    kinds, keys = pool.kinds[rest], pool.keys[rest]
    if groups is None and kinds.ndim == 1:
        return hold_out(kinds, keys, quota, generator)
    together = np.arange(len(rest)) if groups is None else groups[rest]
    return hold_out_groups(kinds, keys, together, quota, generator)


def spread(kinds: Kinds, keys: Keys, groups: Groups, count: int, generator: np.random.Generator) -> Groups:
    """The part in which each image is used for validation.

    Groups of several images come first, the largest before the others: each goes to the part where it keeps the strata
    most even. Single images follow, stratum by stratum, those that are in several from the rarest on (Sechidis et al.
    2011, "On the Stratification of Multi-label Data"): each goes to the part with the fewest images of its strata, or
    of these to the smallest. Groups that have an image in common, or the same one twice, are one group.

    Args:
        kinds: [N] int64, or [N, K] bool of images in several strata
        keys: [N] uint64, equal for identical images
        groups: [N] int64, equal for images that belong together
        count: of parts
        generator: decides the order

    Returns:
        [N] int64, from 0 to count - 1; a part may be empty if there are too few groups
    """
    together = joined(groups, keys)
    of_kind = in_strata(kinds, np.zeros(len(kinds), dtype=np.int64))[0].clip(min=1)
    sizes = np.bincount(together)
    has = np.zeros((count, len(of_kind)), dtype=np.int64)  # images of each part and stratum
    filled = np.zeros(count, dtype=np.int64)
    part_of = np.zeros(len(sizes), dtype=np.int64)
    order = generator.permutation(len(sizes))
    several = order[sizes[order] > 1]
    for group in several[np.argsort(-sizes[several], kind="stable")]:
        members = kinds[together == group]
        inside = in_strata(members, np.zeros(len(members), dtype=np.int64), len(of_kind))[0]
        uneven = ((2 * has + inside) * inside / of_kind).sum(1)  # the increase of the sum of squared shares
        part_of[group] = part = _least(uneven, filled)
        has[part] += inside
        filled[part] += len(members)
    row_of = np.zeros(len(sizes), dtype=np.int64)
    row_of[together] = np.arange(len(kinds))
    alone = order[sizes[order] == 1]
    first = kinds if kinds.ndim == 1 else np.where(kinds, of_kind, len(kinds) + 1).min(1, initial=len(kinds) + 1)
    for group in alone[np.argsort(first[row_of[alone]], kind="stable")]:
        own = kinds[row_of[group]]
        inside = np.flatnonzero(own) if kinds.ndim == 2 else np.array([own])
        part_of[group] = part = _least((has[:, inside] / of_kind[inside]).sum(1), filled)
        has[part, inside] += 1
        filled[part] += 1
    return np.asarray(part_of[together])


def _least(first: np.ndarray, then: np.ndarray) -> int:
    return int(np.lexsort((then, first))[0])
