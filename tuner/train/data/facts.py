"""Facts about a data set for a run: its splits by class, files that were left out, and notices for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np

from tuner.errors import one_line
from tuner.train.data.cutting import Cut, Rows
from tuner.train.data.pool import LEFT_OUT, PARTS, SCALE, Pool
from tuner.trial.data_source import NAMED, ImageFiles, LeftOut, listed
from tuner.trial.folder_headers import named, without_images, without_split
from tuner.trial.pixels import DeepScale
from tuner.trial.splitting import OWN, Folds
from tuner.trial.tasks import Task

MOST_LISTED = 10_000  # files that are left out
FEW = 50  # with fewer images a split's figures are coarse
TOLD = {"train": "training", "validation": "validation", "test": "test"}


@dataclass(frozen=True)
class DataFacts:
    """A data set and its cut.

    Attributes:
        counts: images by class and split
        images: by split
        left_out: files that are left out
        files: images and files left out
        scale: of the deep images
        notices: sentences
    """

    counts: dict[str, dict[str, int]]
    images: dict[str, int]
    left_out: tuple[LeftOut, ...]
    files: int
    scale: DeepScale
    notices: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """The facts as plain data: data.json in a run's folder."""
        return {
            "classes": self.counts,
            "images": self.images,
            "files": self.files,
            SCALE: asdict(self.scale),
            "files_left_out": len(self.left_out),
            "left_out": [{"path": each.path, "reason": f"it {each.reason}"} for each in self.left_out[:MOST_LISTED]],
        }


def data_facts(
    pool: Pool, rows: Mapping[str, Rows], scheme: Cut, images: ImageFiles, *, known: bool = False
) -> DataFacts:
    """The facts about image files and their cut.

    Args:
        pool: all images
        rows: of each split, as `cut` found them
        scheme: how they were cut
        images: the data set
        known: whether it is a data set by name, whose splits are well known
    """
    counts = {part: pool.count(rows[part]) for part in PARTS}
    by_class = {name: {part: int(counts[part][kind]) for part in PARTS} for kind, name in enumerate(pool.kind_names)}
    files = len(pool.files) + len(pool.left_out) - int((pool.parts == LEFT_OUT).sum())
    notices = [
        *_left_out(pool, files),
        *images.look().notices,
        *([] if known else _cut_from_training(pool, rows, scheme, images)),
        *_differing(pool, images),
        *_on_two_sides(pool, images),
        *(_small_classes(by_class, pool) if pool.task.has_classes else ()),
        *_coarse(rows, scheme, pool.task),
    ]
    sizes = {part: len(rows[part]) for part in PARTS}
    return DataFacts(by_class, sizes, pool.left_out, files, pool.scale, tuple(map(one_line, notices)))


def _left_out(pool: Pool, files: int) -> list[str]:
    if not pool.left_out:
        return []
    count, folders = len(pool.left_out), any(each.path.endswith("/") for each in pool.left_out)
    where = "; data.json in the run's folder lists them all" if count > NAMED else ""
    return [
        f"{count:,} of {files:,} files{' and folders' if folders else ''} {'was' if count == 1 else 'were'} left out: "
        f"{listed(pool.left_out)}{where}"
    ]


def _cut_from_training(pool: Pool, rows: Mapping[str, Rows], scheme: Cut, images: ImageFiles) -> list[str]:
    """For data with only some of the splits: a notice that the others are cut from its training images."""
    given = {part for index, part in enumerate(PARTS) if (pool.parts == index).any()}
    whole = int((pool.parts == 0).sum())
    if given == {"train"}:
        return []
    return [
        without_split(images, part, f"{len(rows[part]):,} of its {whole:,} training images are")
        for part in PARTS
        if part not in given and not (part == "validation" and scheme.validation not in (None, OWN))
    ]


def _differing(pool: Pool, images: ImageFiles) -> list[str]:
    used = np.flatnonzero(pool.parts != LEFT_OUT)
    groups = _sharing(pool.keys[used])
    alike = [np.unique(pool.labels[used[group]], axis=0, return_index=True)[1] for group in groups]  # one of each label
    mixed = [used[group][first] for group, first in zip(groups, alike, strict=True) if len(first) > 1]
    if not mixed:
        return []
    mixed.sort(key=lambda group: int(group.min()))
    one = len(mixed) == 1
    return [
        f"{len(mixed):,} image{' is' if one else 's are'} there {pool.task.differing}: "
        f"{_examples(mixed, pool, images)}; no model can get both right, so delete the wrong one{'' if one else 's'}"
    ]


def _on_two_sides(pool: Pool, images: ImageFiles) -> list[str]:
    """Identical images in two of the data's own splits; a cut never makes such pairs."""
    found = []
    rows = {part: np.flatnonzero(pool.parts == index) for index, part in enumerate(PARTS)}
    for one, other in combinations(PARTS, 2):
        shared = np.intersect1d(pool.keys[rows[one]], pool.keys[rows[other]])
        if len(shared):
            first = [dict(zip(pool.keys[rows[part]][::-1], rows[part][::-1], strict=True)) for part in (one, other)]
            pairs = sorted(
                (np.array([by_key[key] for by_key in first]) for key in shared), key=lambda pair: int(pair[0])
            )
            names = images.names_of_splits
            found.append(
                f"{len(shared):,} image{'s lie' if len(shared) > 1 else ' lies'} in {names[one]} and in "
                f"{names[other]}: {_examples(pairs, pool, images)}; they make the metrics of {other} too good"
            )
    return found


def _sharing(keys: np.ndarray) -> list[np.ndarray]:
    """Indices of each group of two or more images that share a key."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order])) + 1
    return [group for group in np.split(order, starts) if len(group) > 1]


def _examples(groups: list[np.ndarray], pool: Pool, images: ImageFiles) -> str:
    return listed(" = ".join(images.relative(pool.files[row]) for row in group[:2].tolist()) for group in groups)


def _small_classes(by_class: Mapping[str, Mapping[str, int]], pool: Pool) -> list[str]:
    """Classes of which a split has no image."""
    found, kind, classes = [], pool.task.stratum[0], {*pool.classes}
    counts = {name: each for name, each in by_class.items() if name in classes}
    single = [name for name, each in counts.items() if sum(each.values()) == 1]
    if single:
        found.append(
            f"a {kind} needs 3 images to be trained, validated and tested on, got 1 of {named(single)}, which is for "
            f"training: no metric covers it; add images, or remove the {kind}"
        )
    return [*found, *without_images(counts, single)]


def _coarse(rows: Mapping[str, Rows], scheme: Cut, task: Task) -> list[str]:
    few = {part: len(rows[part]) for part in ("validation", "test") if len(rows[part]) < FEW}
    if not few:
        return []
    parts = {TOLD[part]: len(rows[part]) for part in PARTS}
    if isinstance(scheme.validation, Folds):  # each image is validated on by the network that didn't learn from it
        parts = {f"training and validation in {scheme.validation.count} folds": parts[TOLD["validation"]]} | {
            TOLD["test"]: parts[TOLD["test"]]
        }
    sizes = ", ".join(f"{count:,} for {part}" for part, count in parts.items())
    worst = "validation" if "validation" in few else "test"
    error = f"of 0.9 on {few[worst]} images has a standard error of {sqrt(0.9 * 0.1 / few[worst]):.2f}, so"
    share = f" a {'val' if worst == 'validation' else 'test'}_{task.shares[0]} {error}" if task.shares else ""
    small = "small differences between trials mean nothing" if worst == "validation" else "it is only roughly known"
    more = ", or validate on more of them, with validation=0.2 or validation=Folds(5)"
    return [
        f"the images are few, {sizes}:{share} {small}; add images"
        f"{more if worst == 'validation' and scheme.validation is None else ''}"
    ]
