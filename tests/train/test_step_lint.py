from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.pretend import pretending
from tests.train.step_lint import Difference, difference, recorded, steps_of
from tuner.train import Trainer
from tuner.trial import ImageClassifier

ADAM, AVERAGE = "aten._fused_adam_.default", "aten._foreach_lerp_.Scalar"


def of_two_steps(trial: ImageClassifier, **config: Any) -> Difference:
    """Of the third and the fourth step of a trial on a pretended GPU."""
    with pretending():
        trainer = Trainer(
            trial,
            {"batch_size": 8, "image_size": 12} | config,
            epochs=4,
            seed=0,
            split_seed=0,
            device="cuda",
        )
        trainer.train(2)
        return difference(*steps_of(trainer, 2))


def test_nothing_of_a_step_with_defaults_changes_but_where_its_images_lie(small: ImageClassifier) -> None:
    found = of_two_steps(small)
    assert (found.sequence, found.scalars, found.waits, found.draws) == (None, (), (), ())
    assert found.moved  # images and labels


@pytest.mark.parametrize(
    ("config", "scalars"),
    [
        ({"schedule": "cosine"}, {ADAM}),
        ({"ema_decay": 0.9}, {AVERAGE}),
        ({"optimizer": "sgd", "momentum": 0.9, "clip_norm": 1.0, "precision": "bf16"}, set()),
        ({"precision": "fp16", "class_weights": "balanced", "label_smoothing": 0.1}, set()),
    ],
)
def test_numbers_that_change_are_found(small: ImageClassifier, config: dict[str, Any], scalars: set[str]) -> None:
    found = of_two_steps(small, **config)
    assert (found.sequence, set(found.scalars), found.waits) == (None, scalars, ())


def test_the_share_of_mixup_is_drawn_on_the_host(small: ImageClassifier) -> None:
    found = of_two_steps(small, mixup=0.2)
    assert {"aten.mul_.Tensor"} <= set(found.scalars)
    assert found.waits == ("aten._local_scalar_dense.default",)
    assert found.draws == ("aten._sample_dirichlet.default",)


@pytest.mark.parametrize("policy", ["trivial", "rand"])
def test_policies_and_resized_crops_are_the_same_operators_whatever_is_drawn(
    small: ImageClassifier, policy: str
) -> None:
    found = of_two_steps(small, auto_augment=policy, random_resized_crop=0.1)
    assert (found.sequence, found.scalars, found.waits) == (None, (), ())


def test_the_box_of_cutmix_is_drawn_on_the_host(small: ImageClassifier) -> None:
    found = of_two_steps(small, cutmix=1.0)
    assert found.sequence is None
    assert set(found.scalars) <= {"aten.mul_.Tensor", "aten.mul.Tensor", "aten.ge.Scalar", "aten.lt.Scalar"}


def steps(*taken: Any) -> Difference:
    return difference(*(recorded(step) for step in taken))


def test_other_operators_shapes_and_places_are_found() -> None:
    one, other, long = torch.ones(3), torch.ones(3), torch.ones(4)

    def made(values: Tensor) -> Tensor:
        return torch.zeros_like(values).add_(1.0)  # its own memory

    assert steps(lambda: made(one), lambda: made(one)) == Difference(None, (), (), (), ())
    assert steps(lambda: made(one), lambda: made(other)).moved == ("aten.zeros_like.default",)
    assert steps(lambda: one[1:] + 1, lambda: one[:-1] + 1).moved == ("aten.add.Tensor",)
    assert steps(lambda: one + 1, lambda: one * 1).sequence == ("aten.add.Tensor", "aten.mul.Tensor")
    assert steps(lambda: one + 1, lambda: long + 1).sequence == ("aten.add.Tensor", "aten.add.Tensor")
    assert steps(lambda: one + 1, lambda: one + 1 + 1).sequence == ("the end", "aten.add.Tensor")
    assert steps(lambda: one + 1, lambda: one + 2).scalars == ("aten.add.Tensor",)
    assert steps(lambda: one[one > 0], lambda: one[[0]]).waits == ("aten.index.Tensor",)
    assert steps(lambda: torch.rand(2), list).draws == ("aten.rand.default",)
