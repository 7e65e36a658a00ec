"""Results of recipes of fine-tuning and augmentation: the same network on the same few images, each recipe with each
seed.

    python benchmarks/recipes.py IMAGES --weights FILE [--model mobilenet_v2] [--images 30] [--seeds 5]
                                 [--only RECIPE …] [--quick]
    python benchmarks/recipes.py --digits [--seeds 5] [--quick]

IMAGES is a folder with a class per subfolder. A seed draws other images for training, `--images` of each class, and 60
of each for the test. Recipes are those of `PHOTOS`, all AdamW with a cosine schedule over 6 epochs at 64 pixels from
the weights; with `--digits` those of `DIGITS`: scikit-learn's digits, 300 of them for training and 1,197 for the test,
and a small convolutional network from random weights, 30 epochs. Rates were chosen by hand, once for all seeds. Each
recipe is compared with the one that its line names, seed by seed; ± is the standard error of the mean difference. One
thread; seconds are of the CPU. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.refit import small_model
from tuner.train import Trainer
from tuner.train.data.images import read_image, resize
from tuner.trial import ImageClassifier
from tuner.trial.data_source import Folder
from tuner.trial.framing import Framing

PIXELS, HELD_OUT = 64, 60
LP_FT = {"finetune": "lp-ft", "lr": 3e-4, "probe_lr": 1e-2}


@dataclass(frozen=True)
class Recipe:
    """A configuration, and the name of the one that it is compared with."""

    config: dict[str, Any]
    beside: str


def _on(base: str, config: dict[str, Any], **more: dict[str, Any]) -> dict[str, Recipe]:
    """The base and each of the others, which add to it."""
    return {base: Recipe(config, base)} | {name: Recipe(config | one, base) for name, one in more.items()}


MODES: dict[str, dict[str, Any]] = {
    "head": {"finetune": "head", "lr": 3e-3},
    "all": {"finetune": "all", "lr": 1e-3},
    "all, backbone at 0.1": {"finetune": "all", "lr": 1e-3, "backbone_lr_scale": 0.1},
    "gradual, backbone at 0.3": {"finetune": "gradual", "lr": 1e-3, "backbone_lr_scale": 0.3},
}
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "+ TrivialAugment": {"auto_augment": "trivial"},
    "+ RandAugment": {"auto_augment": "rand", "rand_augment_magnitude": 5},
    "+ random resized crops": {"random_resized_crop": 0.3},
    "+ mixup": {"mixup": 0.2},
    "+ CutMix": {"cutmix": 1.0},
}
FROZEN: dict[str, dict[str, Any]] = {
    "+ frozen batch norm": {"freeze_batch_norm": True},
    "+ the same at a tenth of lr": {"freeze_batch_norm": True, "lr": 3e-5},
}
PHOTOS = {name: Recipe(one, "lp-ft") for name, one in MODES.items()} | _on(
    "lp-ft",
    LP_FT,
    **{
        **FROZEN,
        **AUGMENTATIONS,
        "+ flips": {"flip": 0.5},
        "+ flips, both views": {"flip": 0.5, "test_time_flip": True},
    },
)
DIGITS = _on(
    "plain",
    {"lr": 3e-3},
    **{**AUGMENTATIONS, "+ shifts of a pixel": {"crop_padding": 1}, "+ both views": {"test_time_flip": True}},
)
SHARED = {"optimizer": "adamw", "schedule": "cosine", "batch_size": 32, "weight_decay": 1e-2}

Images = tuple[Tensor, Tensor]


def draw(folder: Folder, images: int, seed: int) -> tuple[Images, Images, Images]:
    """Images and labels for training, validation (a quarter as many) and test."""
    generator = torch.Generator().manual_seed(seed)
    parts: list[tuple[list[Tensor], list[int]]] = [([], []), ([], []), ([], [])]
    sizes = images, max(2, images // 4), HELD_OUT
    for label, paths in enumerate(folder.look().images["train"].values()):
        chosen = [paths[place] for place in torch.randperm(len(paths), generator=generator)[: sum(sizes)]]
        for part, size in zip(parts, sizes, strict=True):
            part[0].extend(resize(read_image(path)[None], Framing(PIXELS))[0] for path in chosen[:size])
            part[1].extend([label] * len(chosen[:size]))
            chosen = chosen[size:]
    train, validation, test = ((torch.stack(held), torch.tensor(labels)) for held, labels in parts)
    return train, validation, test


def some_digits(seed: int) -> tuple[Images, Images, Images]:
    """300 for training, 300 that nobody looks at, and the rest for the test, images [N, 1, 8, 8]."""
    found = load_digits()
    images = torch.from_numpy(found.images * 15).to(torch.uint8)[:, None]
    labels = torch.from_numpy(found.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    parts = [(images[rows], labels[rows]) for rows in torch.split(order, [300, 300, len(order) - 600])]
    return parts[0], parts[1], parts[2]


def accuracy(trial: ImageClassifier, config: dict[str, Any], seed: int, epochs: int) -> float:
    """On the test images, after the last epoch."""
    trainer = Trainer(trial, SHARED | config, epochs=epochs, seed=seed)
    while not trainer.finished:
        trainer.run_epoch()
    return trainer.evaluate(trainer.splits.test)["accuracy"]


def measure(
    recipes: dict[str, Recipe], trial: Callable[[int], ImageClassifier], seeds: int, epochs: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Test accuracies of each recipe, a value per seed, and its CPU seconds in all."""
    found: dict[str, list[float]] = {name: [] for name in recipes}
    spent = dict.fromkeys(recipes, 0.0)
    for seed in range(seeds):
        drawn = trial(seed)
        for name, recipe in recipes.items():
            begun = time.process_time()
            found[name].append(accuracy(drawn, recipe.config, seed, epochs))
            spent[name] += time.process_time() - begun
        print(f"  seed {seed}: " + ", ".join(f"{name} {values[-1]:.3f}" for name, values in found.items()), flush=True)
    return found, spent


def figures(recipes: dict[str, Recipe], found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Mean accuracy in percent, and the gain over the recipe beside it in points with its standard error."""
    told = {}
    for name, values in found.items():
        gains = [100 * (one - base) for one, base in zip(values, found[recipes[name].beside], strict=True)]
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        told[name] = {
            "accuracy": round(100 * statistics.mean(values), 2),
            "gain": round(statistics.mean(gains), 2),
            "error": round(error, 2),
        }
    return told


def main() -> None:
    """Print the table and the JSON line."""
    options = _options()
    torch.set_num_threads(1)
    recipes = DIGITS if options.digits else PHOTOS
    recipes = {name: one for name, one in recipes.items() if name in (options.only or recipes)}
    seeds, epochs = options.seeds, 30 if options.digits else 6
    if options.quick:
        bases = {recipe.beside for recipe in recipes.values()}
        recipes = {name: one for name, one in recipes.items() if name in (*bases, "+ CutMix")}
        seeds, epochs = 1, 2

    def trial(seed: int) -> ImageClassifier:
        if options.digits:
            return ImageClassifier(partial(some_digits, seed), small_model, weights=None)
        drawn = partial(draw, Folder(options.folder), options.images, seed)
        return ImageClassifier(drawn, options.model, weights=options.weights)

    found, spent = measure(recipes, trial, seeds, epochs)
    told = figures(recipes, found)
    print(f"{'recipe':30}{'accuracy':>10}{'gain':>8}{'±':>6}{'CPU s':>8}  beside")
    for name, one in told.items():
        seconds = spent[name] / len(found[name])
        print(
            f"{name:30}{one['accuracy']:>10.2f}{one['gain']:>8.2f}{one['error']:>6.2f}{seconds:>8.1f}  "
            f"{recipes[name].beside}"
        )
    print(json.dumps(told))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--digits", action="store_true")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--images", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="RECIPE", choices=[*PHOTOS, *DIGITS], help="with their bases")
    parser.add_argument("--quick", action="store_true", help="one seed, a few recipes, two epochs")
    options = parser.parse_args()
    if not options.digits and (options.folder is None or options.weights is None):
        parser.error("a folder of images and --weights FILE are needed, or --digits; name them")
    return options


if __name__ == "__main__":
    main()
