"""Facts about a folder of images, found in seconds from headers and file sizes, without torch, for `tuner check`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.space.values import is_number
from tuner.storage.regular_files import sha256
from tuner.trial.data_source import Folder, Found, LeftOut
from tuner.trial.image_limits import most_pixels_alone, too_large
from tuner.trial.splitting import Folds, Validation

MOST_OPENED = 5_000  # images whose headers are read, spread over all of them
MOST_HASHED_BYTES = 2 * 10**9  # of files that have the same size as another file
NAMED = 3  # examples in a sentence
SPLITS = ("train", "validation", "test")
FOLDERS = {"train": "train/", "validation": "val/", "test": "test/"}
FEW = 50  # with fewer images a split's figures are coarse
UNEVEN = 10  # the largest class has this many times the images of the smallest

Place = tuple[str, str, Path]  # split, class, file


@dataclass(frozen=True)
class FolderHeaders:
    """What the names, sizes and headers of files say about a folder of images.

    Attributes:
        counts: images by class and split, except for those whose headers say that they can't be read
        opened: images whose headers were read
        sizes: width and height of the smallest, the median and the largest of these; None without any
        modes: how many of these have each of Pillow's modes, such as RGB and L
        left_out: what a search would leave out, as far as that can be seen
        notices: sentences
    """

    counts: dict[str, dict[str, int]]
    opened: int
    sizes: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None
    modes: dict[str, int]
    left_out: tuple[LeftOut, ...]
    notices: tuple[str, ...]

    @property
    def images(self) -> int:
        """The number of all images."""
        return sum(sum(each.values()) for each in self.counts.values())

    def record(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "images": self.images,
            "classes": self.counts,
            "opened": self.opened,
            "sizes": self.sizes,
            "modes": self.modes,
            "left_out": [{"path": each.path, "reason": f"it {each.reason}"} for each in self.left_out],
            "notices": list(self.notices),
        }


def folder_headers(folder: Folder, *, validation: Validation = None, identical: bool = True) -> FolderHeaders:
    """Look at a folder of images; raises DataError if it isn't laid out as a class per subfolder.

    `validation` is the study's; `identical=False` leaves out the search for identical files, for callers that decode
    all files.
    """
    found = folder.look()
    places = [
        (part, name, path)
        for part, classes in found.images.items()
        for name, paths in classes.items()
        for path in paths
    ]
    sizes, modes, unreadable = _opened(folder, places)
    left_out = tuple(sorted((*found.left_out, *unreadable), key=lambda each: each.path))
    counts = _counts(folder, found, {each.path for each in unreadable})
    return FolderHeaders(
        counts,
        sum(modes.values()) + len(unreadable),
        (sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else None,
        dict(modes.most_common()),
        left_out,
        (
            *_uneven(counts),
            *_single(counts),
            *without_images(counts),
            *_cut(counts, validation),
            *(_duplicates(folder, places) if identical else ()),
        ),
    )


def _counts(folder: Folder, found: Found, unreadable: set[str]) -> dict[str, dict[str, int]]:
    def readable(files: Sequence[Path]) -> int:
        return len(files) - (sum(folder.relative(file) in unreadable for file in files) if unreadable else 0)

    return {
        name: {part: readable(classes.get(name, ())) for part, classes in found.images.items()}
        for name in found.images["train"]
    }


def _opened(folder: Folder, places: list[Place]) -> tuple[list[tuple[int, int]], Counter[str], list[LeftOut]]:
    """Sizes in pixels, the smallest first, modes, and what isn't an image; nothing if Pillow isn't installed."""
    try:
        from PIL import Image

        from tuner.trial.pixels import FORMATS
    except ImportError:
        return [], Counter(), []
    sizes: list[tuple[int, int]] = []
    modes: Counter[str] = Counter()
    unreadable: list[LeftOut] = []
    step = -(-len(places) // MOST_OPENED)
    with most_pixels_alone() as limit:  # nothing is decoded here
        for _, _, path in places[:: max(1, step)]:
            try:
                with Image.open(path, formats=FORMATS) as image:
                    size, mode = image.size, image.mode
            except Exception:  # decoders may raise anything for a damaged file
                reason = "is no image, or a damaged one" if path.stat().st_size else "is empty"
                unreadable.append(LeftOut(folder.relative(path), reason))
                continue
            if size[0] * size[1] > limit:
                unreadable.append(LeftOut(folder.relative(path), too_large(size[0] * size[1], limit)))
            else:
                sizes.append(size)
                modes[mode] += 1
    return sorted(sizes, key=lambda size: size[0] * size[1]), modes, unreadable


def _uneven(counts: dict[str, dict[str, int]]) -> Iterator[str]:
    training = {name: each["train"] for name, each in counts.items()}
    most, fewest = max(training, key=training.__getitem__), min(training, key=training.__getitem__)
    if training[most] >= UNEVEN * training[fewest]:
        yield (
            f"the classes are uneven: '{most}' has {training[most]:,} images for training, '{fewest}' "
            f"{training[fewest]:,}; class_weights may help, and val_f1 says more than val_accuracy"
        )


def _single(counts: dict[str, dict[str, int]]) -> Iterator[str]:
    single = [name for name, each in counts.items() if sum(each.values()) < 3]
    if single:
        yield (
            "a class needs 3 images to be trained, validated and tested on, got fewer of "
            f"{named(single)}; add images, or remove the class"
        )


def without_images(counts: Mapping[str, Mapping[str, int]], told: Collection[str] = ()) -> Iterator[str]:
    """A sentence for each split that has images, but none of some classes, which are not among those `told`."""
    for part in ("validation", "test"):
        without = [name for name, each in counts.items() if not each.get(part) and name not in told]
        if without and any(each.get(part) for each in counts.values()):
            yield f"{part} has no image of {named(without)}, so its metrics don't cover it; add images"


def _cut(counts: dict[str, dict[str, int]], validation: Validation) -> Iterator[str]:
    """What a split will take of the training images, if a folder only has some of the splits or few images."""
    whole = {part: sum(each.get(part, 0) for each in counts.values()) for part in SPLITS}
    folded = isinstance(validation, Folds)
    missing = [part for part in ("validation", "test") if not whole[part]]
    if len(missing) == 1 and not (folded and missing == ["validation"]):
        yield (
            f"there is no {FOLDERS[missing[0]]} beside train/, so a share of its {whole['train']:,} training images "
            f"is held out for {missing[0]}; add {FOLDERS[missing[0]]} to keep them"
        )
    held = {"validation": validation if is_number(validation) else 0.1, "test": 0.1}
    few = {part: round(held[part] * whole["train"]) if part in missing else whole[part] for part in held}
    if isinstance(validation, Folds):
        del few["validation"]  # every image is used for validation once
    if min(few.values()) < FEW:
        told = " and ".join(f"{'about ' * (part in missing)}{count:,} for {part}" for part, count in few.items())
        more = ", or hold out more with validation=" if validation is None and "validation" in missing else ""
        yield f"the images are few, {told}: small differences between trials mean nothing; add images{more}"


def _duplicates(folder: Folder, places: list[Place]) -> Iterator[str]:
    """Files with the same content: in one class, in two classes, in two splits."""
    within, across, leaks = [], [], []
    for same in _same_content(places):
        pair = " = ".join(folder.relative(path) for _, _, path in same[:2])
        if len({name for _, name, _ in same}) > 1:
            across.append(pair)
        if len({part for part, _, _ in same}) > 1:
            leaks.append(pair)
        if len({(part, name) for part, name, _ in same}) == 1:
            within.append(pair)
    if within:
        yield f"{_images(len(within))} more than once in a class (copies stay on one side of a cut): {_listed(within)}"
    if across:
        yield f"{_images(len(across))} in two classes: {_listed(across)}; delete the wrong ones"
    if leaks:
        yield f"{_images(len(leaks))} in two splits: {_listed(leaks)}; they make the later split's metrics too good"


def _same_content(places: list[Place]) -> Iterator[list[Place]]:
    """Groups of two or more files that are identical byte for byte."""
    by_size: dict[int, list[Place]] = defaultdict(list)
    for place in places:
        by_size[place[2].stat().st_size].append(place)
    left = MOST_HASHED_BYTES
    for size, alike in sorted(by_size.items()):
        left -= size * len(alike) if len(alike) > 1 else 0
        if len(alike) < 2 or size == 0 or left < 0:
            continue
        by_content: dict[str, list[Place]] = defaultdict(list)
        for place in alike:
            by_content[sha256(place[2])].append(place)
        yield from (group for group in by_content.values() if len(group) > 1)


def _images(count: int) -> str:
    return "1 image is there" if count == 1 else f"{count:,} images are there"


def named(classes: Iterable[str]) -> str:
    """The first classes, quoted, and how many more there are."""
    return _listed(map(repr, classes))


def _listed(names: Iterable[str]) -> str:
    told = list(names)
    more = [f"and {len(told) - NAMED:,} more"] if len(told) > NAMED else []
    return ", ".join([*told[:NAMED], *more])
