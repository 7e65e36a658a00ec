"""Data that a user's function returns: three splits, each a pair of tensors or a torch `Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, TensorDataset

from tuner.errors import DataError
from tuner.train.data.given_labels import (
    Label,
    Labelled,
    check_names,
    classes_of,
    given_labels,
    item_labels,
    item_of,
    numbered,
)
from tuner.train.data.splits import HeldSplit, Split, Splits, StreamedSplit
from tuner.train.randomness import generators_kept, reseed_all
from tuner.train.tasks import targets_of
from tuner.trial.framing import Framing
from tuner.trial.tasks import ONE_LABEL, Task

NAMES = ("training", "validation", "test")


def given_splits(
    function: Callable[[], Any],
    framing: Framing | None,
    *,
    task: Task = ONE_LABEL,
    seed: int = 0,
    joined: bool = False,
) -> Splits:
    """The three splits that `function()` returns; tensors are held in memory, a `Dataset` is streamed.

    Args:
        function: the user's
        framing: how images are brought to one size; None to leave them
        task: what labels are
        seed: with the same seed the function's draws from the global generators, such as a split, are the same
        joined: whether images for validation are for training, too

    Raises:
        DataError: the function returns anything else.
    """
    with generators_kept():
        reseed_all(seed)
        splits = _splits(function(), framing, task)
    if not joined:
        return splits
    train, validation = _joined(splits.train, splits.validation)
    return replace(splits, train=train, validation=validation)


def _splits(returned: Any, framing: Framing | None, task: Task) -> Splits:
    if not isinstance(returned, tuple | list) or len(returned) != 3:
        raise DataError(
            f"a data function must return training, validation and test, got {_kind(returned)}; return the three"
        )
    if task is not ONE_LABEL:
        return _of_task(returned, framing, task)
    parts = [_part(part, name) for name, part in zip(NAMES, returned, strict=True)]
    for name, (_, labels, names) in zip(NAMES, parts, strict=True):
        check_names(labels, names, parts[0][2], name)
    longest = max((names for _, _, names in parts), key=len)
    classes = classes_of({label for _, labels, _ in parts for label in labels}, parts[0][2], longest)
    train, validation, test = (
        _split(images, numbered(labels, classes), classes, framing) for images, labels, _ in parts
    )
    return Splits(train, validation, test, classes, framing=framing)


def _of_task(returned: Sequence[Any], framing: Framing | None, task: Task) -> Splits:
    """The splits of a task whose labels are [N, L]; its outputs are called by their numbers."""
    given = [_images(part, name) for name, part in zip(NAMES, returned, strict=True)]
    labels = [targets_of(task).given(said, name) for (_, said), name in zip(given, NAMES, strict=True)]
    for (images, _), said, name in zip(given, labels, NAMES, strict=True):
        if len(images) != len(said) or said.shape[1] != labels[0].shape[1]:
            raise DataError(
                f"labels must be [{len(images)}, {labels[0].shape[1]}] for as many images, got {list(said.shape)} for "
                f"{name}; correct them"
            )
    train, validation, test = (
        _held(images, said, framing) if isinstance(images, Tensor) else StreamedSplit(images, said, framing=framing)
        for (images, _), said in zip(given, labels, strict=True)
    )
    names = tuple(map(str, range(labels[0].shape[1])))
    return Splits(train, validation, test, names, framing=framing, task=task)


def _joined(train: Split, validation: Split) -> tuple[Split, Split]:
    """All images for training, and none for validation; raises DataError for tensors and a `Dataset` together."""
    labels = torch.cat([train.labels, validation.labels])
    if isinstance(train, HeldSplit) and isinstance(validation, HeldSplit):
        pools = train.pool, validation.pool
        if len({(pool.dtype, pool.shape[1:]) for pool in pools}) == 1:
            all_images = HeldSplit(torch.cat(pools), labels, framing=train.framing)
            return all_images, all_images.take(np.zeros(len(labels), dtype=np.bool_))
    elif isinstance(train, StreamedSplit) and isinstance(validation, StreamedSplit):
        together: Dataset[Any] = ConcatDataset([train.dataset, validation.dataset])
        none = HeldSplit(train.images(torch.zeros(1, dtype=torch.int64))[:0], labels[:0])
        return StreamedSplit(together, labels, framing=train.framing), none
    raise DataError(
        "refit trains on training and validation images together, got two kinds of images from the data function; "
        "return both as tensors of one type and size, or both as a torch Dataset"
    )


def _images(part: Any, name: str) -> tuple[Any, list[Any]]:
    """The images [N, C, H, W], or the data set that has them, and the label of each as it is given."""
    part = _unpacked(part)
    if _is_data_set(part):
        return part, [item_of(part, index)[1] for index in range(len(part))]
    return _pair(part, name, axes=(1, 2))


def _part(part: Any, name: str) -> tuple[Any, list[Label], tuple[str, ...]]:
    """The images [N, C, H, W], or the data set that has them; the labels; and the names that the part has for them."""
    part = _unpacked(part)
    if _is_data_set(part):
        return part, *item_labels(part, name)
    images, labels = _pair(part, name, axes=(1,))
    return images, given_labels(labels, name), ()


def _unpacked(part: Any) -> Any:
    """The tensors of a data set that only has these."""
    plain = isinstance(part, TensorDataset) and type(part).__getitem__ is TensorDataset.__getitem__
    return part.tensors if plain else part


def _is_data_set(part: Any) -> bool:
    return isinstance(part, Dataset) and isinstance(part, Sized) and len(part) > 0


def _pair(part: Any, name: str, *, axes: Sequence[int]) -> tuple[Tensor, Any]:
    """Images [N, C, H, W] and their labels, which have so many axes; raises DataError for anything else."""
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise DataError(
            f"a split must be (images, labels) or a torch Dataset with a length, got {_kind(part)} for {name}; return "
            "one"
        )
    images, shape = torch.as_tensor(part[0]), tuple(np.shape(part[1]))
    if images.ndim != 4 or len(shape) not in axes or shape[:1] != images.shape[:1] or not shape[0]:
        raise DataError(
            f"images must be [N, C, H, W] and labels [N], N > 0, got {tuple(images.shape)} and {shape} for {name}; "
            "reshape them"
        )
    return images, part[1]


def _split(images: Any, labels: Tensor, classes: Sequence[str], framing: Framing | None) -> Split:
    if not isinstance(images, Tensor):
        return StreamedSplit(Labelled(images, labels, classes), labels, framing=framing)
    return _held(images, labels, framing)


def _held(images: Tensor, labels: Tensor, framing: Framing | None) -> Split:
    size = None if framing is None or images.shape[-2:] == (framing.pixels, framing.pixels) else framing
    return HeldSplit(images if images.dtype == torch.uint8 else images.float(), labels, framing=size)


def _kind(value: object) -> str:
    return f"{len(value)} things" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
