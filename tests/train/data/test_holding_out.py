import numpy as np

from tuner.train.data.holding_out import hold_out, quotas


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_tenth_of_every_class_is_held_out_and_at_least_one() -> None:
    labels = np.repeat([0, 1, 2, 3], [6000, 14, 2, 1])
    assert quotas(np.bincount(labels), at_least=2) == {0: 600, 1: 1, 2: 1, 3: 0}
    assert quotas(np.bincount(labels), at_least=3) == {0: 600, 1: 1, 2: 0, 3: 0}


def test_the_quota_is_met_and_the_seed_decides() -> None:
    labels = np.repeat([0, 1], [50, 30])
    keys = np.arange(80, dtype=np.uint64)
    held = hold_out(labels, keys, {0: 5, 1: 3}, rng())
    assert np.bincount(labels[held]).tolist() == [5, 3]
    assert np.array_equal(held, hold_out(labels, keys, {0: 5, 1: 3}, rng()))
    assert not np.array_equal(held, hold_out(labels, keys, {0: 5, 1: 3}, rng(1)))


def test_identical_images_stay_on_one_side() -> None:
    labels = np.zeros(40, dtype=np.int64)
    keys = np.arange(40, dtype=np.uint64) // 4
    for seed in range(20):
        held = hold_out(labels, keys, {0: 8}, rng(seed))
        assert held.sum() == 8
        assert {tuple(held[keys == key]) for key in np.unique(keys)} == {(True,) * 4, (False,) * 4}


def test_a_group_larger_than_the_quota_is_not_held_out() -> None:
    keys = np.zeros(10, dtype=np.uint64)
    assert not hold_out(np.zeros(10, dtype=np.int64), keys, {0: 1}, rng()).any()


def test_an_image_under_two_labels_is_never_held_out() -> None:
    labels = np.array([0, 1, 0, 1])
    keys = np.array([7, 7, 8, 9], dtype=np.uint64)
    assert hold_out(labels, keys, {0: 1, 1: 1}, rng()).tolist() == [False, False, True, True]
