"""One label, several labels and a number: tuner's trainer beside a plain loop, from the same weights.

    python benchmarks/tasks.py [--images 1500] [--epochs 3] [--data-dir DIR] [--task one|several|columns|number]

Each task is a table of images that are written to a folder: DIR's photos of flowers, with one label; DIR's CIFAR-10
with tags such as `animal` and `flies`, between semicolons and again as columns of 0 and 1; and drawn bars with their
angles. The plain loop reads the table itself, has the same small network, initial weights and order of images, and
takes scikit-learn's metrics of the validation images. `apart` is the largest difference: relative of an epoch's
training loss, absolute of a metric. The last line is one JSON object: for each task both sides' losses and metrics.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, mean_absolute_error, r2_score
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent.parent))

from tuner.train import Trainer
from tuner.trial import ImageClassifier
from tuner.trial.table import Table

SIZE, LR = 32, 0.02
CONFIG: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "lr": LR, "weight_decay": 0.0, "batch_size": 32}
SPLITS = ("train", "train", "train", "val", "test")  # of five images after each other
TAGS = {
    "animal": ("bird", "cat", "deer", "dog", "frog", "horse"),
    "flies": ("airplane", "bird"),
    "has wheels": ("airplane", "automobile", "truck"),
    "has fur": ("cat", "deer", "dog", "horse"),
    "swims": ("frog", "ship"),
    "on a road": ("automobile", "truck"),
}
Picture = tuple[Image.Image, Any]


def flowers(folder: Path, count: int) -> Iterator[Picture]:
    """Photos with their class."""
    kinds = sorted(path for path in (folder / "photos" / "flowers").iterdir() if path.is_dir())
    for photos in zip(*(sorted(kind.iterdir()) for kind in kinds), strict=False):
        for file in photos[: max(0, count)]:
            count -= 1
            yield Image.open(file).convert("RGB").resize((SIZE, SIZE)), file.parent.name


def tagged(folder: Path, count: int) -> Iterator[Picture]:
    """CIFAR-10's images with the tags of their class."""
    left = dict.fromkeys({name for names in TAGS.values() for name in names}, count // 10)
    with tarfile.open(folder / "cifar10" / "cifar10.tar.xz") as files:
        for member in files:
            name = Path(member.name).parent.name
            if member.isfile() and left.get(name):
                left[name] -= 1
                yield (
                    Image.open(io.BytesIO(files.extractfile(member).read())),  # type: ignore[union-attr]  # a file
                    tuple(tag for tag, names in TAGS.items() if name in names),
                )
            if not any(left.values()):
                return


def bars(folder: Path, count: int) -> Iterator[Picture]:
    """White bars on noise, with their angles in degrees."""
    random = np.random.default_rng(0)
    for _ in range(count):
        angle = round(float(random.uniform(0, 90)), 2)
        image = Image.fromarray(random.integers(0, 60, (SIZE, SIZE, 3), dtype=np.uint8))
        across = 12 * np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
        ImageDraw.Draw(image).line([*(SIZE / 2 - across), *(SIZE / 2 + across)], fill="white", width=4)
        yield image, angle


@dataclass(frozen=True)
class Kind:
    """A task: where its images come from, how a table has a label and a plain loop reads it, columns and outputs."""

    images: Callable[[Path, int], Iterator[Picture]]
    columns: Callable[[Any], dict[str, Any]]
    read: Callable[[dict[str, str]], Any]
    label: str | list[str]
    outputs: int
    metrics: tuple[str, ...]


KINDS = {
    "one": Kind(
        *(flowers, lambda label: {"label": label}, lambda row: row["label"]),
        *("label", 5, ("accuracy", "f1")),
    ),
    "several": Kind(
        *(tagged, lambda tags: {"label": ";".join(tags)}, lambda row: tuple(sorted(row["label"].split(";")))),
        *("label", len(TAGS), ("map", "f1", "f1_micro")),
    ),
    "columns": Kind(
        tagged,
        lambda tags: {tag: int(tag in tags) for tag in TAGS},
        lambda row: tuple(tag for tag in TAGS if row[tag] == "1"),
        *(list(TAGS), len(TAGS), ("map", "f1", "f1_micro")),
    ),
    "number": Kind(
        *(bars, lambda angle: {"label": angle}, lambda row: float(row["label"])), *("label", 1, ("mae", "r2"))
    ),
}


def write_table(folder: Path, kind: Kind, pictures: Iterator[Picture]) -> Path:
    """The images and their table."""
    rows = []
    for number, (image, label) in enumerate(pictures):
        image.save(folder / f"{number:05}.png")
        split = SPLITS[number // 10 % len(SPLITS)]
        rows.append({"image": f"{number:05}.png", **kind.columns(label), "split": split})
    with (folder / "labels.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return folder / "labels.csv"


def network(outputs: int) -> nn.Module:
    """Three convolutions and a head; smooth, as otherwise a rounding error may be as large as a step."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GELU(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * (SIZE // 8) ** 2, outputs))


# The plain loop


def read(table: Path, kind: Kind, split: str) -> tuple[Tensor, Tensor]:
    """The images [N, 3, H, W] of a split and their labels: [N] of classes, [N, L] of labels, or [N] of numbers."""
    with table.open() as file:
        every = [(kind.read(row), row) for row in csv.DictReader(file)]
    found = sorted((label, row["image"]) for label, row in every if row["split"] == split)
    pixels = torch.stack([torch.from_numpy(np.array(Image.open(table.parent / name))) for _, name in found])
    images, labels = pixels.permute(0, 3, 1, 2).float() / 255, [label for label, _ in found]
    if kind.images is bars:
        return images, torch.tensor(labels, dtype=torch.float64)
    if kind.images is flowers:
        names = sorted({label for label, _ in every})
        return images, torch.tensor([names.index(label) for label in labels])
    tags = kind.label if isinstance(kind.label, list) else sorted(TAGS)
    return images, torch.tensor([[float(tag in has) for tag in tags] for has in labels])


def plain(table: Path, kind: Kind, model: nn.Module, orders: list[list[Tensor]]) -> tuple[list[float], dict[str, Any]]:
    """The mean training loss of each epoch, and scikit-learn's metrics of the validation images after the last."""
    (images, labels), (unseen, truth) = read(table, kind, "train"), read(table, kind, "val")
    mean, deviation = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True, correction=0)
    middle, spread = (labels.mean(), labels.std(correction=0)) if kind.images is bars else (0.0, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    means = []
    for batches in orders:
        total = 0.0
        for rows in batches:
            outputs, wanted = model((images[rows] - mean) / deviation), labels[rows]
            if kind.images is bars:
                loss = F.mse_loss(outputs[:, 0], ((wanted - middle) / spread).float())
            elif kind.images is flowers:
                loss = F.cross_entropy(outputs, wanted)
            else:
                loss = F.binary_cross_entropy_with_logits(outputs, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        means.append(total / len(images))
    with torch.inference_mode():
        outputs = model.eval()((unseen - mean) / deviation).double()
    if kind.images is bars:
        answers = outputs[:, 0] * spread + middle
        return means, {"mae": mean_absolute_error(truth, answers), "r2": r2_score(truth, answers)}
    if kind.images is flowers:
        answers = outputs.argmax(1)
        return means, {"accuracy": accuracy_score(truth, answers), "f1": f1_score(truth, answers, average="macro")}
    f1 = {name: f1_score(truth, outputs > 0, average=how) for name, how in (("f1", "macro"), ("f1_micro", "micro"))}
    return means, {"map": average_precision_score(truth, outputs.sigmoid()), **f1}


# Both sides


def beside(name: str, folder: Path, source: Path, images: int, epochs: int) -> dict[str, Any]:
    """Both sides' losses and metrics for one task."""
    kind = KINDS[name]
    table = write_table(folder, kind, kind.images(source, images))
    trial = ImageClassifier(Table(table, label=kind.label), lambda config: network(kind.outputs), weights=None)
    trainer = Trainer(trial, {**CONFIG, "image_size": SIZE}, epochs=epochs, seed=1, step_path="eager")
    model = network(kind.outputs)
    model.load_state_dict(trainer.module.state_dict())
    orders = [trainer.batches(epoch) for epoch in range(epochs)]
    results = [trainer.run_epoch() for _ in range(epochs)]
    losses, metrics = plain(table, kind, model, orders)
    validation = results[-1].validation
    assert validation is not None
    ours = {metric: validation[metric] for metric in kind.metrics}
    own = [result.train_loss for result in results]
    apart = max(abs(one - other) / other for one, other in zip(own, losses, strict=True))
    return {
        "images": sum(map(len, orders[0])),
        "losses": {"plain": losses, "tuner": own, "apart": apart},
        "metrics": {metric: {"plain": float(metrics[metric]), "tuner": ours[metric]} for metric in kind.metrics},
        "metrics_apart": max(abs(float(metrics[metric]) - ours[metric]) for metric in kind.metrics),
    }


def main() -> None:
    """Print a row for each task and value, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("TUNER_TEST_DATA", "data")))
    parser.add_argument("--task", choices=[*KINDS], action="append")
    options = parser.parse_args()
    figures = {}
    print(f"{'task':10}{'value':22}{'plain':>12}{'tuner':>12}{'apart':>12}")
    for name in options.task or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            found = beside(name, Path(folder), options.data_dir, options.images, options.epochs)
        figures[name] = found
        pairs = zip(found["losses"]["plain"], found["losses"]["tuner"], strict=True)
        values = [(f"loss of epoch {epoch}", *pair) for epoch, pair in enumerate(pairs, start=1)]
        values += [(f"val_{metric}", each["plain"], each["tuner"]) for metric, each in found["metrics"].items()]
        for value, theirs, ours in values:
            print(f"{name:10}{value:22}{theirs:12.5f}{ours:12.5f}{abs(theirs - ours):12.1e}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
