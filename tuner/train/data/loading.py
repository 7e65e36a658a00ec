"""A trial's data: found or downloaded, cut into training, validation and test, and kept for the next trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch

from tuner.errors import DataError
from tuner.machine.hardware import this_machine
from tuner.train.data.by_name import DATA_SETS, Arrays
from tuner.train.data.cache import Builder, cache_key
from tuner.train.data.cutting import Cut, Rows, cut
from tuner.train.data.folder_reading import FilesDecodedLater, read_files
from tuner.train.data.given_data import given_splits
from tuner.train.data.images import pixel_key
from tuner.train.data.normalisation import Normalisation
from tuner.train.data.pool import IMAGES, KEYS, LABELS, PART, PARTS, Pool, from_cache
from tuner.train.data.splits import HeldSplit, Split, Splits, StreamedSplit, Weights, Whole
from tuner.train.download import fetch_data
from tuner.trial import ImageClassifier
from tuner.trial.data_source import ImageFiles, Source
from tuner.trial.framing import Framing
from tuner.trial.splitting import Folds, Joined
from tuner.trial.table import none_counts


def load_splits(trial: ImageClassifier, *, seed: int, image_size: int | None = None) -> Splits:
    """The trial's data, downloaded if necessary, cut with `seed`; kept in the process for the next trial.

    The tensors are shared between callers, and with the other processes of this machine: read, never written.

    Args:
        trial: names the data, and the weights whose preprocessing it gets
        seed: decides the cut
        image_size: the configuration's edge in pixels; None for the trial's default

    Raises:
        DataError: the data is missing, damaged, or too little to cut.
    """
    framing, weights = trial.framing(image_size), trial.published
    splits = _splits(trial, framing, seed)
    prescribed = Normalisation(weights.preprocessing.mean, weights.preprocessing.sd) if weights else None
    if prescribed is None:
        return splits
    before = None if splits.before is None else replace(splits.before, prescribed=prescribed)
    return replace(splits, prescribed=prescribed, before=before)


def _splits(trial: ImageClassifier, framing: Framing | None, seed: int) -> Splits:
    if callable(trial.data):
        joined = isinstance(trial.validation, Joined)
        return given_splits(trial.data, framing, task=trial.label_task, seed=seed, joined=joined)
    if framing is None:
        raise TypeError(f"{trial.source.name} has no default size")
    folder = trial.data_folder.absolute()
    source = fetch_data(trial.source, folder)
    source.check(folder)
    scheme = Cut(seed, trial.validation, trial.group)
    return _load(source, folder, source.signature(folder), framing, memory_for_images(trial)).splits(scheme)


def load_pool(trial: ImageClassifier, framing: Framing) -> Pool:
    """All images of a data set by name, downloaded if necessary; raises DataError as `load_splits` does."""
    folder = trial.data_folder.absolute()
    source = fetch_data(trial.source, folder)
    source.check(folder)
    return read_pool(source, folder, framing, memory_for_images(trial))


def read_pool(source: Source, folder: Path, framing: Framing, memory_bytes: float) -> Pool:
    """The data set from the machine's cache, into which it is decoded first if necessary.

    Args:
        source: the data set
        folder: holds the known data sets
        framing: how image files, which differ in size, are brought to one size
        memory_bytes: if their images would take more, `images` is None

    Raises:
        DataError: files are missing or damaged, as `ImageFiles.look`; or most of a class's images can't be read.
    """
    if (images := source.image_files(folder)) is not None:
        return read_files(images, framing, memory_bytes)
    key, read = cache_key("pool", source.fingerprint(folder)), DATA_SETS[source.name].read
    return from_cache(key, lambda builder: _put(builder, read(source, folder)))


def _put(builder: Builder, arrays: Arrays) -> None:
    builder.put(IMAGES, arrays.images)
    builder.put(LABELS, arrays.labels)
    builder.put(KEYS, np.array([pixel_key(image) for image in arrays.images], dtype=np.uint64))
    builder.put(PART, np.zeros(len(arrays.labels), np.int8) if arrays.parts is None else arrays.parts)
    builder.facts["classes"] = list(arrays.classes)


def memory_for_images(trial: ImageClassifier) -> float:
    """The machine's memory that images may take."""
    if trial.data_memory_gb is not None:
        return trial.data_memory_gb * 1e9
    return this_machine().memory_bytes / 2


class _Loaded:
    """The images of a data set, and the splits made so far."""

    def __init__(self, pool: Pool, name: str, framing: Framing, images: ImageFiles | None) -> None:
        self._pool, self._name, self._framing, self._images = pool, name, framing, images
        self._cut: dict[Cut, Splits] = {}

    def splits(self, scheme: Cut) -> Splits:
        """The splits of this cut, each time the same; raises DataError as `cut` does, and for too many processes."""
        if scheme not in self._cut:
            self._cut[scheme] = self._made(scheme)
        return self._cut[scheme]

    def _made(self, scheme: Cut) -> Splits:
        pool, framing, folded = self._pool, self._framing, isinstance(scheme.apart.validation, Folds)
        if folded and pool.images is None:
            raise DataError(
                f"validation={scheme.validation} needs images that memory holds, got {self._name}, which is read from "
                "its files in every epoch; raise data_memory_gb, or give a share, such as validation=0.2"
            )
        rows = cut(pool, scheme, self._name)
        train = _split(pool, rows["train"], framing, _weights(pool, rows["train"], self._name))
        validation, test = (_split(pool, rows[part], framing) for part in PARTS[1:])
        key = cache_key(pool.key, *scheme.key, framing.key)
        before = self.splits(scheme.apart) if scheme.apart != scheme else None
        whole = _whole(pool, rows, scheme, framing) if folded and before is None else None
        return Splits(
            *(train, validation, test, pool.classes, pool.notes, key),
            framing=framing,
            scale=pool.scale,
            whole=whole,
            files=partial(_named, pool, rows, self._images),
            before=before,
            task=pool.task,
        )


def _named(pool: Pool, rows: Mapping[str, Rows], images: ImageFiles | None, part: str) -> list[str]:
    """See `Splits.files`."""
    return [] if images is None else [images.relative(pool.files[row]) for row in rows[part].tolist()]


@lru_cache(maxsize=3)
def _load(source: Source, folder: Path, signature: object, framing: Framing, memory_bytes: float) -> _Loaded:
    return _Loaded(read_pool(source, folder, framing, memory_bytes), source.name, framing, source.image_files(folder))


def _whole(pool: Pool, rows: Mapping[str, Rows], scheme: Cut, framing: Framing) -> Whole:
    """All images of a cross-validation, which are divided into parts."""
    together = np.union1d(rows["train"], rows["validation"])
    places = {part: torch.from_numpy(np.searchsorted(together, rows[part])) for part in ("train", "validation")}
    return Whole(_split(pool, together, framing), cache_key(pool.key, *scheme.whole_key, framing.key), places)


def _weights(pool: Pool, rows: Rows, name: str) -> Weights | None:
    """How much training images count, 1 on average; raises DataError if none of them counts."""
    if pool.weights is None:
        return None
    weights = torch.from_numpy(pool.weights[rows])
    if not weights.any():
        raise none_counts(len(rows), name)
    return Weights(weights / weights.mean(dtype=torch.float64).float(), len(pool.classes))


def _split(pool: Pool, rows: Rows, framing: Framing, weights: Weights | None = None) -> Split:
    labels = torch.from_numpy(pool.labels[rows])
    if pool.images is None:
        files = [pool.files[row] for row in rows.tolist()]
        dataset = FilesDecodedLater(files, framing, pool.scale)
        return StreamedSplit(dataset, labels, deterministic=True, weights=weights)
    as_it_is = pool.images.shape[-2:] == (framing.pixels, framing.pixels)  # or framed when it was decoded
    return HeldSplit(pool.images, labels, torch.from_numpy(rows), None if as_it_is else framing, weights)
