"""A trial's data: found or downloaded, cut into training, validation and test, and kept for the next trial."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch

from tuner.machine import this_machine
from tuner.train.data.cache import cache_key
from tuner.train.data.cutting import Cut, Rows, cut
from tuner.train.data.folder_reading import ImageFiles
from tuner.train.data.given import given_splits
from tuner.train.data.pool import PARTS, Pool
from tuner.train.data.reading import read_pool
from tuner.train.data.splits import HeldSplit, Split, Splits, StreamedSplit
from tuner.train.download import fetch_data
from tuner.trial import ImageClassifier
from tuner.trial.data_source import Source


def load_splits(trial: ImageClassifier, *, seed: int, image_size: int | None = None) -> Splits:
    """The trial's data, downloaded if need be, cut with `seed`; kept in the process for the next trial.

    The tensors are shared between callers, and with the other processes of this machine: read, never written.

    Args:
        trial: names the data
        seed: decides the cut
        image_size: edge in pixels; None for the trial's default

    Raises:
        DataError: the data is missing, damaged, or too little to cut.
    """
    pixels = image_size or trial.default_image_size
    if not isinstance(trial.data, str):
        return given_splits(trial.data, pixels, seed=seed)
    source, folder = trial.source, trial.data_folder.absolute()
    fetch_data(source, folder)
    source.check(folder)
    scheme = Cut(seed, trial.validation, trial.group)
    return _load(source, folder, source.signature(folder), scheme, pixels or 0, _memory_bytes(trial))


def load_pool(trial: ImageClassifier, *, image_size: int | None = None) -> Pool:
    """All images of a data set by name, downloaded if need be; raises DataError as `load_splits` does."""
    source, folder = trial.source, trial.data_folder.absolute()
    fetch_data(source, folder)
    source.check(folder)
    return read_pool(source, folder, image_size or trial.default_image_size or 0, _memory_bytes(trial))


def _memory_bytes(trial: ImageClassifier) -> float:
    """What images may take of the machine's memory."""
    if trial.data_memory_gb is not None:
        return trial.data_memory_gb * 1e9
    return this_machine().memory_bytes / 2


@lru_cache(maxsize=3)
def _load(source: Source, folder: Path, signature: object, scheme: Cut, image_size: int, memory_bytes: float) -> Splits:
    pool = read_pool(source, folder, image_size, memory_bytes)
    rows = cut(pool, scheme, source.name)
    splits = {part: _split(pool, rows[part], image_size) for part in PARTS}
    key = cache_key(pool.key, *scheme.key, image_size)
    return Splits(**splits, classes=pool.classes, notes=pool.notes, key=key)


def _split(pool: Pool, rows: Rows, image_size: int) -> Split:
    labels = torch.from_numpy(pool.labels[rows])
    if pool.images is None:
        files = [pool.files[row] for row in rows.tolist()]
        return StreamedSplit(ImageFiles(files, pool.labels[rows], image_size), labels, deterministic=True)
    pixels = None if pool.images.shape[-2:] == (image_size, image_size) else image_size
    return HeldSplit(pool.images, labels, torch.from_numpy(rows), pixels)
