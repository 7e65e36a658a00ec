"""What a trial's training costs: tuner's trainer against the plain PyTorch loop, in the same run.

    python benchmarks/training.py [--quick] [--operators | --augmentation | --families] [--data-dir DIR]
        [--device cpu|cuda]

The plain loop is the usual one: a torchvision data set with `ToTensor` and `Normalize`, a `DataLoader` at its best
number of workers, fp32, no compilation. Both sides start from the same weights, which the benchmark draws, and get
the same number of threads. Images are Fashion-MNIST's where DIR has them, else random ones of its size (then accuracies
mean nothing and are left out). The last line is one JSON object: loader_ratio, head_study_ratio, head_epoch_ratio,
full_ratio, accuracy_gap_points, images_per_second, flop_share_of_limit, operators_ratio, augmentation_ratio,
families_ratio.
`--operators` counts the operators of a step and nothing else: on a GPU each of them is a launch at least, views are
none. `--augmentation` measures TrivialAugment, RandAugment and random resized crops on the CPU and nothing else:
microseconds of one thread's CPU time for an image, on whole batches and by torchvision v2's transforms image by image,
in turns. `--families` measures an epoch of the head through the backbone and on its kept features, for a model of timm
of each family and random images, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Subset
from torch.utils.flop_counter import FlopCounterMode
from torchvision.transforms import v2

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.plain_loop import (
    BATCH,
    plain_accuracy,
    plain_data,
    plain_epoch,
    plain_loader,
    plain_model,
    write_subset,
)
from tuner.machine.hardware import this_machine
from tuner.train import Trainer, load_splits
from tuner.train.data.augmentation import Augmentation
from tuner.train.data.policies import Policy
from tuner.train.models import random_network
from tuner.trial import ImageClassifier


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done."""

    study_images: int = 6400
    study_trials: int = 8
    study_epochs: int = 5
    full_images: int = 1600
    pairs: int = 10
    pair_images: int = 1600
    pair_epochs: int = 4
    pair_tests: int = 2000
    loader_seconds: float = 3.0
    workers: tuple[int, ...] = (0, 1, 2, 4)


TURNS = 6  # of a measurement of augmentation
QUICK = Sizes(256, 2, 2, 128, 2, 128, 1, 100, 0.3, (0,))


class Rows:
    """The table as it grows, and the figures for its last line."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        print(f"{'':46}{'plain':>14}{'tuner':>14}{'ratio':>9}")

    def add(self, name: str, plain: float, ours: float, ratio: float | None = None, unit: str = "") -> None:
        """One line."""
        shown = "" if ratio is None else f"{ratio:.1f}"
        print(f"{name:46}{plain:>14,.4g}{ours:>14,.4g}{shown:>9} {unit}", flush=True)


# Data, as the plain loop has it


# The plain loop


# The measurements


def measure_loader(rows: Rows, folder: Path, sizes: Sizes) -> None:
    """Images a second, loading alone; the ratio is the worse of with and without augmentation."""
    splits = load_splits(ImageClassifier("fashion-mnist", weights=None, data_dir=folder), seed=0)
    ratios = []
    for augmented in (False, True):
        plain = max(
            images_per_second(plain_loader(plain_data(folder, augmented=augmented), workers), sizes.loader_seconds)
            for workers in sizes.workers
        )
        augmentation = Augmentation(crop_padding=4, flip=0.5) if augmented else Augmentation()
        ours = images_per_second(OurLoader(splits.train, augmentation, splits.normalisation), sizes.loader_seconds)
        ratios.append(ours / plain)
        name = "images/s loaded, crops and flips" if augmented else "images/s loaded"
        rows.add(name, plain, ours, ratios[-1])
    rows.figures["loader_ratio"] = min(ratios)


FAMILIES = {  # with the edge of the images
    "timm:resnet50": 224,
    "timm:convnext_tiny": 224,
    "timm:efficientnet_b0": 224,
    "timm:vit_small_patch16_224": 224,
    "timm:vit_small_patch14_dinov2": 224,
    "timm:swin_tiny_patch4_window7_224": 224,
    "timm:mobilenetv3_small_100": 224,
    "timm:vit_base_patch16_siglip_224": 224,
}
FAMILY_IMAGES = 32


def measure_families(rows: Rows, sizes: Sizes, device: str) -> None:
    """Seconds of an epoch of the head: through the backbone, as flipped images need it, and on kept features."""
    models = dict(list(FAMILIES.items())[:1]) if sizes is QUICK else FAMILIES
    for model, pixels in models.items():
        plain, ours = (epoch_of_the_head(model, pixels, device, flip) for flip in (0.5, 0.0))
        rows.add(f"s an epoch of the head, {model}", plain, ours, plain / ours)
        rows.figures["families_ratio"] = min(plain / ours, rows.figures.get("families_ratio", math.inf))


def epoch_of_the_head(model: str, pixels: int, device: str, flip: float) -> float:
    """Seconds of the second epoch, on random images."""

    def images() -> Any:
        drawn = torch.randint(0, 256, (FAMILY_IMAGES, 3, pixels, pixels), dtype=torch.uint8)
        return tuple((drawn[:count], torch.arange(count) % 2) for count in (FAMILY_IMAGES, 2, 2))

    config = {"finetune": "head", "lr": 1e-3, "batch_size": 16, "flip": flip, "image_size": pixels}
    trainer = Trainer(ImageClassifier(images, model, None), config, epochs=2, device=device)
    trainer.run_epoch()
    start = time.perf_counter()
    trainer.run_epoch()
    return time.perf_counter() - start


def measure_augmentation(rows: Rows) -> None:
    """Microseconds of CPU time for an image, each side's least of some turns; images are noise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ratios = []
    for pixels, count in ((32, 512), (224, 32)):
        images = torch.randint(0, 256, (count, 3, pixels, pixels), dtype=torch.uint8)
        pairs = {
            "TrivialAugment": (v2.TrivialAugmentWide(), Augmentation(policy=Policy("trivial"))),
            "RandAugment": (v2.RandAugment(), Augmentation(policy=Policy("rand", 2, 9))),
            "random resized crops": (v2.RandomResizedCrop(pixels), Augmentation(random_resized_crop=0.08)),
        }
        for name, (theirs, ours) in pairs.items():
            plain, whole = [], []
            for _ in range(TURNS):
                plain.append(cpu_seconds(partial(one_by_one, theirs, images)))
                whole.append(cpu_seconds(partial(ours, images, torch.Tensor.float)))
            found = [1e6 * min(seconds) / count for seconds in (plain, whole)]
            ratios.append(found[0] / found[1])
            rows.add(f"us an image, {name}, {pixels} pixels", *found, ratios[-1])
    rows.figures["augmentation_ratio"] = min(ratios)
    torch.set_num_threads(threads)


def one_by_one(transform: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """A batch as a loader makes it of images that were each transformed."""
    return torch.stack([transform(image) for image in images]).float()


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU time of work in this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


class OurLoader:
    """Batches as the trainer gets them."""

    def __init__(self, split: Any, augmentation: Augmentation, normalisation: Any) -> None:
        self._split, self._augmentation, self._normalisation = split, augmentation, normalisation

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(self._split))
        for images, labels in self._split.batches(torch.tensor_split(order, math.ceil(len(order) / BATCH)), "cpu"):
            yield self._augmentation(images, self._normalisation), labels


def images_per_second(loader: Iterable[Any], seconds: float) -> float:
    """Over whole passes, at least so long; the first batch, which starts the workers, isn't counted."""
    for images, _ in loader:
        del images
        break
    begun, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < seconds:
        for images, _ in loader:
            count += len(images)
            if time.perf_counter() - begun > 4 * seconds:
                break
    return count / spent if (spent := time.perf_counter() - begun) else 0.0


def best_workers(folder: Path, sizes: Sizes) -> int:
    """The number of loader workers that the plain loop does best with, loading alone."""
    data = plain_data(folder)
    return max(
        sizes.workers, key=lambda workers: images_per_second(plain_loader(data, workers), sizes.loader_seconds / 2)
    )


def measure_head(rows: Rows, folder: Path, weights: Path, sizes: Sizes, device: str) -> None:
    """A study of frozen backbones: trials that differ in their learning rate."""
    rates = [10 ** (-4 + 3 * trial / max(1, sizes.study_trials - 1)) for trial in range(sizes.study_trials)]
    trial = ImageClassifier("fashion-mnist", weights=weights, data_dir=folder)
    splits = load_splits(trial, seed=0)
    data, workers = plain_data(folder), best_workers(folder, sizes)
    train, validation = (split.rows.tolist() for split in (splits.train, splits.validation))
    begun, plain_epochs = time.perf_counter(), []
    for rate in rates:
        model = plain_model(weights).to(device).requires_grad_(False)
        model.fc.requires_grad_(True)
        optimizer = torch.optim.Adam(model.fc.parameters(), lr=rate)
        loader = plain_loader(Subset(data, train), workers)
        check = plain_loader(Subset(data, validation), workers)
        for _ in range(sizes.study_epochs):
            started = time.perf_counter()
            plain_epoch(model, loader, optimizer, device, frozen=True)
            plain_accuracy(model, check, device)
            plain_epochs.append(time.perf_counter() - started)
    plain = time.perf_counter() - begun
    begun, ours_epochs = time.perf_counter(), []
    for rate in rates:
        config = {"lr": rate, "batch_size": BATCH, "finetune": "head", "stem": "sum"}
        running = Trainer(trial, config, epochs=sizes.study_epochs, seed=0, split_seed=0, device=device)
        while not running.finished:
            ours_epochs.append(running.run_epoch().seconds)
    ours = time.perf_counter() - begun
    name = f"s, frozen: {sizes.study_trials} trials x {sizes.study_epochs} epochs x {len(train):,} images"
    rows.add(name, plain, ours, plain / ours)
    middle = statistics.median(plain_epochs), statistics.median(ours_epochs)
    rows.add("s, one of their epochs (median)", *middle, middle[0] / middle[1])
    rows.figures |= {"head_study_ratio": plain / ours, "head_epoch_ratio": middle[0] / middle[1]}


def measure_full(rows: Rows, folder: Path, weights: Path, sizes: Sizes, device: str) -> None:
    """Fine-tuning of all layers: images a second, in turns, and how far that is from what the device can multiply."""
    trial = ImageClassifier("fashion-mnist", weights=weights, data_dir=folder)
    splits = load_splits(trial, seed=0)
    workers = 2 if device == "cuda" else best_workers(folder, sizes)
    images = splits.train.rows.tolist()[: sizes.full_images if device == "cpu" else None]
    model = plain_model(weights).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = plain_loader(Subset(plain_data(folder), images), workers)
    precision = "bf16" if device == "cuda" else "fp32"
    config = {"lr": 1e-3, "batch_size": BATCH, "stem": "sum", "precision": precision}
    running = Trainer(trial, config, epochs=1000, seed=0, split_seed=0, device=device)
    steps = math.ceil(len(images) / BATCH)
    plain, ours = [], []
    for turn in range(4):
        plain.append(seconds_of(lambda: plain_epoch(model, loader, optimizer, device, frozen=False), device))
        running.step = 0
        ours.append(seconds_of(lambda: running.train(steps), device))
        if turn == 0:  # both warm up
            plain.clear(), ours.clear()
    rates = len(images) / min(plain), steps * BATCH / min(ours)
    rows.add(f"images/s, all layers, {precision}", *rates, rates[1] / rates[0])
    flops, limit = flops_per_image(running), matrix_rate(device, torch.bfloat16 if device == "cuda" else torch.float32)
    share = rates[1] * flops / limit
    print(
        f"  a training step is {flops / 1e6:.0f} MFLOP an image: {rates[1] * flops / 1e12:.3f} TFLOP/s, {share:.0%} of "
        f"the {limit / 1e12:.3f} that a large matrix product reaches here"
    )
    rows.figures |= {
        "full_ratio": rates[1] / rates[0],
        "images_per_second": rates[1],
        "flop_share_of_limit": share,
    }


class Operators(TorchDispatchMode):
    """Counts the operators that compute or copy something; views of tensors do neither."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for each operator, those of the backward pass included."""
        aliases = [returned.alias_info for returned in operator._schema.returns]
        self.count += not any(alias is not None and not alias.is_write for alias in aliases)
        return operator(*args, **(kwargs or {}))


def operators_of(work: Callable[[], Any]) -> int:
    """How many some work takes."""
    with Operators() as counter:
        work()
    return counter.count


def measure_operators(rows: Rows, folder: Path, weights: Path, device: str) -> None:
    """Of a step on all layers of ResNet18: both with a fused Adam, images on the device, the loss looked at or kept."""
    running = Trainer(
        ImageClassifier("fashion-mnist", weights=weights, data_dir=folder),
        {"batch_size": BATCH, "stem": "sum"},
        epochs=1,
        device=device,
    )
    model = plain_model(weights).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    split = running.splits.train
    images, labels = next(split.batches([torch.arange(BATCH)], running.parts.device))
    batch = [(running.splits.normalisation(images), labels)]
    plain_epoch(model, batch, optimizer, device, frozen=False)  # the first step makes the optimizer's state
    plain = operators_of(lambda: plain_epoch(model, batch, optimizer, device, frozen=False))
    running.train(1)
    running.train_step(images, labels, 0, BATCH)
    ours = operators_of(lambda: running.train_step(images, labels, 1, BATCH))
    rows.add("operators a step, all layers, views not counted", plain, ours)
    rows.figures["operators_ratio"] = ours / plain
    print(f"  {ours / plain - 1:+.1%}")


def seconds_of(work: Any, device: str) -> float:
    """Wall-clock of work on the device."""
    begun = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def flops_per_image(running: Trainer) -> float:
    """Of one training step, counted by torch."""
    images, labels = next(running.splits.train.batches([torch.arange(BATCH)], running.parts.device))
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(running.module(running.splits.normalisation(images)), labels).backward()
    running.parts.optimizer.zero_grad(set_to_none=True)
    return counter.get_total_flops() / BATCH


def matrix_rate(device: str, kind: torch.dtype) -> float:
    """FLOP/s of a product of two large matrices."""
    size = 8192 if device == "cuda" else 2048
    left, right = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    for _ in range(3):
        left @ right
    return 2 * size**3 / min(seconds_of(lambda: left @ right, device) for _ in range(10))


def measure_gap(rows: Rows, folder: Path, weights: Path, sizes: Sizes, device: str) -> None:
    """Accuracy on images that neither side trained on, of pairs that share weights, split and order of the images."""
    trial = ImageClassifier("fashion-mnist", weights=weights, data_dir=folder)
    worst = 0.0
    for finetune in ("all", "head"):
        pairs = [pair(trial, folder, weights, finetune, seed, sizes, device) for seed in range(sizes.pairs)]
        points = [100 * (ours - plain) for plain, ours in pairs]
        mean, half = statistics.mean(points), 1.833 * statistics.stdev(points) / math.sqrt(len(points))
        rows.add(
            f"accuracy, {finetune}, {sizes.pairs} pairs",
            statistics.mean(plain for plain, _ in pairs),
            statistics.mean(ours for _, ours in pairs),
            unit=f"difference {mean:+.2f} points, 90 % interval {mean - half:+.2f} to {mean + half:+.2f}",
        )
        worst = max(worst, abs(mean - half), abs(mean + half))
    rows.figures["accuracy_gap_points"] = worst


def pair(
    trial: ImageClassifier, folder: Path, weights: Path, finetune: str, seed: int, sizes: Sizes, device: str
) -> tuple[float, float]:
    """Accuracies of the plain loop and of the trainer on the images of the test split, after a cosine schedule."""
    precision = "bf16" if device == "cuda" else "fp32"
    config = {"lr": 1e-3, "batch_size": BATCH, "finetune": finetune, "stem": "sum", "precision": precision}
    epochs = sizes.pair_epochs
    running = Trainer(trial, config | {"schedule": "cosine"}, epochs=epochs, seed=seed, split_seed=seed, device=device)
    model = plain_model(weights)
    model.load_state_dict(running.module.state_dict())  # the same fresh head
    model.to(device)
    rows = running.splits.train.rows.tolist()
    if finetune == "head":
        model.requires_grad_(False).fc.requires_grad_(True)
    optimizer = torch.optim.Adam((value for value in model.parameters() if value.requires_grad), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(running.batches(running.epoch)))
    for epoch in range(epochs):
        running.epoch = epoch
        order = [[rows[index] for index in batch.tolist()] for batch in running.batches(running.epoch)]
        loader = plain_loader(plain_data(folder), 0, order)
        plain_epoch(model, loader, optimizer, device, frozen=finetune == "head", schedule=schedule)
    running.epoch = 0
    while not running.finished:
        running.run_epoch()
    plain = plain_accuracy(model, plain_loader(plain_data(folder, train=False), 0), device)
    return plain, running.evaluate(running.splits.test)["accuracy"]


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test of under a minute; its figures claim nothing"
    )
    parser.add_argument("--operators", action="store_true", help="count the operators of a step, and measure nothing")
    parser.add_argument("--augmentation", action="store_true", help="measure augmentation on the CPU alone")
    parser.add_argument("--families", action="store_true", help="measure the head on kept features alone")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    source = options.data_dir if (options.data_dir / "FashionMNIST" / "raw").is_dir() else None
    device = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(
        f"{this_machine().processor}, {device}, Python {platform.python_version()}, torch {version('torch')}, "
        f"{'Fashion-MNIST' if source else 'random images'}"
    )
    rows = Rows()
    if options.families:
        measure_families(rows, sizes, options.device)
        print(json.dumps(rows.figures))
        return
    measure_augmentation(rows)
    if options.augmentation:
        print(json.dumps(rows.figures))
        return
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["TUNER_CACHE"] = f"{temporary}/cache"
        weights = Path(temporary) / "weights.pt"
        torch.save(random_network("resnet18", channels=3, classes=1000, seed=0).module.state_dict(), weights)
        folder = Path(temporary) / "study"
        write_subset(source, folder, round(sizes.study_images / 0.9), 100)
        measure_operators(rows, folder, weights, options.device)
        if options.operators:
            print(json.dumps(rows.figures))
            return
        measure_loader(rows, folder, sizes)
        measure_head(rows, folder, weights, sizes, options.device)
        whole = folder if options.device == "cpu" or source is None else source
        measure_full(rows, whole, weights, sizes, options.device)
        if source is not None:
            small = Path(temporary) / "pairs"
            write_subset(source, small, round(sizes.pair_images / 0.9), sizes.pair_tests)
            measure_gap(rows, small, weights, sizes, options.device)
    print(json.dumps({name: round(value, 4) for name, value in rows.figures.items()}))


if __name__ == "__main__":
    main()
