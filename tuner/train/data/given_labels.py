"""The labels of a user's data: what the items say is true, as training learns from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from tuner.errors import DataError, shown

COMPARED = 200  # items that are read to compare their labels with the data set's attribute
MOST_CLASSES = 1_000_000  # larger numbers are no classes

Label = int | str  # a class's number, or its name


class Labelled(Dataset[Any]):
    """A user's data set of (image, label) with numbers of `classes` for labels, always those in `labels` [N] int64."""

    def __init__(self, dataset: Any, labels: Tensor, classes: Sequence[str]) -> None:
        self.dataset, self._labels, self._classes = dataset, labels, classes

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Raises DataError if the item's label isn't the known one."""
        image, label = item_of(self.dataset, index)
        number = int(self._labels[index])
        if _plain(label) not in (number, self._classes[number]):
            raise DataError(
                f"an item's label must be the same whenever it is read, and that in .targets or .labels, got "
                f"{shown(label)} instead of {self._classes[number]} for item {index}; correct the Dataset"
            )
        return image, number


def item_labels(dataset: Any, part: str) -> tuple[list[Label], tuple[str, ...]]:
    """The labels of a data set's items, and its own names of numbers if they fit.

    The labels are those of `.targets` or `.labels` if up to 200 items, first one of each label, say the same.
    Otherwise, or without such an attribute, every item is read. Raises DataError as `given_labels` does.
    """
    told, names = _attributes(dataset)
    labels = told
    if not told or not _agree(dataset, told, names):
        labels = given_labels([item_of(dataset, index)[1] for index in range(len(dataset))], part)
        names = () if told else names
    return labels, names if all(label < len(names) for label in labels if isinstance(label, int)) else ()


def given_labels(labels: Any, part: str) -> list[Label]:
    """The labels that a user gives; raises DataError if one is neither a number nor a name."""
    found = []
    for label in _listed(labels):
        found.append(_plain(label))
        if found[-1] is None:
            raise DataError(
                f"a label must be a class's number, from 0 to {MOST_CLASSES - 1:,}, or its name, got {shown(label)} "
                f"for {part}; convert it, a one-hot vector with argmax()"
            )
    return found  # type: ignore[return-value]


def numbered(labels: Sequence[Label], classes: Sequence[str]) -> Tensor:
    """The numbers of the labels' classes, [N] int64."""
    numbers = _numbers(classes)
    return torch.tensor([numbers.get(label, label) for label in labels], dtype=torch.int64)


def classes_of(labels: set[Label], own: tuple[str, ...], longest: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the classes, in the order of their numbers.

    They are the training data's `own`, with names from the `longest` of a split for further ones; else labels that are
    names, sorted, or numbers from 0 to the largest label. Raises DataError if labels are of both kinds.
    """
    names = {label for label in labels if isinstance(label, str)}
    largest = max((label for label in labels if isinstance(label, int)), default=-1)
    if own and names <= set(own):
        further = range(len(own), largest + 1)
        return (*own, *(longest[number] if number < len(longest) else str(number) for number in further))
    if names and largest >= 0:
        raise DataError(f"labels must be all numbers or all names, got {largest} and {min(names)!r}; use one of them")
    return tuple(sorted(names)) or tuple(map(str, range(largest + 1)))


def check_names(labels: Sequence[Label], names: Sequence[str], own: Sequence[str], part: str) -> None:
    """Raise DataError if a number among the labels has another name in the training data, whose names are `own`."""
    for number in {label for label in labels if isinstance(label, int) and label < min(len(names), len(own))}:
        if names[number] != own[number]:
            raise DataError(
                f"a number must be the same class in all data, got {number} for {own[number]!r} in training and for "
                f"{names[number]!r} in {part}; give both the same classes"
            )


def _attributes(dataset: Any) -> tuple[list[Label], tuple[str, ...]]:
    """The labels and the names of numbers, as far as attributes say them."""
    if isinstance(dataset, Subset):
        told, names = _attributes(dataset.dataset)
        return [told[index] for index in dataset.indices] if told else [], names
    if isinstance(dataset, ConcatDataset):
        parts = [_attributes(part) for part in dataset.datasets]
        names = parts[0][1] if len({names for _, names in parts}) == 1 else ()  # or they may be about other classes
        return [label for told, _ in parts for label in told] if all(told for told, _ in parts) else [], names
    numbers = getattr(dataset, "class_to_idx", None)
    if isinstance(numbers, dict) and set(numbers.values()) == set(range(len(numbers))):
        names = tuple(map(str, sorted(numbers, key=numbers.__getitem__)))
    else:
        names = tuple(map(str, _listed(getattr(dataset, "classes", None))))
    for attribute in ("targets", "labels"):
        told = [label for label in map(_plain, _listed(getattr(dataset, attribute, None))) if label is not None]
        if len(told) == len(dataset):
            return told, names
    return [], () if getattr(dataset, "target_transform", None) else names


def _agree(dataset: Any, told: list[Label], names: Sequence[str]) -> bool:
    """Whether drawn items have the labels that are told."""
    order, numbers = np.random.default_rng(0).permutation(len(told)).tolist(), _numbers(names)
    one_of_each = {told[index]: index for index in reversed(order)}.values()
    drawn = {index: _plain(item_of(dataset, index)[1]) for index in islice([*one_of_each, *order], COMPARED)}
    return all(numbers.get(label, label) == numbers.get(told[i], told[i]) for i, label in drawn.items())


def item_of(dataset: Any, index: int) -> Sequence[Any]:
    """An item's image and label; raises DataError for anything else."""
    item = dataset[index]
    if not isinstance(item, tuple | list) or len(item) != 2:
        got = f"{len(item)} things" if isinstance(item, tuple | list) else f"a {type(item).__name__}"
        raise DataError(f"an item of a Dataset must be (image, label), got {got} for item {index}; return the two")
    return item


def _numbers(names: Sequence[str]) -> dict[Any, int]:
    return {name: number for number, name in enumerate(names)}


def _listed(labels: Any) -> Sequence[Any]:
    """The elements of a list, array, tensor or column; none of anything else."""
    found = labels.tolist() if hasattr(labels, "tolist") else labels
    return found if isinstance(found, list | tuple) else ()


def _plain(label: Any) -> Label | None:
    """A whole number, also alone in an array, or a name; None for anything else."""
    value = label.tolist() if hasattr(label, "tolist") else label
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value
    whole = isinstance(value, int | float) and 0 <= value < MOST_CLASSES and value == int(value)
    return int(value) if whole else None
