"""Facts about image files, found in seconds from headers and file sizes, without torch, for `tuner check`."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.space.values import is_number
from tuner.storage.regular_files import sha256
from tuner.trial.data_source import Found, ImageFiles, Item, LeftOut, by_path, listed
from tuner.trial.image_limits import most_pixels_alone, too_large
from tuner.trial.splitting import Folds, Validation
from tuner.trial.tasks import Task

MOST_OPENED = 5_000  # images whose headers are read, spread over all of them
MOST_HASHED_BYTES = 2 * 10**9  # of files that have the same size as another file
OPENING_BYTES = 50_000  # that could be hashed while a file is opened
SPLITS = ("train", "validation", "test")
FEW = 50  # with fewer images a split's figures are coarse
UNEVEN = 10  # the largest class has this many times the images of the smallest


@dataclass(frozen=True)
class FolderHeaders:
    """What the names, sizes and headers of files say about images.

    Attributes:
        counts: images by stratum and split, except for those whose headers say that they can't be read
        splits: images by split, likewise
        opened: images whose headers were read
        sizes: width and height of the smallest, the median and the largest of these; None without any
        modes: how many of these have each of Pillow's modes, such as RGB and L
        left_out: what a search would leave out, as far as that can be seen
        notices: sentences
        task: what labels are
        content: what the images have in all, see `Task.content`
    """

    counts: dict[str, dict[str, int]]
    splits: dict[str, int]
    opened: int
    sizes: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None
    modes: dict[str, int]
    left_out: tuple[LeftOut, ...]
    notices: tuple[str, ...]
    task: Task
    content: str

    @property
    def images(self) -> int:
        """The number of all images."""
        return sum(self.splits.values())

    def record(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "task": self.task.name,
            "images": self.images,
            "classes": self.counts,
            "opened": self.opened,
            "sizes": self.sizes,
            "modes": self.modes,
            "left_out": [{"path": each.path, "reason": f"it {each.reason}"} for each in self.left_out],
            "notices": list(self.notices),
        }


def folder_headers(images: ImageFiles, *, validation: Validation = None, identical: bool = True) -> FolderHeaders:
    """Look at image files; raises DataError as `ImageFiles.look` does.

    `validation` is the study's; `identical=False` leaves out the search for identical files, for callers that decode
    all files.
    """
    found = images.look()
    sizes, modes, unreadable = _opened(images, found.items)
    left_out = tuple(by_path((*found.left_out, *unreadable)))
    lost = {each.path for each in unreadable}
    gone = [item for item in found.items if images.relative(item.file) in lost] if lost else []
    counts = _counts(found, gone)
    outputs = {*found.outputs} if found.task.has_classes else {*counts}  # without those that only say "no label"
    kinds = {name: each for name, each in counts.items() if name in outputs}
    splits = dict(found.images - Counter(item.split for item in gone))
    return FolderHeaders(
        counts,
        splits,
        sum(modes.values()) + len(unreadable),
        (sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else None,
        dict(modes.most_common()),
        left_out,
        (
            *found.notices,
            *(_of_classes(kinds, found.task) if found.task.has_classes else ()),
            *_cut(images, splits, validation),
            *(_duplicates(images, found) if identical else ()),
        ),
        found.task,
        found.content,
    )


def _counts(found: Found, gone: Sequence[Item]) -> dict[str, dict[str, int]]:
    each = found.counts - found.counted(Counter((item.label, item.split) for item in gone))
    return {name: {part: each[name, part] for part in found.splits} for name in found.classes}


def _opened(images: ImageFiles, items: Sequence[Item]) -> tuple[list[tuple[int, int]], Counter[str], list[LeftOut]]:
    """Sizes in pixels, the smallest first, modes, and what isn't an image; nothing if Pillow isn't installed."""
    try:
        from PIL import Image

        from tuner.trial.pixels import FORMATS
    except ImportError:
        return [], Counter(), []
    sizes: list[tuple[int, int]] = []
    modes: Counter[str] = Counter()
    unreadable: list[LeftOut] = []
    step = -(-len(items) // MOST_OPENED)
    with most_pixels_alone() as limit:  # nothing is decoded here
        for item in items[:: max(1, step)]:
            try:
                with Image.open(item.file, formats=FORMATS) as image:
                    size, mode = image.size, image.mode
            except Exception:  # decoders may raise anything for a damaged file
                reason = "is no image, or a damaged one" if item.path.stat().st_size else "is empty"
                unreadable.append(LeftOut(images.relative(item.file), reason))
                continue
            if size[0] * size[1] > limit:
                unreadable.append(LeftOut(images.relative(item.file), too_large(size[0] * size[1], limit)))
            else:
                sizes.append(size)
                modes[mode] += 1
    return sorted(sizes, key=lambda size: size[0] * size[1]), modes, unreadable


def _of_classes(counts: dict[str, dict[str, int]], task: Task) -> Iterator[str]:
    yield from _uneven(counts, task)
    yield from _single(counts, task)
    yield from without_images(counts)


def _uneven(counts: dict[str, dict[str, int]], task: Task) -> Iterator[str]:
    training = {name: each["train"] for name, each in counts.items()}
    most, fewest = max(training, key=training.__getitem__), min(training, key=training.__getitem__)
    if training[most] >= UNEVEN * training[fewest]:
        yield (
            f"the {task.stratum[1]} are uneven: '{most}' has {training[most]:,} images for training, '{fewest}' "
            f"{training[fewest]:,}; {task.when_uneven}"
        )


def _single(counts: dict[str, dict[str, int]], task: Task) -> Iterator[str]:
    single = [name for name, each in counts.items() if sum(each.values()) < 3]
    if single:
        yield (
            f"a {task.stratum[0]} needs 3 images to be trained, validated and tested on, got fewer of "
            f"{named(single)}; add images, or remove the {task.stratum[0]}"
        )


def without_images(counts: Mapping[str, Mapping[str, int]], told: Collection[str] = ()) -> Iterator[str]:
    """A sentence for each split that has images, but none of some classes, which are not among those `told`."""
    for part in ("validation", "test"):
        without = [name for name, each in counts.items() if not each.get(part) and name not in told]
        if without and any(each.get(part) for each in counts.values()):
            yield f"{part} has no image of {named(without)}, so its metrics don't cover it; add images"


def _cut(images: ImageFiles, splits: Mapping[str, int], validation: Validation) -> Iterator[str]:
    """What a split will take of the training images, if there are only some of the splits or few images."""
    whole = {part: splits.get(part, 0) for part in SPLITS}
    folded = isinstance(validation, Folds)
    missing = [part for part in ("validation", "test") if not whole[part]]
    if len(missing) == 1 and not (folded and missing == ["validation"]):
        yield without_split(images, missing[0], f"a share of its {whole['train']:,} training images is")
    held = {"validation": validation if is_number(validation) else 0.1, "test": 0.1}
    few = {part: round(held[part] * whole["train"]) if part in missing else whole[part] for part in held}
    if isinstance(validation, Folds):
        del few["validation"]  # every image is used for validation once
    if min(few.values()) < FEW:
        told = " and ".join(f"{'about ' * (part in missing)}{count:,} for {part}" for part, count in few.items())
        more = ", or hold out more with validation=" if validation is None and "validation" in missing else ""
        yield f"the images are few, {told}: small differences between trials mean nothing; add images{more}"


def without_split(images: ImageFiles, part: str, share: str) -> str:
    """The sentence about a split that is missing, for which `share` of the training images is held out."""
    own, train = images.names_of_splits[part], images.names_of_splits["train"]
    return f"there is no {own} beside {train}, so {share} held out for {part}; add {own} to keep them"


def _duplicates(images: ImageFiles, found: Found) -> Iterator[str]:
    """Files with the same content: with one label, with different labels, in two splits."""
    within, across, leaks = [], [], []
    for same in _same_content(found.items):
        pair = " = ".join(images.relative(item.file) for item in same[:2])
        if len({item.label for item in same}) > 1:
            across.append(pair)
        if len({item.split for item in same}) > 1:
            leaks.append(pair)
        if len({(item.split, item.label) for item in same}) == 1:
            within.append(pair)
    if within:
        where = f"more than once {found.task.alike} (copies stay on one side of a cut)"
        yield f"{_images(len(within))} {where}: {listed(within)}"
    if across:
        yield f"{_images(len(across))} {found.task.differing}: {listed(across)}; delete the wrong ones"
    if leaks:
        yield f"{_images(len(leaks))} in two splits: {listed(leaks)}; they make the later split's metrics too good"


def _same_content(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Groups of two or more files that are identical byte for byte."""
    by_size: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        by_size[os.stat(item.file).st_size].append(item)  # noqa: PTH116 -- of many thousands
    left = MOST_HASHED_BYTES
    for size, alike in sorted(by_size.items()):
        left -= max(size, OPENING_BYTES) * len(alike) if len(alike) > 1 else 0
        if len(alike) < 2 or size == 0 or left < 0:
            continue
        by_content: dict[str, list[Item]] = defaultdict(list)
        for item in alike:
            by_content[sha256(item.path)].append(item)
        yield from (group for group in by_content.values() if len(group) > 1)


def _images(count: int) -> str:
    return "1 image is there" if count == 1 else f"{count:,} images are there"


def named(classes: Iterable[str]) -> str:
    """The first classes, quoted, and how many more there are."""
    return listed(map(repr, classes))
