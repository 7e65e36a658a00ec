"""Data sets as their files have them: decoded once per machine into a cache that all trials map into their memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torchvision

from tuner.errors import DataError
from tuner.train.data.cache import Builder, cache_key
from tuner.train.data.folder_reading import read_folder
from tuner.train.data.images import pixel_key
from tuner.train.data.pool import IMAGES, KEYS, LABELS, PART, PARTS, Pool, from_cache
from tuner.trial.data_source import Source
from tuner.trial.framing import Framing
from tuner.trial.image_folder import Folder
from tuner.trial.sources import Cifar10, Digits, FashionMnist


def read_pool(source: Source, folder: Path, framing: Framing, memory_bytes: float) -> Pool:
    """The data set from the machine's cache, decoded into it first if need be.

    Args:
        source: the data set
        folder: holds the known data sets
        framing: how images of folders, which differ in size, come to one
        memory_bytes: a folder whose images would take more isn't held: `images` is None

    Raises:
        DataError: files are missing, damaged, or not laid out as a class per subfolder; or most of a class's images
            can't be read.
    """
    if isinstance(source, Cifar10) and (images := source.image_folder(folder)):
        return read_folder(images, framing, memory_bytes)
    if isinstance(source, Folder):
        return read_folder(source, framing, memory_bytes)
    read = _read_digits if isinstance(source, Digits) else _read_torchvision
    return from_cache(cache_key("pool", source.fingerprint(folder)), lambda builder: read(source, folder, builder))


def _read_digits(source: Source, folder: Path, builder: Builder) -> None:
    """scikit-learn's file, read as `load_digits` reads it but without importing scikit-learn, which takes a second."""
    (path,) = source.files(folder)
    table = np.loadtxt(path, delimiter=",").astype(np.int64)  # [1797, 64 pixels of 0..16 + label]
    images = ((table[:, :-1] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    _put(builder, images, table[:, -1], np.zeros(len(table), np.int8), tuple("0123456789"))


def _read_torchvision(source: Source, folder: Path, builder: Builder) -> None:
    """Fashion-MNIST or CIFAR-10 from torchvision's files, which must be there.

    Raises:
        DataError: torchvision refuses them.
    """
    reader = torchvision.datasets.FashionMNIST if isinstance(source, FashionMnist) else torchvision.datasets.CIFAR10
    try:
        sets = {"train": reader(folder, train=True), "test": reader(folder, train=False)}
    except (RuntimeError, OSError, ValueError) as error:
        raise DataError(
            f"data='{source.name}' must be torchvision's files, got others under {folder}: {error}; "
            "delete them and download them again"
        ) from error
    images = np.concatenate([_channels_first(np.asarray(part.data)) for part in sets.values()])
    labels = np.concatenate([np.asarray(part.targets, dtype=np.int64) for part in sets.values()])
    parts = np.concatenate([np.full(len(part.targets), PARTS.index(name), np.int8) for name, part in sets.items()])
    _put(builder, images, labels, parts, tuple(sets["train"].classes))


def _put(builder: Builder, images: np.ndarray, labels: np.ndarray, parts: np.ndarray, classes: tuple[str, ...]) -> None:
    builder.put(IMAGES, images)
    builder.put(LABELS, labels)
    builder.put(KEYS, np.array([pixel_key(image) for image in images], dtype=np.uint64))
    builder.put(PART, parts)
    builder.facts["classes"] = list(classes)


def _channels_first(images: np.ndarray) -> np.ndarray:
    """[N, H, W] or [N, H, W, C] to [N, C, H, W]."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
