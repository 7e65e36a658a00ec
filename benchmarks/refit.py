"""The gain on the test split from training the winner again on training and validation images together (`Study.refit`).

    python benchmarks/refit.py [--quick] [--data-dir DIR] [--seeds 20] [--rows N]

Photos: five classes of CIFAR-10 as a folder, a head on the frozen features of MobileNetV2 (real ImageNet weights), 100
test images a class. Digits: a small convolutional network from random weights. For each seed the images are split again
(that seed also decides weights and order), a trial is trained in full, and the network of the epoch that stands for it,
as in a search, is compared with one that is trained again for as many epochs on all images but those for test. The test
split of the photos is the same for all seeds, that of digits is cut with them. It prints mean accuracies, the mean of
the paired differences in points, and its standard error over the seeds. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.transfer import CLASSES, installed_weights
from tuner.history.worth import of_full_length
from tuner.inspection.networks import trained
from tuner.train import trainer_of
from tuner.trial import Folds, ImageClassifier

TEST = 100  # photos of a class
HEAD = {"finetune": "head", "lr": 1e-3, "batch_size": 32, "image_size": 96}
NEW = {"lr": 3e-3, "batch_size": 64, "image_size": 8, "schedule": "cosine"}


@dataclass(frozen=True)
class Row:
    """One setting: a trial of this many images, what its configuration is, and for how many epochs it is trained."""

    name: str
    trial: Callable[[Path], ImageClassifier]
    config: dict[str, Any]
    epochs: int


def photos(count: int, validation: float | Folds) -> Row:
    """`count` photos of a class for training and validation together."""

    def trial(folder: Path) -> ImageClassifier:
        weights = installed_weights()
        return ImageClassifier(f"folder:{folder / str(count)}", "mobilenet_v2", weights, validation=validation)

    return Row(f"photos, {count} of each class, validation={validation}", trial, HEAD, 12)


def digits(validation: float) -> Row:
    """Scikit-learn's digits."""
    return Row(
        f"digits, validation={validation}",
        lambda folder: ImageClassifier("digits", small_model, weights=None, validation=validation),
        NEW,
        8,
    )


ROWS = (
    photos(10, 0.2),
    photos(40, 0.1),
    photos(40, 0.2),
    photos(40, Folds(5)),
    digits(0.1),
    digits(0.2),
)


def small_model(config: dict[str, Any]) -> nn.Module:
    """Two convolutions and a layer for images [N, 1, 8, 8]."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )


def main() -> None:
    """Measure, print a row for each setting, and the figures last."""
    options = _options()
    torch.set_num_threads(1)
    seeds = 2 if options.quick else options.seeds
    told = []
    with tempfile.TemporaryDirectory(prefix="refit ") as name:
        folder = Path(name)
        os.environ["TUNER_CACHE"] = f"{folder}/cache"
        for row in ROWS[: options.rows]:
            if row.config is HEAD:
                _write_photos(options.data_dir, folder, int(row.name.split()[1]))
            pairs = [compared(row, folder, seed) for seed in range(seeds)]
            told.append(figures(row.name, pairs))
            print(json.dumps(told[-1]), flush=True)
    print(json.dumps({"rows": told}))


def compared(row: Row, folder: Path, seed: int) -> tuple[float, float]:
    """Accuracy on the test split of the network that a search ships, and of the one that was trained again."""
    trial = row.trial(folder)
    values, kept = [], folder / "kept"
    running = trainer_of(trial, row.config, epochs=row.epochs, seed=seed, split_seed=seed)
    for epoch in range(1, row.epochs + 1):
        values.append((epoch, float(running.run_epoch().metrics()["val_accuracy"])))
        running.save(kept / f"{seed}-{epoch}")
    took = of_full_length(values, "max").epoch
    before = _accuracy(trial, row.config, kept / f"{seed}-{took}", seed)
    again = trainer_of(trial.refitted(), row.config, epochs=row.epochs, seed=seed + 1000, split_seed=seed)
    for _ in range(took):
        again.run_epoch()
    again.save(kept / f"{seed}-again")
    return before, _accuracy(trial.refitted(), row.config, kept / f"{seed}-again", seed)


def figures(name: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Of one setting, in percent and points."""
    gains = [100 * (again - before) for before, again in pairs]
    return {
        "setting": name,
        "winner": round(100 * statistics.mean(before for before, _ in pairs), 2),
        "refitted": round(100 * statistics.mean(again for _, again in pairs), 2),
        "gain_points": round(statistics.mean(gains), 2),
        "error": round(statistics.stdev(gains) / len(gains) ** 0.5, 2),
        "seeds": len(pairs),
    }


def _accuracy(trial: ImageClassifier, config: dict[str, Any], checkpoint: Path, seed: int) -> float:
    model = trained(trial, config, checkpoint, seed)
    return model.splits.targets.metrics(model.tested, model.splits.test.labels)["accuracy"]


def _write_photos(data_dir: Path, folder: Path, count: int) -> None:
    """The first images of each class, and the first of its test split."""
    for part, most in (("train", count), ("test", TEST)):
        for name in CLASSES:
            target = folder / str(count) / part / name
            if target.is_dir():
                continue
            target.mkdir(parents=True)
            for path in sorted((data_dir / "cifar10" / part / name).iterdir())[:most]:
                (target / path.name).symlink_to(path.resolve())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two seeds: the figures mean nothing")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="holds cifar10/{train,test}/<class>/")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=len(ROWS), help="the first so many settings")
    return parser.parse_args()


if __name__ == "__main__":
    main()
