"""Data sets by name: how the images of each are read, and how its files are downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torchvision

from tuner.errors import DataError
from tuner.train.data.pool import PARTS
from tuner.trial.data_source import Source


@dataclass(frozen=True)
class Arrays:
    """The images of a data set, as its files have them.

    Attributes:
        images: [N, C, H, W] uint8
        labels: [N] int64
        classes: their names, in the order of the labels
        parts: [N] int8, index into PARTS; None if all are training images, from which tuner cuts the other splits
    """

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    parts: np.ndarray | None = None


@dataclass(frozen=True)
class DataSet:
    """How a data set's files are read and downloaded.

    Attributes:
        read: reads the files below a folder, which must exist; raises DataError if they can't be read
        download: writes the files below a folder, as `Source.files` names them; None for a data set that is always
            there, or that users have to provide. May raise OSError, RuntimeError or ValueError
    """

    read: Callable[[Source, Path], Arrays]
    download: Callable[[Path], None] | None = None


def read_digits(source: Source, folder: Path) -> Arrays:
    """scikit-learn's file, read as `load_digits` reads it but without importing scikit-learn, which takes a second."""
    (path,) = source.files(folder)
    table = np.loadtxt(path, delimiter=",").astype(np.int64)  # [1797, 64 pixels of 0..16 + label]
    images = ((table[:, :-1] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    return Arrays(images, table[:, -1], tuple("0123456789"))


def of_torchvision(data_set: Callable[..., Any]) -> DataSet:
    """One of torchvision's data sets that has `train=True` and `train=False`, small enough for memory."""

    def read(source: Source, folder: Path) -> Arrays:
        try:
            sets = {"train": data_set(folder, train=True), "test": data_set(folder, train=False)}
        except (RuntimeError, OSError, ValueError) as error:
            raise DataError(
                f"data='{source.name}' must be torchvision's files, got others under {folder}: {error}; "
                "delete them and download them again"
            ) from error
        return Arrays(
            np.concatenate([_channels_first(np.asarray(part.data)) for part in sets.values()]),
            np.concatenate([np.asarray(part.targets, dtype=np.int64) for part in sets.values()]),
            tuple(sets["train"].classes),
            np.concatenate([np.full(len(part.targets), PARTS.index(name), np.int8) for name, part in sets.items()]),
        )

    def download(folder: Path) -> None:
        data_set(folder, download=True)

    return DataSet(read, download)


def _channels_first(images: np.ndarray) -> np.ndarray:
    """[N, H, W] or [N, H, W, C] to [N, C, H, W]."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)


DATA_SETS: Mapping[str, DataSet] = {
    "digits": DataSet(read_digits),
    "fashion-mnist": of_torchvision(torchvision.datasets.FashionMNIST),
    "cifar10": of_torchvision(torchvision.datasets.CIFAR10),
}  # the names of tuner.trial.sources.KNOWN_SOURCES
