"""Image files, decoded once per machine: unreadable files are found before any training and left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from tuner.errors import DataError
from tuner.machine.hardware import this_machine
from tuner.train.data.cache import Builder, cache_key
from tuner.train.data.holding_out import Groups, Labels, numbered_groups
from tuner.train.data.images import UnreadableImage, max_pixels, pixel_key, read_image, resize
from tuner.train.data.pool import IMAGES, KEYS, LABELS, LEFT_OUT, PART, PARTS, SCALE, UNREADABLE, Pool, from_cache
from tuner.trial.data_source import Found, ImageFiles, by_path, listed
from tuner.trial.framing import Framing
from tuner.trial.pixels import DeepScale, with_one_scale

MOST_LEFT_OUT = 0.5  # of a class's images in a split: if more are unreadable, not only single files are wrong


class FilesDecodedLater(Dataset[tuple[Tensor, int]]):
    """Image files as RGB, brought to a size by `framing`, decoded when requested."""

    def __init__(self, files: Sequence[Path], labels: Labels, framing: Framing, scale: DeepScale) -> None:
        self._files, self._labels, self._framing, self._scale = files, labels, framing, scale

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = read_image(self._files[index], scale=self._scale)
        return resize(image[None], self._framing)[0], int(self._labels[index])


@dataclass(frozen=True)
class _Rows:
    """What is known of every image file; class and split as indices into `classes` and PARTS. See `Pool`."""

    files: list[Path]
    labels: Labels
    parts: np.ndarray
    classes: list[str]
    groups: Groups | None
    weights: np.ndarray | None

    @classmethod
    def of(cls, found: Found) -> _Rows:
        items, classes = found.items, list(found.classes)
        numbers = {name: number for number, name in enumerate(classes)}
        grouped, weighted = any(item.group is not None for item in items), len({item.weight for item in items}) > 1
        return cls(
            [item.path for item in items],
            np.array([numbers[item.label] for item in items], dtype=np.int64),
            np.array([PARTS.index(item.split) for item in items], np.int8),
            classes,
            numbered_groups([item.group for item in items]) if grouped else None,
            np.array([item.weight for item in items], np.float32) if weighted else None,
        )


def read_files(source: ImageFiles, framing: Framing, memory_bytes: float) -> Pool:
    """Image files of any size and mode, as RGB: decoded once if they fit into memory, otherwise only checked.

    Raises:
        DataError: as `ImageFiles.look`; or most of a class's images can't be read, or the disk fails.
    """
    found = source.look()
    rows = _Rows.of(found)
    size = len(rows.files) * 3 * framing.pixels**2
    held = size <= memory_bytes

    def build(builder: Builder) -> None:
        keys = builder.array(KEYS, (len(rows.files),), np.uint64)
        images = builder.array(IMAGES, (len(rows.files), 3, framing.pixels, framing.pixels), np.uint8) if held else None

        def decode(row: int, scale: DeepScale | None) -> None:
            image = read_image(rows.files[row], scale=scale)
            keys[row] = pixel_key(image)
            if images is not None:
                images[row] = resize(image[None], framing)[0].numpy()

        problems, scale = _for_each(len(rows.files), decode)
        parts = rows.parts.copy()
        parts[list(problems)] = LEFT_OUT
        builder.put(LABELS, rows.labels)
        builder.put(PART, parts)
        builder.facts["classes"] = rows.classes
        builder.facts[SCALE] = asdict(scale)
        builder.facts[UNREADABLE] = [(source.relative(rows.files[index]), why) for index, why in problems.items()]

    key = cache_key("folder, own numbers", source.content_key(), framing.key if held else None, max_pixels())
    pool = from_cache(key, build, rows.files, size if held else 0)
    _check_enough(source, rows, pool)
    left_out = tuple(by_path((*pool.left_out, *found.left_out)))
    pool = replace(pool, left_out=left_out, groups=rows.groups, weights=rows.weights)
    if held:
        return pool
    note = (
        f"{len(rows.files):,} images of {framing.pixels} pixels take {size / 1e9:.1f} GB, more than the "
        f"{memory_bytes / 1e9:.1f} GB that data may take: they are read from their files again in every epoch "
        "(data_memory_gb sets the limit)"
    )
    return replace(pool, images=None, notes=(*pool.notes, note))


def _check_enough(source: ImageFiles, rows: _Rows, pool: Pool) -> None:
    """Raise DataError if more than half of a class's images in a split can't be read."""
    reasons = {each.path: each for each in pool.left_out}
    lost = pool.parts == LEFT_OUT
    for part, label in sorted(set(zip(rows.parts[lost].tolist(), rows.labels[lost].tolist(), strict=True))):
        here = (rows.parts == part) & (rows.labels == label)
        if (lost & here).sum() > MOST_LEFT_OUT * here.sum():
            named = [reasons[source.relative(rows.files[row])] for row in np.flatnonzero(lost & here)]
            raise DataError(
                f"at least half of a class's images must be readable, got {len(named)} of {here.sum()} of "
                f"'{rows.classes[label]}' for {PARTS[part]} in {source.place} that aren't: {listed(named)}; repair or "
                "remove them"
            )


def _for_each(count: int, work: Callable[[int, DeepScale | None], None]) -> tuple[dict[int, str], DeepScale]:
    """Run `work` on all rows, on as many threads as there are CPUs: decoders release Python's lock.

    Returns:
        by row, why a file can't be read; and the scale of the deep images.
    """

    def tried(row: int, scale: DeepScale | None) -> str | None:
        try:
            work(row, scale)
        except UnreadableImage as error:
            return error.reason
        return None

    with ThreadPoolExecutor(this_machine().cpus) as threads:
        problems, scale = with_one_scale(tried, range(count), threads.map)
    return {row: problem for row, problem in enumerate(problems) if problem is not None}, scale
