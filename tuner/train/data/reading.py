"""Data sets as their files have them: decoded once per machine into a cache that all trials map into their memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import Tensor
from torch.utils.data import Dataset

from tuner.errors import DataError
from tuner.machine import this_machine
from tuner.train.data.cache import ArrayCache, Builder, CacheUnavailable, cache_key
from tuner.train.data.holding_out import Keys, Labels
from tuner.train.data.images import pixel_key, read_image, resize
from tuner.trial.framing import Framing
from tuner.trial.sources import Cifar10, Digits, FashionMnist, Folder, Source

PARTS = ("train", "validation", "test")  # as the files are split; `Pool.parts` holds indices of these
IMAGES, LABELS, KEYS, PART = "images", "labels", "keys", "parts"


@dataclass(frozen=True)
class Pool:
    """All images of a data set, as the files have them.

    Attributes:
        images: [M, C, H, W] uint8; None if there are too many for memory
        files: the file of every image; empty where images aren't files of their own
        labels: [M] int64
        keys: [M] uint64 that identical images share; of the pixels before any resizing, so that the cut is the same at
            every image size (of the file's bytes where the images aren't held)
        parts: [M] int8, index into PARTS
        classes: names
        key: changes with all of the above
        notes: what the user should know, in sentences
    """

    images: Tensor | None
    files: Sequence[Path]
    labels: Labels
    keys: Keys
    parts: np.ndarray
    classes: tuple[str, ...]
    key: str
    notes: tuple[str, ...] = ()


class ImageFiles(Dataset[tuple[Tensor, int]]):
    """Image files as RGB of the size that `framing` says, decoded when asked for."""

    def __init__(self, files: Sequence[Path], labels: Labels, framing: Framing) -> None:
        self._files, self._labels, self._framing = files, labels, framing

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return resize(read_image(self._files[index])[None], self._framing)[0], int(self._labels[index])


def read_pool(source: Source, folder: Path, framing: Framing, memory_bytes: float) -> Pool:
    """The data set from the machine's cache, decoded into it first if need be.

    Args:
        source: the data set
        folder: holds the known data sets
        framing: how images of folders, which differ in size, come to one
        memory_bytes: a folder whose images would take more isn't held: `images` is None

    Raises:
        DataError: files are missing, damaged, or not laid out as a class per subfolder.
    """
    if isinstance(source, Cifar10) and (images := source.image_folder(folder)):
        return _read_folder(images, framing, memory_bytes)
    if isinstance(source, Folder):
        return _read_folder(source, framing, memory_bytes)
    read = _read_digits if isinstance(source, Digits) else _read_torchvision
    return _from_cache(cache_key("pool", source.fingerprint(folder)), lambda builder: read(source, folder, builder))


def _from_cache(key: str, build: Callable[[Builder], None], files: Sequence[Path] = (), size: int = 0) -> Pool:
    """The pool that `build` fills, from the machine's cache; built in this process's memory where there is no room."""
    try:
        entry = ArrayCache().get(key, build, expected_bytes=size)
        arrays, facts, notes = entry.arrays, entry.facts, entry.notes
    except CacheUnavailable as error:
        builder = InMemory()
        build(builder)
        arrays, facts = builder.arrays, builder.facts
        notes = (f"the cache can't be used, so each trial decodes and holds the images itself: {error}",)
    images = torch.from_numpy(arrays[IMAGES]) if IMAGES in arrays else None
    return Pool(
        images, files, arrays[LABELS], arrays[KEYS], arrays[PART], tuple(facts["classes"]), key=key, notes=notes
    )


class InMemory(Builder):
    """Arrays as a cache entry has them, in this process's own memory."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.facts = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
        """A new array."""
        self.arrays[name] = np.zeros(shape, dtype)
        return self.arrays[name]


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


def _read_folder(folder: Folder, framing: Framing, memory_bytes: float) -> Pool:
    """Image files of any size and mode, as RGB: decoded once if they fit into memory, else only indexed.

    Raises:
        DataError: a file can't be read, or the folder isn't laid out as a class per subfolder.
    """
    found = folder.scan()
    classes = list(found["train"])
    rows = [
        (path, classes.index(name), PARTS.index(part))
        for part, files in found.items()
        for name, paths in files.items()
        for path in paths
    ]
    files = [path for path, _, _ in rows]
    labels = np.array([label for _, label, _ in rows], dtype=np.int64)
    parts = np.array([part for _, _, part in rows], dtype=np.int8)
    size = len(files) * 3 * framing.pixels**2
    held = size <= memory_bytes

    def build(builder: Builder) -> None:
        builder.put(LABELS, labels)
        builder.put(PART, parts)
        builder.facts["classes"] = classes
        keys = builder.array(KEYS, (len(files),), np.uint64)
        if held:
            images = builder.array(IMAGES, (len(files), 3, framing.pixels, framing.pixels), np.uint8)
            _for_each(files, lambda index, path: _decode(path, framing, images, keys, index))
        else:
            _for_each(files, lambda index, path: _index(path, keys, index))

    key = cache_key("folder", folder.content_key(), framing.key if held else None)
    pool = _from_cache(key, build, files, size if held else 0)
    if held:
        return pool
    note = (
        f"{len(files):,} images of {framing.pixels} pixels take {size / 1e9:.1f} GB, more than the "
        f"{memory_bytes / 1e9:.1f} GB that data may take: they are read from their files again in every epoch "
        "(data_memory_gb sets the limit)"
    )
    return Pool(None, files, pool.labels, pool.keys, pool.parts, pool.classes, pool.key, (*pool.notes, note))


def _for_each(files: Sequence[Path], work: Callable[[int, Path], None]) -> None:
    """Run `work` on all files, on as many threads as there are CPUs: decoders let go of Python's lock."""
    with ThreadPoolExecutor(this_machine().cpus) as threads:
        for _ in threads.map(work, range(len(files)), files):
            pass


def _decode(path: Path, framing: Framing, images: np.ndarray, keys: np.ndarray, index: int) -> None:
    image = read_image(path)
    keys[index] = pixel_key(image)
    images[index] = resize(image[None], framing)[0].numpy()


def _index(path: Path, keys: np.ndarray, index: int) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).digest()
    keys[index] = int.from_bytes(digest, "little")


def _channels_first(images: np.ndarray) -> np.ndarray:
    """[N, H, W] or [N, H, W, C] to [N, C, H, W]."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
