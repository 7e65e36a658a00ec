"""Data that a user's function returns: three splits, each a pair of tensors or a torch `Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, TensorDataset

from tuner.errors import DataError
from tuner.train.data.splits import HeldSplit, Split, Splits, StreamedSplit
from tuner.train.randomness import generators_kept, reseed_all
from tuner.trial.framing import Framing

NAMES = ("training", "validation", "test")


def given_splits(
    function: Callable[[], Any], framing: Framing | None, *, seed: int = 0, joined: bool = False
) -> Splits:
    """The three splits that `function()` returns; tensors are held in memory, a `Dataset` is streamed.

    Args:
        function: the user's
        framing: how images are brought to one size; None to leave them
        seed: with the same seed the function's draws from the global generators, such as a split, are the same
        joined: whether images for validation are for training, too

    Raises:
        DataError: the function returns anything else.
    """
    with generators_kept():
        reseed_all(seed)
        return _splits(function(), framing, joined=joined)


def _splits(returned: Any, framing: Framing | None, *, joined: bool) -> Splits:
    if not isinstance(returned, tuple | list) or len(returned) != 3:
        raise DataError(
            f"a data function must return training, validation and test, got {_kind(returned)}; return the three"
        )
    train, validation, test = (_split(part, name, framing) for name, part in zip(NAMES, returned, strict=True))
    classes = _classes(returned[0], (train, validation, test))
    if joined:
        train, validation = _joined(returned[0], returned[1], train, validation)
    return Splits(train, validation, test, classes, framing=framing)


def _joined(train_part: Any, validation_part: Any, train: Split, validation: Split) -> tuple[Split, Split]:
    """All images for training, and none for validation; raises DataError for tensors and a `Dataset` together."""
    labels = torch.cat([train.labels, validation.labels])
    if isinstance(train, HeldSplit) and isinstance(validation, HeldSplit):
        pools = train.pool, validation.pool
        if len({(pool.dtype, pool.shape[1:]) for pool in pools}) == 1:
            all_images = HeldSplit(torch.cat(pools), labels, framing=train.framing)
            return all_images, all_images.take(np.zeros(len(labels), dtype=np.bool_))
    elif isinstance(train, StreamedSplit) and isinstance(validation, StreamedSplit):
        together: Dataset[Any] = ConcatDataset([train_part, validation_part])
        none = HeldSplit(train.images(torch.zeros(1, dtype=torch.int64))[:0], labels[:0])
        return StreamedSplit(together, labels, framing=train.framing), none
    raise DataError(
        "refit trains on training and validation images together, got two kinds of images from the data function; "
        "return both as tensors of one type and size, or both as a torch Dataset"
    )


def _split(part: Any, name: str, framing: Framing | None) -> Split:
    if isinstance(part, TensorDataset):
        part = part.tensors
    if isinstance(part, tuple | list) and len(part) == 2:
        return _held(torch.as_tensor(part[0]), torch.as_tensor(part[1]), name, framing)
    if isinstance(part, Dataset) and isinstance(part, Sized) and len(part):
        return StreamedSplit(part, _labels_of(part), framing=framing)
    raise DataError(
        f"a split must be (images, labels) or a torch Dataset with a length, got {_kind(part)} for {name}; return one"
    )


def _held(images: Tensor, labels: Tensor, name: str, framing: Framing | None) -> Split:
    if images.ndim != 4 or labels.shape != images.shape[:1] or not len(labels):
        raise DataError(
            f"images must be [N, C, H, W] and labels [N], N > 0, got {tuple(images.shape)} and "
            f"{tuple(labels.shape)} for {name}; reshape them"
        )
    if labels.is_floating_point() or int(labels.min()) < 0:
        raise DataError(
            f"labels must be integers from 0, got {labels.dtype} from {labels.min()} for {name}; convert them"
        )
    size = None if framing is None or images.shape[-2:] == (framing.pixels, framing.pixels) else framing
    return HeldSplit(images if images.dtype == torch.uint8 else images.float(), labels.long(), framing=size)


def _labels_of(dataset: Any) -> Tensor:
    """The labels, from the attribute that most data sets have, or by reading every item."""
    for attribute in ("targets", "labels"):
        labels = getattr(dataset, attribute, None)
        if labels is not None and len(labels) == len(dataset):
            return torch.as_tensor(np.asarray(labels)).long()
    return torch.tensor([int(dataset[index][1]) for index in range(len(dataset))])


def _classes(part: Any, splits: tuple[Split, ...]) -> tuple[str, ...]:
    """The names of a data set's classes, or their numbers."""
    count = 1 + max(int(split.labels.max()) for split in splits)
    names = getattr(part, "classes", None)
    if names is not None and len(names) >= count:
        return tuple(map(str, names))
    return tuple(str(label) for label in range(count))


def _kind(value: object) -> str:
    return f"{len(value)} things" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
