"""How good a network a search finds: the default strategy against HyperOpt with ASHA's usual settings, at equal epochs.

    python benchmarks/winners.py [--seeds 10] [--epochs 180] [--data-dir DIR] [--only digits|fashion] [--quick]

Real searches on Ray: a small convolutional network on scikit-learn's digits, and on 1,000 Fashion-MNIST images where
DIR has them (1,000 more for validation, its own 10,000 for the test). Each search may train this many epochs in all;
its winner's accuracy on the test split counts, which no search has seen. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torch import nn

import tuner
from tuner import (
    ASHA,
    Budget,
    HyperOpt,
    ImageClassifier,
    MultiFidelityGP,
    Resources,
    Study,
    choice,
    lograndint,
    loguniform,
    uniform,
)
from tuner.machine.hardware import this_machine

MAX_EPOCHS = 9
STRATEGIES: dict[str, dict[str, Any]] = {
    "default": {"search": MultiFidelityGP(), "scheduler": ASHA()},
    "HyperOpt, ASHA(grace 1)": {"search": HyperOpt(), "scheduler": ASHA(grace_epochs=1, rule="stop")},
}
SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "batch_size": choice([16, 32, 64, 128]),
    "optimizer": choice(["adam", "sgd"]),
    "momentum": uniform(0.5, 0.99).when(optimizer="sgd"),
    "weight_decay": loguniform(1e-6, 1e-1),
    "label_smoothing": uniform(0.0, 0.3),
    "width": lograndint(8, 65),
    "dropout": uniform(0.0, 0.7),
}


def network(config: dict[str, Any]) -> nn.Module:
    """Two convolutions and a linear layer."""
    width, side = config["width"], config["image_size"] // 4
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(config["dropout"]),
        nn.Linear(2 * width * side**2, 10),
    )


def fashion(folder: str, images: int) -> Any:
    """`images` images of Fashion-MNIST for training, as many for validation, and its own test images."""
    training = torchvision.datasets.FashionMNIST(folder, train=True)
    test = torchvision.datasets.FashionMNIST(folder, train=False)
    chosen = torch.randperm(len(training), generator=torch.Generator().manual_seed(0))[: 2 * images]
    pixels, labels = training.data[chosen, None], training.targets[chosen]
    return (
        (pixels[:images], labels[:images]),
        (pixels[images:], labels[images:]),
        (test.data[:, None], test.targets),
    )


def search(trial: ImageClassifier, size: int, strategy: dict[str, Any], seed: int, epochs: int) -> tuple[float, float]:
    """One search; its winner's accuracy in validation and test."""
    study = Study(
        "winners",
        trial=trial,
        space={**SPACE, "image_size": size},
        budget=Budget(trials=None, max_epochs=MAX_EPOCHS, total_epochs=epochs),
        resources=Resources(cpus=1),
        warm_start=None,
        seed=seed,
        **strategy,
    )
    with tempfile.TemporaryDirectory() as storage:
        metrics = tuner.run(study, storage=storage).best_metrics
    return metrics["val_accuracy"], metrics["test_accuracy"]


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=20 * MAX_EPOCHS, help="that one search trains in all")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--only", choices=["digits", "fashion"])
    parser.add_argument("--quick", action="store_true", help="two seeds of few epochs on digits: does it run?")
    options = parser.parse_args()
    tasks = {}
    if options.only != "fashion":
        tasks["digits"] = (ImageClassifier("digits", network), 8)
    if options.only == "fashion" or (not options.quick and (options.data_dir / "FashionMNIST").is_dir()):
        data = partial(fashion, str(options.data_dir.resolve()), 1000)
        tasks["1,000 of Fashion-MNIST"] = (ImageClassifier(data, network), 28)
    if options.quick:
        options.seeds, options.epochs = 2, 12
    machine = this_machine()
    print(
        f"{machine.cpus} CPUs, {machine.gpus} GPUs, Python {platform.python_version()}, torch {version('torch')}, "
        f"{options.epochs} epochs a search, at most {MAX_EPOCHS} a trial; accuracy in %"
    )
    print(f"{'data':24}{'strategy':26}{'seeds':>6}{'validation':>16}{'test':>16}   beside default", flush=True)
    results: dict[str, Any] = {}
    for task, (trial, size) in tasks.items():
        found = {
            name: np.array([search(trial, size, strategy, seed, options.epochs) for seed in range(options.seeds)])
            for name, strategy in STRATEGIES.items()
        }
        for name, accuracies in found.items():
            difference = accuracies[:, 1] - found["default"][:, 1]
            beside = "" if name == "default" else mean_and_error(difference, signed=True)
            cells = "".join(f"{mean_and_error(column):>16}" for column in accuracies.T)
            print(f"{task:24}{name:26}{options.seeds:>6}{cells}   {beside}", flush=True)
        results[task] = {name: accuracies[:, 1].round(4).tolist() for name, accuracies in found.items()}
    print(json.dumps(results))


def mean_and_error(shares: np.ndarray, *, signed: bool = False) -> str:
    """Mean ± standard error, in percent."""
    error = shares.std(ddof=1) / len(shares) ** 0.5
    return f"{100 * shares.mean():{'+' if signed else ''}.2f} ±{100 * error:.2f}"


if __name__ == "__main__":
    main()
