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
from tuner.train.data.holding_out import Groups, numbered_groups
from tuner.train.data.images import UnreadableImage, max_pixels, pixel_key, read_image, resize
from tuner.train.data.pool import IMAGES, KEYS, LABELS, LEFT_OUT, PART, PARTS, SCALE, UNREADABLE, Pool, from_cache
from tuner.train.tasks import targets_of
from tuner.trial.data_source import Found, ImageFiles, by_path, listed
from tuner.trial.framing import Framing
from tuner.trial.pixels import DeepScale, with_one_scale
from tuner.trial.tasks import ONE_LABEL, Label

MOST_LEFT_OUT = 0.5  # of a class's images in a split: if more are unreadable, not only single files are wrong


class FilesDecodedLater(Dataset[tuple[Tensor]]):
    """Image files as RGB, brought to a size by `framing`, decoded when requested."""

    def __init__(self, files: Sequence[Path], framing: Framing, scale: DeepScale) -> None:
        self._files, self._framing, self._scale = files, framing, scale

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor]:
        image = read_image(self._files[index], scale=self._scale)
        return (resize(image[None], self._framing)[0],)


@dataclass(frozen=True)
class _Rows:
    """What is known of every image file; the split as an index into PARTS. See `Pool`."""

    files: list[Path]
    labels: np.ndarray
    kinds: np.ndarray
    parts: np.ndarray
    groups: Groups | None
    weights: np.ndarray | None

    @classmethod
    def of(cls, found: Found) -> _Rows:
        items, labels = found.items, [item.label for item in found.items]
        grouped, weighted = any(item.group is not None for item in items), len({item.weight for item in items}) > 1
        encoded = targets_of(found.task).encoded(labels, found.outputs)
        return cls(
            [item.path for item in items],
            encoded,
            encoded if found.task is ONE_LABEL else _membership(found, labels),
            np.array([PARTS.index(item.split) for item in items], np.int8),
            numbered_groups([item.group for item in items]) if grouped else None,
            np.array([item.weight for item in items], np.float32) if weighted else None,
        )


def _membership(found: Found, labels: Sequence[Label]) -> np.ndarray:
    """In which strata images are: [M] int64 if each is in one, otherwise [M, K] bool."""
    each = [found.strata.of(label) for label in labels]
    if all(len(places) == 1 for places in each):
        return np.array([place for (place,) in each], dtype=np.int64)
    kinds = np.zeros((len(each), len(found.strata.names)), dtype=np.bool_)
    for row, places in enumerate(each):
        kinds[row, list(places)] = True
    return kinds


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
        builder.facts["classes"] = list(found.outputs)
        builder.facts[SCALE] = asdict(scale)
        builder.facts[UNREADABLE] = [(source.relative(rows.files[index]), why) for index, why in problems.items()]

    outputs = () if found.task is ONE_LABEL else (found.task.name, *found.outputs)  # the content says which classes
    key = cache_key("folder, own numbers", source.content_key(), framing.key if held else None, max_pixels(), *outputs)
    pool = from_cache(key, build, rows.files, size if held else 0)
    pool = replace(pool, groups=rows.groups, weights=rows.weights, task=found.task)
    pool = replace(pool, kinds=rows.kinds, kind_names=found.strata.names)
    _check_enough(source, rows.parts, pool)
    pool = replace(pool, left_out=tuple(by_path((*pool.left_out, *found.left_out))))
    if held:
        return pool
    note = (
        f"{len(rows.files):,} images of {framing.pixels} pixels take {size / 1e9:.1f} GB, more than the "
        f"{memory_bytes / 1e9:.1f} GB that data may take: they are read from their files again in every epoch "
        "(data_memory_gb sets the limit)"
    )
    return replace(pool, images=None, notes=(*pool.notes, note))


def _check_enough(source: ImageFiles, parts: np.ndarray, pool: Pool) -> None:
    """Raise DataError if more than half of a class's images in a split, of `parts`, can't be read."""
    reasons = {each.path: each for each in pool.left_out}
    lost = pool.parts == LEFT_OUT
    for part, split in enumerate(PARTS):
        whole, without = pool.count(parts == part), pool.count(lost & (parts == part))
        for kind in np.flatnonzero(without > MOST_LEFT_OUT * whole):
            here = lost & (parts == part) & pool.is_of(int(kind))
            named = [reasons[source.relative(pool.files[row])] for row in np.flatnonzero(here).tolist()]
            raise DataError(
                f"at least half of a {pool.task.stratum[0]}'s images must be readable, got {len(named)} of "
                f"{whole[kind]} of '{pool.kind_names[kind]}' for {split} in {source.place} that aren't: "
                f"{listed(named)}; repair or remove them"
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
