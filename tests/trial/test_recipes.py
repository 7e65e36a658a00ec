"""Recipes that can't work are refused, and those that are hardly meant so are noticed."""

from typing import Any

import pytest

from tuner import Budget, Study, choice, uniform
from tuner.errors import StudyError
from tuner.space import Space
from tuner.trial import ImageClassifier

PETS = {"data": "folder:pets"}


def any_model(config: dict[str, Any]) -> Any: ...


@pytest.mark.parametrize(
    ("trial", "space", "message"),
    [
        (
            {"weights": None},
            {"finetune": choice(["all", "lp-ft"])},
            "finetune='lp-ft' needs pretrained weights, whose features its first epochs learn from, got weights=None; use "
            "weights='imagenet', or finetune='all'",
        ),
        (
            {"weights": "none"},
            {"freeze_batch_norm": True},
            "freeze_batch_norm=True needs pretrained weights, whose statistics it keeps, got weights=None; use "
            "weights='imagenet', or leave it out",
        ),
        (
            {"model": "resnet50"},
            {"stochastic_depth": uniform(0, 0.3)},
            "stochastic_depth needs a model that has it (torchvision's convnext, efficientnet, maxvit, swin; most of timm's; on the "
            "hub those with drop_path_rate), got 'resnet50'; leave it out, or give it a condition on model",
        ),
        (
            {},
            {"model": choice(["convnext_tiny", "resnet18"]), "stochastic_depth": 0.1},
            "stochastic_depth needs a model that has it (torchvision's convnext, efficientnet, maxvit, swin; most of timm's; on the "
            "hub those with drop_path_rate), got 'resnet18'; leave it out, or give it a condition on model",
        ),
        ({}, {"auto_augment": "auto"}, "auto_augment must be none, trivial or rand, got 'auto'; choose among"),
        ({}, {"trivial_augment": True}, "'trivial_augment' is not a hyperparameter of ImageClassifier; did you mean"),
        (
            {},
            {"random_resized_crop": (0.08, 1.0)},
            "random_resized_crop must be a float from 0 to 1, got (0.08, 1.0); ",
        ),
    ],
)
def test_what_cant_work_is_refused(trial: dict[str, Any], space: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as caught:
        ImageClassifier(**PETS | trial).check(Space(space))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("trial", "space"),
    [
        ({}, {"finetune": "lp-ft", "freeze_batch_norm": choice([True, False])}),
        ({"weights": None}, {"freeze_batch_norm": False, "finetune": "all"}),
        (
            {"model": any_model, "weights": None},
            {"finetune": "lp-ft", "freeze_batch_norm": True, "stochastic_depth": 0.2},
        ),
        ({"model": "swin_t"}, {"stochastic_depth": uniform(0, 0.5)}),
        ({"model": "resnet18"}, {"stochastic_depth": 0.0}),
        (
            {},
            {
                "model": choice(["convnext_tiny", "resnet18"]),
                "stochastic_depth": uniform(0, 0.3).when(model="convnext_tiny"),
            },
        ),
    ],
)
def test_what_can_work_is_accepted(trial: dict[str, Any], space: dict[str, Any]) -> None:
    ImageClassifier(**PETS | trial).check(Space(space))


@pytest.mark.parametrize(
    ("trial", "space", "notice"),
    [
        ({}, {"probe_lr": 0.1}, "probe_lr changes nothing without finetune='lp-ft'; leave it out, or set finetune"),
        (
            {},
            {"finetune": "lp-ft", "probe_epochs": choice([2, 3])},
            "probe_epochs=3 leaves none of max_epochs=3 to train all layers; lower probe_epochs, or raise "
            "Budget(max_epochs=...)",
        ),
        (
            {"model": "vit_b_16"},
            {"freeze_batch_norm": True},
            "freeze_batch_norm changes nothing for vit_b_16, which has no batch norm; leave it out",
        ),
        (
            {},
            {"auto_augment": "trivial", "rand_augment_magnitude": 5},
            "rand_augment_magnitude changes nothing without auto_augment='rand'; leave it out, or set auto_augment",
        ),
        (
            {},
            {"finetune": "head", "flip": uniform(0, 0.5)},
            "flip changes the images in every epoch, so finetune='head' runs the whole network each time; with views=8, or without it, the "
            "frozen layers' features are computed once",
        ),
    ],
)
def test_what_is_hardly_meant_so_is_noticed(trial: dict[str, Any], space: dict[str, Any], notice: str) -> None:
    study = Study("s", trial=ImageClassifier(**PETS | trial), space=space, budget=Budget(max_epochs=3))
    assert study.notices == [notice]


def test_sound_recipes_get_no_notice() -> None:
    space = {
        **{"finetune": choice(["lp-ft", "all"]), "probe_epochs": 1, "probe_lr": 0.01, "flip": 0.5, "cutmix": 1.0},
        **{"auto_augment": choice(["none", "rand"]), "rand_augment_operations": 1, "freeze_batch_norm": True},
    }
    assert Study("s", trial=ImageClassifier(**PETS), space=space, budget=Budget(max_epochs=3)).notices == []
