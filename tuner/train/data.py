"""A trial's images in memory: training, validation and test, as uint8 tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import Tensor

from tuner.errors import DataError
from tuner.train.download import fetch_data
from tuner.train.images import pixel_key, read_image, resize
from tuner.train.splitting import Keys, hold_out, quotas
from tuner.trial import ImageClassifier
from tuner.trial.sources import Cifar10, Digits, FashionMnist, Folder, Source

CHUNK = 4096  # images a step where a whole split at once would need many times its memory


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: [N, C, H, W] uint8
        labels: [N] int64
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: np.ndarray) -> Split:
        """The images that a mask [N] bool chooses, in their order."""
        mask = torch.from_numpy(chosen)
        return Split(self.images[mask], self.labels[mask])

    def resized(self, pixels: int) -> Split:
        """The same split with images of `pixels` x `pixels`."""
        if self.images.shape[-2:] == (pixels, pixels):
            return self
        return Split(torch.cat([resize(chunk, pixels) for chunk in in_chunks(self.images, CHUNK)]), self.labels)

    def to(self, device: torch.device | str) -> Split:
        """The same split on `device`."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of every channel, of pixels in [0, 1]."""

    mean: tuple[float, ...]
    sd: tuple[float, ...]

    @classmethod
    def of(cls, images: Tensor) -> Normalisation:
        """The statistics of images [N, C, H, W] uint8; exact, from counts of the 256 values."""
        channels = [_histogram(images[:, channel]) for channel in range(images.shape[1])]
        values = torch.arange(256, dtype=torch.float64) / 255
        means = [float((counts * values).sum() / counts.sum()) for counts in channels]
        sds = [
            float(((counts * (values - mean) ** 2).sum() / counts.sum()).sqrt())
            for counts, mean in zip(channels, means, strict=True)
        ]
        return cls(tuple(means), tuple(max(sd, 1 / 255) for sd in sds))

    def __call__(self, images: Tensor) -> Tensor:
        """[N, C, H, W] uint8 to float32 with mean 0 and standard deviation 1 per channel."""
        mean = torch.tensor(self.mean, device=images.device).mul(255).view(-1, 1, 1)
        sd = torch.tensor(self.sd, device=images.device).mul(255).view(-1, 1, 1)
        return images.float().sub_(mean).div_(sd)


@dataclass(frozen=True)
class Splits:
    """A data set, cut: search sees training and validation, the winner is scored once on test."""

    train: Split
    validation: Split
    test: Split
    classes: tuple[str, ...]

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return self.train.images.shape[1]

    @property
    def image_size(self) -> int:
        """Edge of the images in pixels."""
        return self.train.images.shape[-1]

    @cached_property
    def normalisation(self) -> Normalisation:
        """The statistics of the training images; validation and test take no part in them."""
        return Normalisation.of(self.train.images)


@dataclass(frozen=True)
class Pool:
    """A split as its files have it, with a key per image that identical images share.

    Attributes:
        split: images may already have the trial's size
        keys: [N] uint64, of the pixels before any resizing, so that the cut is the same at every image size
    """

    split: Split
    keys: Keys

    def cut(self, quota: dict[int, int], generator: np.random.Generator) -> tuple[Pool, Split]:
        """What stays, and what is held out: `quota` gives the number of images of every class."""
        held = hold_out(self.split.labels.numpy(), self.keys, quota, generator)
        return Pool(self.split.take(~held), self.keys[~held]), self.split.take(held)


Pools = dict[str, Pool]  # "train", perhaps "validation", perhaps "test"


def load_splits(trial: ImageClassifier, *, seed: int, image_size: int | None = None) -> Splits:
    """The trial's data, downloaded if need be, cut with `seed`; kept in the process for the next trial.

    The tensors are shared between callers: read, never written.

    Args:
        trial: names the data
        seed: decides the cut
        image_size: edge in pixels; None for the trial's default

    Raises:
        DataError: the data is missing, damaged, or too little to cut.
    """
    source, folder = trial.source, trial.data_folder.absolute()
    fetch_data(source, folder)
    source.check(folder)
    return _load(source, folder, source.signature(folder), seed, image_size or trial.default_image_size)


@lru_cache(maxsize=3)
def _load(source: Source, folder: Path, signature: object, seed: int, image_size: int) -> Splits:
    pools, classes = read(source, folder, image_size)
    train, validation, test = (split.resized(image_size) for split in cut(pools, seed, source.name))
    return Splits(train, validation, test, classes)


def cut(pools: Pools, seed: int, name: str) -> tuple[Split, Split, Split]:
    """Training, validation and test; those that the data lacks are cut from training, a tenth of the whole each.

    Raises:
        DataError: a split would be empty.
    """
    rest = pools["train"]
    held = {split: pool.split for split, pool in pools.items() if split != "train"}
    for stream, (split, at_least) in enumerate((("test", 3), ("validation", 2))):
        if split not in held:
            quota = quotas(pools["train"].split.labels.numpy(), at_least)
            rest, held[split] = rest.cut(quota, np.random.default_rng([seed, stream]))
    for split, images in held.items():
        if not len(images):
            raise DataError(
                f"data must leave images for training, validation and test, got none for {split} of {name}; "
                "add images that differ, at least 3 a class"
            )
    return rest.split, held["validation"], held["test"]


def read(source: Source, folder: Path, image_size: int) -> tuple[Pools, tuple[str, ...]]:
    """The data's own splits and its classes; images of folders come resized, as they differ in size."""
    if isinstance(source, Cifar10) and (images := source.image_folder(folder)):
        return read_folder(images, image_size)
    if isinstance(source, Folder):
        return read_folder(source, image_size)
    if isinstance(source, Digits):
        return read_digits(source, folder)
    return read_torchvision(source, folder)


def read_digits(source: Digits, folder: Path) -> tuple[Pools, tuple[str, ...]]:
    """scikit-learn's file, read as `load_digits` reads it but without importing scikit-learn, which takes a second."""
    (path,) = source.files(folder)
    table = np.loadtxt(path, delimiter=",").astype(np.int64)  # [1797, 64 pixels of 0..16 + label]
    images = ((table[:, :-1] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 1, 8, 8)
    return {"train": pool_of(images, table[:, -1])}, tuple("0123456789")


def read_torchvision(source: Source, folder: Path) -> tuple[Pools, tuple[str, ...]]:
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
    pools = {
        split: pool_of(_channels_first(np.asarray(images.data)), np.asarray(images.targets, dtype=np.int64))
        for split, images in sets.items()
    }
    return pools, tuple(sets["train"].classes)


def read_folder(folder: Folder, image_size: int) -> tuple[Pools, tuple[str, ...]]:
    """Image files of any size and mode, as RGB of `image_size` pixels.

    Raises:
        DataError: a file can't be read, or the folder isn't laid out as a class per subfolder.
    """
    found = folder.scan()
    classes = tuple(found["train"])
    pools = {}
    for split, files in found.items():
        pairs = [(path, classes.index(name)) for name, paths in files.items() for path in paths]
        images, keys = _read_files([path for path, _ in pairs], image_size)
        pools[split] = Pool(Split(images, torch.tensor([label for _, label in pairs])), keys)
    return pools, classes


def _read_files(paths: list[Path], image_size: int) -> tuple[Tensor, Keys]:
    images = torch.empty(len(paths), 3, image_size, image_size, dtype=torch.uint8)
    keys = np.empty(len(paths), dtype=np.uint64)
    for index, path in enumerate(paths):
        image = read_image(path)
        keys[index] = pixel_key(image)
        images[index] = resize(image[None], image_size)[0]
    return images, keys


def pool_of(images: np.ndarray, labels: np.ndarray) -> Pool:
    """Images [N, C, H, W] uint8 and labels [N] int64 with the images' keys."""
    keys = np.array([pixel_key(image) for image in images], dtype=np.uint64)
    split = Split(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(np.ascontiguousarray(labels)))
    return Pool(split, keys)


def in_chunks(tensor: Tensor, size: int) -> Iterator[Tensor]:
    """Views of `size` rows each, the last one of what is left."""
    return (tensor[start : start + size] for start in range(0, len(tensor), size))


def _channels_first(images: np.ndarray) -> np.ndarray:
    """[N, H, W] or [N, H, W, C] to [N, C, H, W]."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)


def _histogram(pixels: Tensor) -> Tensor:
    """How often each of the 256 values occurs: [256] int64."""
    chunks = (torch.bincount(chunk.flatten(), minlength=256) for chunk in in_chunks(pixels, CHUNK))
    return torch.stack(list(chunks)).sum(0)
