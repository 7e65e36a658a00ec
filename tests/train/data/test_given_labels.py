"""Labels of a user's data sets: those of the items, whatever their attributes say."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from tuner.errors import DataError
from tuner.train import Splits, Trainer, load_splits
from tuner.train.data.given_labels import COMPARED
from tuner.trial import ImageClassifier

CATS = ("cat", "dog", "horse", "whale")


class Pets(Dataset[Any]):
    """A data set whose image shows by its channel which class is right; attributes are given by name."""

    def __init__(self, yielded: Sequence[Any], channels: Sequence[int] | None = None, **attributes: Any) -> None:
        self.items, self.channels, self.read = yielded, channels, 0
        for name, value in attributes.items():
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        image = torch.zeros(4, 2, 2)
        image[0 if self.channels is None else self.channels[index]] = 1
        return image, self.items[index]


def perfect(classes: int) -> nn.Module:
    """Answers with the channel that is on."""
    last = nn.Linear(4, classes, bias=False)
    nn.init.eye_(last.weight)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def splits_of(*parts: Any) -> Splits:
    """The splits of three parts, or of one for all three."""
    return load_splits(ImageClassifier(lambda: parts * (3 // len(parts)), weights=None), seed=0)


def accuracy(dataset: Any, classes: int) -> float:
    """Of the perfect classifier after an epoch."""
    trial = ImageClassifier(lambda: (dataset, dataset, dataset), lambda config: perfect(classes))
    return Trainer(trial, {"lr": 1e-6, "batch_size": 4}, epochs=1, seed=0).run_epoch().validation["accuracy"]


def halved(**attributes: Any) -> Pets:
    """Four classes, of which the items make two."""
    told = [index % 4 for index in range(40)]
    labels = [label // 2 for label in told]
    return Pets(labels, labels, targets=told, classes=list(CATS), **attributes)


@pytest.mark.parametrize(
    "made",
    [
        halved,
        lambda: Subset(halved(), range(20)),
        lambda: ConcatDataset([halved(), halved()]),
        lambda: ConcatDataset([Subset(halved(), range(8, 28)), halved()]),
    ],
    ids=["itself", "Subset", "ConcatDataset", "both"],
)
def test_a_perfect_classifier_of_what_the_items_say_is_right_whatever_targets_says(made: Callable[[], Any]) -> None:
    splits = splits_of(made())
    assert splits.classes == ("0", "1")
    assert splits.train.labels.tolist() == [index % 4 // 2 for index in range(len(made()))]
    assert accuracy(made(), 2) == 1.0


@pytest.mark.parametrize(
    "labels",
    [
        [np.int64(0), np.int64(1)],
        [torch.tensor(0), torch.tensor(1)],
        [np.array([0]), np.array([1])],
        [False, True],
        [0.0, 1.0],
    ],
    ids=["numpy", "tensors", "arrays of one", "bools", "whole floats"],
)
def test_numbers_of_any_type_are_classes(labels: list[Any]) -> None:
    items = Pets(labels * 4, [0, 1] * 4)
    assert splits_of(items).classes == ("0", "1")
    assert splits_of(items).validation.labels.tolist() == [0, 1] * 4
    assert accuracy(items, 2) == 1.0


@pytest.mark.parametrize(
    "attribute",
    [
        ["dog", "cat"] * 4,
        np.array(["dog", "cat"] * 4),
        np.array(["dog", "cat"] * 4, dtype=object),
        pd.DataFrame({"label": ["dog", "cat"] * 4})["label"],
        [1, 0] * 4,
        [None] * 8,
        ["dog"],
        {"dog": 1},
        7,
        len,
    ],
    ids=["list", "array", "objects", "column", "wrong", "None", "short", "dict", "number", "function"],
)
def test_names_become_classes_in_sorted_order(attribute: Any) -> None:
    items = Pets(["dog", "cat"] * 4, [1, 0] * 4, labels=attribute)
    assert splits_of(items).classes == ("cat", "dog")
    assert splits_of(items).test.labels.tolist() == [1, 0] * 4
    assert accuracy(items, 2) == 1.0


@pytest.mark.parametrize(
    "attributes",
    [
        {"classes": ["dog", "cat", "bird"]},
        {"class_to_idx": {"cat": 1, "dog": 0, "bird": 2}},
        {"class_to_idx": {"cat": 1, "dog": 0, "bird": 2}, "targets": [0, 1] * 4},
        {"classes": ["dog", "cat", "bird"], "labels": ["dog", "cat"] * 4},
        {"classes": ["dog", "cat", "bird"], "targets": torch.tensor([0, 1] * 4)},
    ],
    ids=["classes", "class_to_idx", "and numbers", "and names", "and a tensor"],
)
@pytest.mark.parametrize("labels", [["dog", "cat"], [0, 1]], ids=["names", "numbers"])
def test_the_data_sets_own_classes_name_and_order_its_labels(labels: list[Any], attributes: dict[str, Any]) -> None:
    items = Pets(labels * 4, [0, 1] * 4, **attributes)
    for one in (items, Subset(items, [4, 5, 6, 7]), ConcatDataset([items, Subset(items, [0, 1])])):
        splits = splits_of(one)
        assert splits.classes == ("dog", "cat", "bird")
        assert splits.train.labels.tolist() == [0, 1] * (len(one) // 2)
    assert accuracy(items, 3) == 1.0


@pytest.mark.parametrize("attributes", [{"targets": [0, 1, 2, 3]}, {"target_transform": lambda label: label // 2}])
def test_names_of_numbers_that_a_data_set_changes_are_not_its_classes(attributes: dict[str, Any]) -> None:
    assert splits_of(Pets([0, 0, 1, 1], classes=CATS, **attributes)).classes == ("0", "1")


def test_class_to_idx_may_have_numbers_for_names() -> None:
    assert splits_of(Pets([0, 1], class_to_idx={3: 0, 8: 1})).classes == ("3", "8")


def test_names_of_all_splits_are_classes() -> None:
    splits = splits_of(Pets(["dog", "cat"]), (torch.zeros(1, 4, 2, 2), ["dog"]), Pets(["bird"]))
    assert splits.classes == ("bird", "cat", "dog")
    assert [split.labels.tolist() for split in (splits.train, splits.validation, splits.test)] == [[2, 1], [2], [0]]


@pytest.mark.parametrize(
    ("more", "classes"),
    [
        ({"classes": ["dog", "cat", "bird", "owl"]}, ("dog", "cat", "bird")),
        ({"class_to_idx": {"dog": 0, "cat": 1, "bird": 2}}, ("dog", "cat", "bird")),
        ({}, ("dog", "cat", "2")),
    ],
)
def test_a_class_that_only_another_split_has_takes_no_name_from_the_others(
    more: dict[str, Any], classes: tuple[str, ...]
) -> None:
    train = Pets([0, 1], classes=["dog", "cat"])
    for parts in ((train, train, Pets([0, 2], **more)), (train, Pets([2], **more), train)):
        splits = splits_of(*parts)
        assert splits.classes == classes
        assert max(split.labels.max() for split in (splits.train, splits.validation, splits.test)) == 2


def test_a_number_with_another_name_in_another_split_is_refused() -> None:
    train, fewer = Pets([0, 1, 2], classes=["cat", "dog", "owl"]), Pets([0, 1], classes=["cat", "owl"])
    with pytest.raises(DataError) as caught:
        splits_of(train, fewer, train)
    assert str(caught.value) == (
        "a number must be the same class in all data, got 1 for 'dog' in training and for 'owl' in validation; give both "
        "the same classes"
    )
    longer = Pets([0, 1, 2], classes=["cat", "dog", "owl", "fox"])
    assert splits_of(train, Pets([0], classes=["cat", "owl"]), longer).classes == ("cat", "dog", "owl")


def test_numbers_that_leave_some_out_keep_their_class() -> None:
    splits = splits_of(Pets([1, 3, 3]))
    assert splits.classes == ("0", "1", "2", "3")
    assert splits.train.labels.tolist() == [1, 3, 3]


@pytest.mark.parametrize(
    "label", [None, math.nan, math.inf, 0.5, -1, 10**9, [0, 1], torch.tensor([0.0, 1.0]), b"cat", {}]
)
@pytest.mark.parametrize("attribute", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("held", [True, False], ids=["held", "streamed"])
def test_what_is_no_label_is_refused_with_the_value(label: Any, attribute: bool, held: bool) -> None:
    labels = [0, label]
    items = Pets(labels, **({"targets": labels} if attribute else {}))
    pair = (torch.zeros(2, 4, 2, 2), np.array(labels, dtype=object) if isinstance(label, Tensor | list) else labels)
    with pytest.raises(DataError) as caught:
        splits_of(Pets([0, 1]), pair if held else items, Pets([0, 1]))
    assert str(caught.value) == (
        f"a label must be a class's number, from 0 to 999,999, or its name, got {label!r} for validation; convert it, a "
        "one-hot vector with argmax()"
    )


def test_numbers_and_names_together_are_refused() -> None:
    with pytest.raises(DataError, match=r"^labels must be all numbers or all names, got 1 and 'cat'; use one of them$"):
        splits_of(Pets([0, 1]), Pets(["cat", "dog"]), Pets([0, 1]))


class Items(Dataset[Any]):
    def __init__(self, *items: Any) -> None:
        self.items, self.targets = items, [0] * len(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


@pytest.mark.parametrize(
    ("item", "got"),
    [
        ((torch.zeros(1, 2, 2), 0, "more"), "3 things"),
        ({"image": 0, "label": 1}, "a dict"),
        (torch.zeros(2), "a Tensor"),
    ],
)
def test_items_that_are_no_pair_are_refused(item: Any, got: str) -> None:
    expected = f"an item of a Dataset must be (image, label), got {got} for item 0; return the two"
    with pytest.raises(DataError) as caught:
        splits_of(Items(item, item))
    assert str(caught.value) == expected


def test_two_hundred_items_are_compared_and_all_read_only_if_one_differs() -> None:
    told = [index % 4 for index in range(1000)]
    right, wrong, untold = Pets(told, targets=told), Pets(told[::-1], targets=told), Pets(told)
    splits = splits_of(right, wrong, untold)
    assert right.read == COMPARED == 200
    assert 1000 < wrong.read <= 1200
    assert untold.read == 1000
    assert splits.validation.labels.tolist() == told[::-1]


def test_one_item_of_each_label_is_compared() -> None:
    told = [7 if index == 1234 else index % 7 for index in range(5000)]
    joined = [label % 7 for label in told]
    assert splits_of(Pets(joined, targets=told)).classes == tuple("0123456")


def test_an_item_whose_label_differs_where_none_was_compared_is_refused_in_training() -> None:
    told = [0] * 5000
    drawn = Pets(told, targets=told)
    splits = splits_of(drawn)
    drawn.items = [1 if index == 4321 else 0 for index in range(5000)]
    assert splits.train.images(torch.tensor([4320])).shape == (1, 4, 2, 2)
    with pytest.raises(DataError) as caught:
        list(splits.train.batches([torch.tensor([4321])], "cpu"))  # in another process
    assert str(caught.value) == (
        "an item's label must be the same whenever it is read, and that in .targets or .labels, got 1 instead of 0 for "
        "item 4321; correct the Dataset"
    )


class Turned(TensorDataset):
    """Items that aren't its tensors."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, 1 - label


def test_a_tensor_data_set_with_items_of_its_own_is_asked_for_them() -> None:
    pair = (torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 1, 1]))
    splits = splits_of(TensorDataset(*pair), Turned(*pair), pair)
    assert [split.labels.tolist() for split in (splits.train, splits.validation, splits.test)] == [
        [0, 1, 1, 1],
        [1, 0, 0, 0],
        [0, 1, 1, 1],
    ]
