"""Which images are for training, validation and test: as the files are split, else cut from training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import DataError
from tuner.train.data.grouping import Groups, hold_out_groups, name_groups
from tuner.train.data.holding_out import SHARE, hold_out, quotas
from tuner.train.data.pool import PARTS, Pool
from tuner.trial.splitting import OWN, check_given

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Cut:
    """How a data set is cut.

    Attributes:
        seed: decides which images are held out
        validation: share of the training images, "folder" for the data's own split, None for that or a tenth
        group: pattern of names of files that stay on one side; None for none
    """

    seed: int
    validation: float | str | None = None
    group: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What caches of the cut depend on."""
        given = (self.validation, self.group)
        return (self.seed,) if given == (None, None) else (self.seed, *given)


def cut(pool: Pool, scheme: Cut, name: str) -> dict[str, Rows]:
    """Rows of training, validation and test; those that the data lacks are cut from training.

    Args:
        pool: all images
        scheme: how to cut
        name: of the data, for messages

    Raises:
        DataError: a split would be empty, or the data has another one than the scheme asks for.
    """
    rows: dict[str, Any] = {part: np.flatnonzero(pool.parts == index) for index, part in enumerate(PARTS)}
    given = {part for part in PARTS if len(rows[part])}
    check_given(scheme.validation, name, has_own="validation" in given)
    share = SHARE if scheme.validation in (None, OWN) else float(scheme.validation)
    groups = name_groups(pool.files, scheme.group) if scheme.group is not None and pool.files else None
    whole = pool.labels[rows["train"]]
    for stream, (part, at_least, each) in enumerate((("test", 3, SHARE), ("validation", 2, share))):
        if part not in given:
            generator = np.random.default_rng([scheme.seed, stream])
            held = _held_out(pool, rows["train"], groups, quotas(whole, at_least, each), generator)
            rows["train"], rows[part] = rows["train"][~held], rows["train"][held]
    lost = np.setdiff1d(whole, pool.labels[rows["train"]])
    if len(lost):
        raise DataError(
            f"training must keep images of every class, got validation={scheme.validation}, which leaves none of "
            f"'{pool.classes[lost[0]]}' in {name}; lower it, or add images"
        )
    for part in ("test", "validation"):
        if not len(rows[part]):
            raise DataError(
                f"data must leave images for training, validation and test, got none for {part} of {name}; "
                f"add images that differ, at least 3 a class{', or groups' if groups is not None else ''}"
            )
    return rows


def _held_out(
    pool: Pool, rest: Rows, groups: Groups | None, quota: dict[int, int], generator: np.random.Generator
) -> np.ndarray:
    labels, keys = pool.labels[rest], pool.keys[rest]
    if groups is None:
        return hold_out(labels, keys, quota, generator)
    return hold_out_groups(labels, keys, groups[rest], quota, generator)
