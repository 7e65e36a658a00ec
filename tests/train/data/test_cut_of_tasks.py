"""Cuts of images with several labels, and of images with numbers."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tuner import Folds
from tuner.errors import DataError
from tuner.train.data.cutting import Cut, cut
from tuner.train.data.pool import Pool
from tuner.train.tasks.several_labels import LabelTargets
from tuner.trial.data_source import Found, Item
from tuner.trial.tasks import NUMBER, SEVERAL_LABELS, Label, Task

NAMES = ("animal", "red", "rare")
SHARES = np.array([0.5, 0.3, 0.02])


def pool_of(task: Task, labels: list[Label], **more: Any) -> Pool:
    """A pool of images that differ, with these labels, as the files of a table would give."""
    from tuner.train.data.folder_reading import _Rows

    found = Found(tuple(Item(str(i), label) for i, label in enumerate(labels)), (), task=task, columns=("age",))
    rows = _Rows.of(found)
    keys = more.pop("keys", np.arange(len(labels), dtype=np.uint64))
    given = (None, [], rows.labels, keys, rows.parts, found.outputs)
    return Pool(*given, key="x", task=task, kinds=rows.kinds, kind_names=found.strata.names, **more)


def tags(count: int = 1000) -> list[Label]:
    has = np.random.default_rng(0).random((count, 3)) < SHARES
    return [tuple(name for name, one in zip(NAMES, row, strict=True) if one) for row in has.tolist()]


def test_every_label_has_its_share_of_each_split() -> None:
    labels = tags()
    pool = pool_of(SEVERAL_LABELS, labels)
    assert pool.kind_names == ("animal", "rare", "red", "(none)")
    rows = cut(pool, Cut(0, 0.2), "tags")
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(1000))
    for part, share in (("test", 0.1), ("validation", 0.2)):
        assert pool.count(rows[part]) == pytest.approx(share * pool.count(np.arange(1000)), abs=5)
    again = cut(pool, Cut(0, 0.2), "tags")
    assert all(np.array_equal(rows[part], again[part]) for part in rows)
    assert not np.array_equal(cut(pool, Cut(1, 0.2), "tags")["test"], rows["test"])


def test_every_label_is_spread_over_the_parts_of_a_cross_validation() -> None:
    pool = pool_of(SEVERAL_LABELS, tags())
    whole = cut(pool, Cut(0, Folds(5)), "tags")["validation"]
    parts = [cut(pool, Cut(0, Folds(5).only(part)), "tags")["validation"] for part in range(5)]
    assert sorted(np.concatenate(parts).tolist()) == sorted(whole.tolist())
    counts = np.array([pool.count(part) for part in parts])
    assert (counts.max(0) - counts.min(0)).max() <= 3
    assert counts[:, 1].min() >= 2  # of the rare label
    assert np.ptp([len(part) for part in parts]) <= 10


def test_groups_and_identical_images_of_several_labels_stay_together() -> None:
    labels, groups = tags(600), np.arange(600) // 3
    keys = np.arange(600, dtype=np.uint64)
    keys[599] = keys[0]
    labels[599] = labels[0]
    pool = pool_of(SEVERAL_LABELS, labels, groups=groups, keys=keys)
    for scheme in (Cut(0, 0.2), Cut(0, Folds(3).only(0))):
        rows = cut(pool, scheme, "tags")
        sides = [set(groups[part].tolist()) for part in rows.values()]
        assert sum(map(len, sides)) == len(set.union(*sides))
        assert sum({0, 599} <= set(part.tolist()) for part in rows.values()) == 1
        assert all(pool.count(part).min() > 0 for part in rows.values())


def test_the_only_image_of_a_label_stays_in_training() -> None:
    labels = [*tags(100), ("once",)]
    rows = cut(pool_of(SEVERAL_LABELS, labels), Cut(0, 0.5), "tags")
    assert 100 in rows["train"]


def test_all_images_of_a_label_in_one_group_cant_be_cut() -> None:
    labels: list[Label] = [("a",), ("b",)] * 20
    with pytest.raises(DataError, match="data must leave images for training, validation and test"):
        cut(pool_of(SEVERAL_LABELS, labels, groups=np.array([0, 1] * 20)), Cut(0), "tags")


def test_numbers_are_cut_by_their_ranges() -> None:
    numbers = (np.random.default_rng(0).standard_exponential(2000) * 100).tolist()
    pool = pool_of(NUMBER, numbers)
    assert pool.classes == ("age",)
    assert len(pool.kind_names) == 10
    assert pool.count(np.arange(2000)).tolist() == [200] * 10
    rows = cut(pool, Cut(0), "ages")
    assert pool.count(rows["test"]).tolist() == [20] * 10
    assert pool.count(rows["validation"]).tolist() == [20] * 10
    folded = cut(pool, Cut(0, Folds(4).only(1)), "ages")
    assert pool.count(folded["validation"]).tolist() == [45] * 10


def test_few_different_numbers_are_strata_each() -> None:
    found = NUMBER.strata(Counter({2.5: 10, 1.0: 15, 4.0: 5}))
    assert found.names == ("1.0", "2.5", "4.0")
    assert [found.of(number) for number in (1.0, 2.5, 4.0)] == [(0,), (1,), (2,)]
    assert NUMBER.strata(Counter([1.0, 2.5, 1.0, 4.0])).names == ("1.0 to 2.5", "2.5 to 4.0")  # of few images
    ranges = NUMBER.strata(Counter(map(float, range(100))))
    assert ranges.names[:2] == ("0.0 to 10.0", "10.0 to 20.0")
    assert (ranges.of(0.0), ranges.of(9.0), ranges.of(10.0), ranges.of(99.0)) == ((0,), (0,), (1,), (9,))


def test_labels_become_a_column_each() -> None:
    assert LabelTargets.encoded([("b",), (), ("a", "b")], ("a", "b")).tolist() == [[0, 1], [0, 0], [1, 1]]
