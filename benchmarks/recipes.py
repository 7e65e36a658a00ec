"""What recipes of fine-tuning reach: the same pretrained network on the same few images, each recipe with each seed.

    python benchmarks/recipes.py IMAGES --weights FILE [--model mobilenet_v2] [--images 40] [--seeds 5] [--quick]

IMAGES is a folder with a class per subfolder. A seed draws other images for training, `--images` of each class, and 60
of each for the test. Recipes are those of `RECIPES`, all AdamW with a cosine schedule over 8 epochs at 96 pixels; their
rates were chosen by hand, once for all seeds. The last line is one JSON object: the mean test accuracy of each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from tuner.train import Trainer
from tuner.train.data.images import read_image, resize
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing
from tuner.trial.image_folder import Folder

PIXELS, EPOCHS, HELD_OUT = 96, 8, 60
SHARED = {"optimizer": "adamw", "schedule": "cosine", "batch_size": 32, "weight_decay": 1e-2}
RECIPES: dict[str, dict[str, Any]] = {
    "head": {"finetune": "head", "lr": 3e-3},
    "all": {"finetune": "all", "lr": 1e-3},
    "all, the backbone at 0.1": {"finetune": "all", "lr": 1e-3, "backbone_lr_scale": 0.1},
    "gradual, the backbone at 0.3": {"finetune": "gradual", "lr": 1e-3, "backbone_lr_scale": 0.3},
    "lp-ft": {"finetune": "lp-ft", "lr": 3e-4, "probe_lr": 1e-2},
    "lp-ft, the backbone at 0.3": {"finetune": "lp-ft", "lr": 1e-3, "probe_lr": 1e-2, "backbone_lr_scale": 0.3},
    "lp-ft, frozen batch norm": {"finetune": "lp-ft", "lr": 3e-4, "probe_lr": 1e-2, "freeze_batch_norm": True},
    "lp-ft, TrivialAugment": {"finetune": "lp-ft", "lr": 3e-4, "probe_lr": 1e-2, "auto_augment": "trivial"},
    "lp-ft, mirrored, both views": {
        **{"finetune": "lp-ft", "lr": 3e-4, "probe_lr": 1e-2, "flip": 0.5, "test_time_flip": True},
    },
}

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


def accuracy(trial: ImageClassifier, recipe: dict[str, Any], seed: int, epochs: int) -> float:
    """On the test images, after the last epoch."""
    trainer = Trainer(trial, SHARED | recipe, epochs=epochs, seed=seed)
    while not trainer.finished:
        trainer.run_epoch()
    return trainer.evaluate(trainer.splits.test).accuracy


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, one recipe of each kind, two epochs")
    options = parser.parse_args()
    names, seeds, epochs = list(RECIPES), range(options.seeds), EPOCHS
    if options.quick:
        names, seeds, epochs = ["head", "all", "lp-ft"], range(1), 2
    found: dict[str, list[float]] = {name: [] for name in names}
    spent = dict.fromkeys(names, 0.0)
    for seed in seeds:
        drawn = partial(draw, Folder(options.folder), options.images, seed)
        trial = ImageClassifier(drawn, options.model, weights=options.weights)
        for name in names:
            begun = time.process_time()
            found[name].append(accuracy(trial, RECIPES[name], seed, epochs))
            spent[name] += time.process_time() - begun
            print(f"  seed {seed}  {name:30} {found[name][-1]:.4f}", flush=True)
    print(f"{'recipe':30}{'test accuracy':>14}{'sd':>8}{'CPU s':>8}")
    for name, values in found.items():
        error = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name:30}{statistics.mean(values):>14.4f}{error:>8.4f}{spent[name] / len(values):>8.1f}")
    print(json.dumps({name: round(statistics.mean(values), 4) for name, values in found.items()}))


if __name__ == "__main__":
    main()
