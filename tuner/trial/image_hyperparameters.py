"""The hyperparameters of `ImageClassifier` that say how images are prepared for the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.trial.hyperparameter import Hyperparameter

CHANGES_IMAGES = (  # each of them makes an image different in every epoch
    *("mixup", "cutmix", "crop_padding", "random_resized_crop", "flip", "auto_augment", "color_jitter"),
    "random_erasing",
)

MIXES_IMAGES = ("mixup", "cutmix")

IMAGES: tuple[Hyperparameter, ...] = (
    Hyperparameter(
        "mixup",
        "float",
        0.0,
        "Alpha of mixup (Zhang et al. 2018); 0: none.",
        low=0,
        high=10,
        aliases=("mixup_alpha",),
    ),
    Hyperparameter(
        "cutmix",
        "float",
        0.0,
        "Alpha of CutMix (Yun et al. 2019); 0: none. With `mixup`, each batch gets one of the two, both equally often.",
        low=0,
        high=10,
        aliases=("cutmix_alpha", "cut_mix"),
    ),
    Hyperparameter(
        "crop_padding",
        "int",
        0,
        "Random crops of images that are padded by this number of pixels on every side.",
        low=0,
        high=256,
        aliases=("random_crop", "padding"),
    ),
    Hyperparameter(
        "random_resized_crop",
        "float",
        0.0,
        "Smallest share of the image that random crops keep, which are resized to the whole; ImageNet's recipe has "
        "0.08. 0: none.",
        low=0,
        high=1,
        aliases=("resized_crop", "rrc", "crop_scale", "min_crop"),
    ),
    Hyperparameter(
        "flip",
        "float",
        0.0,
        "Share of images that are mirrored.",
        low=0,
        high=1,
        aliases=("horizontal_flip", "random_flip", "hflip"),
    ),
    Hyperparameter(
        "auto_augment",
        "categorical",
        "none",
        "A policy: `trivial`, TrivialAugment (one operation for each image, of any magnitude), or `rand`, RandAugment "
        "(several, of one magnitude). Both shift, turn and shear images, and change their colours.",
        choices=("none", "trivial", "rand"),
        aliases=("autoaugment", "trivial_augment", "trivialaugment", "rand_augment", "randaugment", "policy"),
    ),
    Hyperparameter(
        "rand_augment_operations",
        "int",
        2,
        "Operations that `rand` takes each image through.",
        low=1,
        high=8,
        aliases=("num_ops", "rand_augment_ops"),
        costs=False,
    ),
    Hyperparameter(
        "rand_augment_magnitude",
        "int",
        9,
        "Magnitude of the operations of `rand`.",
        low=0,
        high=30,
        aliases=("magnitude", "augment_magnitude"),
        costs=False,
    ),
    Hyperparameter(
        "color_jitter",
        "float",
        0.0,
        "Strength of random changes of brightness, contrast and saturation.",
        low=0,
        high=1,
        aliases=("colour_jitter", "jitter"),
    ),
    Hyperparameter(
        "random_erasing",
        "float",
        0.0,
        "Share of images of which a random rectangle is erased (Zhong et al. 2017).",
        low=0,
        high=1,
        aliases=("erasing", "cutout", "random_erase"),
    ),
    Hyperparameter(
        "views",
        "int",
        0,
        "With `finetune='head'`: augmented versions of each training image, whose features are computed once and kept "
        "beside those of the image itself. In each epoch one of them is drawn for each image; `lbfgs` learns from all. "
        "0: augmented images go through the whole network in every epoch.",
        low=0,
        high=64,
        aliases=("augmented_views", "n_views", "augmentations"),
    ),
    Hyperparameter(
        "test_time_flip",
        "bool",
        False,
        "Answers are the mean of the logits for an image and for its mirror image: in validation, in the test, in "
        "`predict` and in exports. They take twice as long.",
        aliases=("tta", "test_time_augmentation", "flip_at_test", "hflip_tta"),
    ),
    Hyperparameter(
        "image_size",
        "int",
        None,
        "Edge in pixels that images are resized to. By default it is that of published weights, for most of them 224 "
        "pixels, with their crop and interpolation; with other weights the data's own: 28 for fashion-mnist, 32 for "
        "cifar10, 24 for digits (8 pixels), 64 for a folder. Never less than the model needs.",
        low=8,
        high=1024,
        aliases=("img_size", "imagesize", "size", "resolution", "input_size"),
    ),
)


def is_on(chosen: Mapping[str, Any], name: str) -> bool:
    """Whether a hyperparameter that 0 or "none" turns off is on."""
    return chosen.get(name) not in (None, 0, "none")
