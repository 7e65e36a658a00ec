"""A first look at the images of a data set: its content, files that can't be read, and images that are alike."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from tuner.errors import DataError
from tuner.first_study.likeness import Likeness, likeness
from tuner.first_study.pictures import Picture, see
from tuner.trial.data_source import Found, ImageFiles, Item, LeftOut, listed
from tuner.trial.folder_headers import FolderHeaders, folder_headers
from tuner.trial.splitting import Folds
from tuner.trial.tasks import ONE_LABEL, Task

TOLD = {"train": "training", "validation": "validation", "test": "test"}
GROUP_PATTERNS = (r"^([^_]+)_", r"^(.+)_[^_]+$", r"^([^-]+)-", r"^(.+)-[^-]+$", r"^(.+?)[ (]+\d+\)?\.[^.]+$")
EXPLAINED = 0.9  # of the groups of similar images that a pattern has to keep together
LARGEST_GROUP = 0.1  # of the images
FEWEST_GROUPS = 20
FOLDS = Folds(5)  # of a solved head, whose images are all for training and for validation
FEW_IMAGES = 1_000  # of training images; with fewer a fifth is held out for validation
GREY = 0.9  # of the images, for a data set to be grey


@dataclass(frozen=True)
class FirstLook:
    """What was seen.

    Attributes:
        images: that were looked at
        headers: counts, sizes, modes; its counts and left-out files are from decoding all images
        shorter: pixels of the median image's shorter side
        grey: share of the images without colours
        places: the images that can be read
        alike: similar images among these
        group: pattern of file names that keeps similar images together; None for none
    """

    images: ImageFiles
    headers: FolderHeaders
    shorter: int
    grey: float
    places: tuple[Item, ...]
    alike: Likeness
    group: str | None

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the folder has."""
        return tuple(self.headers.splits)

    def count(self, split: str) -> int:
        """Images of a split that can be read."""
        return self.headers.splits.get(split, 0)

    @property
    def validation(self) -> float | str:
        """See `held_out`."""
        return held_out(self.splits, self.count("train"))

    def cross_validation(self, group: str | None) -> Folds | None:
        """`FOLDS`, if the user has no validation split, and each class keeps images that are apart for each fold.

        `group`: pattern of file names that belong together; None for the one that was found.
        """
        copies = {index for same in self.alike.same for index in same[1:]}
        pattern, apart = group or self.group, defaultdict[object, set[str]](set)
        for index, item in enumerate(self.places):
            if item.split == "train" and index not in copies:
                apart[item.label].add(item.group or (pattern and group_of(item.path.name, pattern)) or item.file)
        return _folds(self.headers.task, self.splits, min(map(len, apart.values()), default=0))

    @property
    def uneven(self) -> float:
        """The training images of the largest class or label divided by those of the smallest; 1 for a number."""
        if not self.headers.task.has_classes:
            return 1.0
        counts = [self.headers.counts.get(name, {}).get("train", 0) for name in self.images.class_names() or ()]
        return max(counts) / max(1, min(counts))

    @property
    def has_groups(self) -> bool:
        """Whether the data says which images belong together."""
        return any(item.group is not None for item in self.places)

    @property
    def is_grey(self) -> bool:
        """Whether nearly all images are grey."""
        return self.grey >= GREY

    @property
    def notices(self) -> list[str]:
        """What the user should know, in sentences."""
        return [*self.headers.notices, *_told(self, self.alike.same, SAME), *_near(self)]

    def record(self) -> dict[str, Any]:
        """The look as plain data."""
        told = {
            name: [[self.images.relative(self.places[index].file) for index in group] for group in groups]
            for name, groups in (("same", self.alike.same), ("alike", self.alike.near))
        }
        return {
            **self.headers.record(),
            "notices": self.notices,
            "shorter_side": self.shorter,
            "grey": round(self.grey, 3),
            **told,
            "group": self.group,
        }


def look(
    images: ImageFiles, tell: Callable[[int, int], None] = lambda done, total: None, *, random: bool = False
) -> FirstLook:
    """Look at all images of a data set.

    Args:
        images: a folder or a table
        tell: is called with how many images are decoded, of how many
        random: whether the study will train from random weights

    Raises:
        DataError: as `ImageFiles.look`; or most of a class's images can't be read, which a search refuses.
    """
    found = images.look()
    fewest = 0 if random else min(found.counts[name, "train"] for name in found.strata.names)
    cut = _folds(found.task, found.splits, fewest) or held_out(found.splits, found.images["train"])
    headers = folder_headers(images, validation=cut, identical=False)
    seen, scale = see([item.path for item in found.items], tell)
    left_out = {each.path: each for each in headers.left_out}
    left_out |= {
        (name := images.relative(item.file)): LeftOut(name, picture)
        for item, picture in zip(found.items, seen, strict=True)
        if isinstance(picture, str)
    }
    read = [(item, picture) for item, picture in zip(found.items, seen, strict=True) if isinstance(picture, Picture)]
    kept = tuple(item for item, _ in read)
    pictures = [picture for _, picture in read]
    read_ones = found.counted(Counter((item.label, item.split) for item in kept))
    counts = {name: {part: read_ones[name, part] for part in each} for name, each in headers.counts.items()}
    _check_readable(images, found, counts)
    files = [item.path for item in kept]
    alike = likeness(files, pictures, scale)
    return FirstLook(
        images=images,
        headers=replace(
            headers,
            counts=counts,
            splits=dict(Counter(item.split for item in kept)),
            left_out=tuple(left_out[each] for each in sorted(left_out)),
        ),
        shorter=round(median(min(picture.size) for picture in pictures)) if pictures else 0,
        grey=sum(picture.grey for picture in pictures) / max(1, len(pictures)),
        places=kept,
        alike=alike,
        group=None if any(item.group for item in kept) else _pattern([file.name for file in files], alike.near),
    )


def held_out(splits: Sequence[str], train: int) -> float | str:
    """The `validation=` of a first study without folds, from the folder's splits and its number of training images."""
    if "validation" in splits:
        return "folder"
    return 0.2 if train < FEW_IMAGES else 0.1


def _folds(task: Task, splits: Sequence[str], fewest: int) -> Folds | None:
    """`FOLDS` if the smallest class has `fewest` training images, one of which may be held out for the test."""
    enough = fewest >= FOLDS.count + ("test" not in splits)
    return FOLDS if enough and task is ONE_LABEL and "validation" not in splits else None


def _check_readable(images: ImageFiles, found: Found, read: dict[str, dict[str, int]]) -> None:
    for (name, part), count in found.counts.items():
        if read[name][part] < count / 2:
            raise DataError(
                f"at least half of a {found.task.stratum[0]}'s images must be readable, got {read[name][part]} of "
                f"{count} in {TOLD[part]} of '{name}' in {images.place}; repair or remove the others"
            )


def group_of(name: str, pattern: str) -> str | None:
    """The part of a file's name that its group shares: the pattern's first group, else its match; None if neither."""
    match = re.search(pattern, name)
    if match is None:
        return None
    return match[1] if match.re.groups and match[1] is not None else match[0]


def _pattern(names: Sequence[str], alike: Sequence[Sequence[int]]) -> str | None:
    """A pattern that groups files that are alike, and leaves enough groups for the cut into splits."""
    if not alike:
        return None
    for pattern in GROUP_PATTERNS:
        groups = [group_of(name, pattern) or name for name in names]
        sizes: dict[str, int] = {}
        for group in groups:
            sizes[group] = sizes.get(group, 0) + 1
        held = sum(len({groups[index] for index in each}) == 1 for each in alike)
        enough = len(sizes) >= FEWEST_GROUPS and max(sizes.values()) <= max(2, LARGEST_GROUP * len(names))
        if enough and held >= EXPLAINED * len(alike):
            return pattern
    return None


# Sentences


@dataclass(frozen=True)
class _Words:
    """The words for images that are the same, or that are alike."""

    sign: str
    lies: str
    lie: str
    fix: str


SAME = _Words("=", "is there", "are there", "no model can get both right, so delete the wrong ones")
ALIKE = _Words("~", "has a near duplicate", "have near duplicates", "look whether their labels are right")


def _told(look: FirstLook, groups: Sequence[Sequence[int]], words: _Words) -> Iterator[str]:
    """Sentences about similar images with one label, with different labels, in two splits."""
    task = look.headers.task
    across = [group for group in groups if len({look.places[index].label for index in group}) > 1]
    leaks = [group for group in groups if len({look.places[index].split for index in group}) > 1]
    within = [group for group in groups if group not in across and group not in leaks]
    if within and words is SAME:
        count = _count(within, "image is", "images are")
        yield f"{count} there more than once {task.alike}: {_pairs(look, within, '=')}"
    for found, where, fix in (
        (across, task.differing, words.fix),
        (leaks, "in two splits", "they make the later split's metrics too good"),
    ):
        if found:
            count = _count(found, f"image {words.lies} {where}", f"images {words.lie} {where}")
            yield f"{count}: {_pairs(look, found, words.sign)}; {fix}"


def _near(look: FirstLook) -> Iterator[str]:
    exact = [set(group) for group in look.alike.same]
    near = [group for group in look.alike.near if not any(set(group) <= one for one in exact)]
    if not near:
        return
    yield from _told(look, near, ALIKE)
    held = "group= in ImageClassifier keeps files on one side of a cut by their names, else metrics may be too good"
    if look.has_groups:
        held = "the table's groups keep images on one side of a cut, if they say so"
    elif look.group:
        held = f"group=r'{look.group}' keeps them on one side of a cut by their names"
    groups = _count(near, "group", "groups")
    yield f"{sum(map(len, near)):,} images in {groups} are near duplicates: {_pairs(look, near, '~')}; {held}"


def _count(groups: Sequence[object], one: str, many: str) -> str:
    return f"{len(groups):,} {one if len(groups) == 1 else many}"


def _pairs(look: FirstLook, groups: Sequence[Sequence[int]], sign: str) -> str:
    def files(group: Sequence[int]) -> list[str]:
        return [look.images.relative(look.places[index].file) for index in _different(look, group)]

    return listed(f" {sign} ".join(files(group)) for group in groups)


def _different(look: FirstLook, group: Sequence[int]) -> list[int]:
    """Two images of a group, if possible of different classes or splits."""
    first = look.places[group[0]][1:3]  # class and split
    return [group[0], next((index for index in group[1:] if look.places[index][1:3] != first), group[1])]
