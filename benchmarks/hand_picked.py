"""Compares the results of `tuner init` and `tuner run` for a folder of photos with settings that were chosen without a
search.

    python benchmarks/hand_picked.py [--quick] --data-dir DIR [--seeds 5] [--minutes 3] [--images 50] [--test 200]

For each seed the folder has other photos of five of CIFAR-10's classes, in train/ and in test/. `init` writes the
study, `run` searches with it, on all CPUs of this machine, and cuts images for validation off train/. By hand, which
needs none of them for validation, on all of train/ and with the same real ImageNet weights of MobileNetV2 and their
own preprocessing:
"adam", a head by Adam at 0.001, batches of 32, ten epochs; "tutorial", the frozen network of PyTorch's tutorial on
transfer learning: SGD at 0.001 with momentum 0.9, batches of 4, 25 epochs, a tenth of the rate after every seventh.
Both get the model's dropout, and go over the backbone's answers, which are the same in every epoch.

Told are the test accuracies, what the search has more in points (mean, and its standard error over the seeds), and the
minutes that `init` foresaw beside those that the search took. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR
from torchvision.datasets import ImageFolder

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.few_images import backbone_features
from benchmarks.transfer import CLASSES, installed_weights

Features = tuple[Tensor, Tensor]  # [N, 1280], and labels [N]


def main() -> None:
    """Measure, print a row per seed, and the figures last."""
    options = _options()
    print(f"{'seed':>4}{'search':>10}{'adam':>10}{'tutorial':>10}{'foreseen min':>14}{'took':>8}{'trials':>8}")
    rows = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        with tempfile.TemporaryDirectory(prefix="hand picked ") as folder:
            rows.append(_row(Path(folder), options, seed))
    print(json.dumps(figures(rows)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", type=Path, required=True, help="holds cifar10/train/<class>/*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=3.0, help="for `init`")
    parser.add_argument("--images", type=int, default=60, help="of a class, for training")
    parser.add_argument("--test", type=int, default=200, help="of a class, for the test")
    parser.add_argument("--quick", action="store_true", help="few images, one seed: the figures mean nothing")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.minutes, options.images, options.test = 1, 0.5, 10, 10
    if not (options.data_dir / "cifar10" / "train").is_dir():
        parser.error(f"--data-dir needs a folder with cifar10/train/<class>/*, got {options.data_dir}")
    return options


def _row(folder: Path, options: argparse.Namespace, seed: int) -> dict[str, float]:
    photos = write_photos(folder / "photos", options, seed)
    search = searched(folder, options.minutes, seed)
    train, test = features(photos / "train"), features(photos / "test")
    row = {**search, "adam": by_hand(train, test, seed, adam), "tutorial": by_hand(train, test, seed, tutorial)}
    print(
        f"{seed:>4}{row['search']:>10.4f}{row['adam']:>10.4f}{row['tutorial']:>10.4f}"
        f"{row['foreseen']:>14.2f}{row['took']:>8.2f}{row['trials']:>8.0f}",
        flush=True,
    )
    return row


def write_photos(photos: Path, options: argparse.Namespace, seed: int) -> Path:
    """Other photos for each seed, split on disk."""
    sizes = {"train": options.images, "test": options.test}
    for name in CLASSES:
        paths = sorted((options.data_dir / "cifar10" / "train" / name).iterdir())
        first = seed * sum(sizes.values())
        for split, count in sizes.items():
            (photos / split / name).mkdir(parents=True)
            for path in paths[first : first + count]:
                shutil.copy(path, photos / split / name / path.name)
            first += count
    return photos


# The search


def searched(folder: Path, minutes: float, seed: int) -> dict[str, float]:
    """What the winner reaches on the test split, and what `init` foresaw of the search."""
    weights = installed_weights()
    if weights is None:
        raise SystemExit("the weights aren't there; run: make .venv/.installed")
    checkpoints = folder / "torch" / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    shutil.copy(weights, checkpoints / weights.name)
    here = os.environ | {"TORCH_HOME": str(folder / "torch"), "TUNER_CACHE": str(folder / "cache")}
    first = _tuner(folder, here, "init", "photos", "--minutes", str(minutes), "--models", "mobilenet_v2", "--json")
    begun = time.perf_counter()
    found = _tuner(folder, here, "run", "study.py", "--json", "--seed", str(seed))
    took = (time.perf_counter() - begun) / 60
    reached = float(found["best"]["metrics"]["test_accuracy"])
    foreseen = float(first["cost"]["minutes"]["middle"])
    return {"search": reached, "foreseen": foreseen, "took": took, "trials": found["trials"]["total"]}


def _tuner(folder: Path, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tuner", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


# By hand


def features(folder: Path) -> Features:
    """What the frozen backbone answers to each image of a split."""
    images = ImageFolder(folder)
    return backbone_features([Path(path) for path, _ in images.samples]), torch.tensor(images.targets)


def adam(head: nn.Module) -> tuple[Optimizer, int, int, StepLR | None]:
    """The optimizer, images of a batch, epochs, and the schedule."""
    return Adam(head.parameters(), lr=1e-3), 32, 10, None


def tutorial(head: nn.Module) -> tuple[Optimizer, int, int, StepLR | None]:
    """Likewise, as PyTorch's tutorial on transfer learning has it."""
    optimizer = SGD(head.parameters(), lr=1e-3, momentum=0.9)
    return optimizer, 4, 25, StepLR(optimizer, step_size=7, gamma=0.1)


def by_hand(
    train: Features, test: Features, seed: int, settings: Callable[[nn.Module], tuple[Optimizer, int, int, Any]]
) -> float:
    """Test accuracy of a head that is trained so."""
    torch.manual_seed(seed)
    head = nn.Sequential(nn.Dropout(0.2), nn.Linear(train[0].shape[1], len(CLASSES)))
    optimizer, batch, epochs, schedule = settings(head)
    for _ in range(epochs):
        for rows in torch.randperm(len(train[1])).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(train[0][rows]), train[1][rows]).backward()
            optimizer.step()
        if schedule:
            schedule.step()
    head.eval()
    return float((head(test[0]).argmax(1) == test[1]).float().mean())


def figures(rows: list[dict[str, float]]) -> dict[str, Any]:
    """The last line."""
    told: dict[str, Any] = {name: round(statistics.mean(row[name] for row in rows), 4) for name in rows[0]}
    for name in ("adam", "tutorial"):
        more = [100 * (row["search"] - row[name]) for row in rows]
        error = statistics.stdev(more) / len(more) ** 0.5 if len(more) > 1 else None
        told[f"more_than_{name}"] = {"points": round(statistics.mean(more), 2), "error": error and round(error, 2)}
    told["took_over_foreseen"] = [round(row["took"] / row["foreseen"], 2) for row in rows]
    return told


if __name__ == "__main__":
    main()
