"""What several devices bring a trial: images a second by `strategy="ddp"` beside one device, and what starting costs.

    python benchmarks/multi_device.py [--processes 2] [--quick]

A ResNet18 on scikit-learn's digits at 32 pixels, batch 64, fp32: one process of one thread on the CPU (or one GPU where
there are as many as processes), then as many of them as asked for. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import pickle
import platform
import statistics
import time
from importlib.metadata import version
from typing import Any

import torch

from tuner import ImageClassifier
from tuner.machine import this_machine
from tuner.train.parallel.processes import Ranks, Task

CONFIG = {"batch_size": 64, "image_size": 32, "optimizer": "sgd", "lr": 0.01}


def measure(processes: int, epochs: int) -> dict[str, Any]:
    """Seconds until the first epoch is done, and images a second of the epochs after it."""
    cuda = torch.cuda.device_count() >= processes
    devices = [f"cuda:{index}" if cuda else "cpu" for index in range(processes)]
    trial = pickle.dumps(ImageClassifier("digits", "resnet18", weights=None))
    task = Task(trial, (), CONFIG, epochs=epochs + 1, seed=0, split_seed=0, threads=1)
    begun = time.perf_counter()
    with Ranks(task, devices) as ranks:
        ranks.next_epoch()
        first = time.perf_counter() - begun
        told = [ranks.next_epoch().metrics for _ in range(epochs)]
    speed = statistics.median(float(metrics["images_per_second"]) for metrics in told)
    return {"devices": devices, "images_per_second": speed, "first_epoch_seconds": first}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one epoch: does it run?")
    options = parser.parse_args()
    machine, epochs = this_machine(), 1 if options.quick else 5
    print(
        f"{machine.processor}, {machine.cpus} CPUs, {machine.gpus} GPUs, Python {platform.python_version()}, "
        f"torch {version('torch')}"
    )
    print(f"{'devices':>8}{'images/s':>12}{'times':>8}{'s to the first epoch':>22}", flush=True)
    found = [measure(count, epochs) for count in (1, options.processes)]
    for one in found:
        times = one["images_per_second"] / found[0]["images_per_second"]
        print(
            f"{len(one['devices']):>8}{one['images_per_second']:>12.0f}{times:>8.2f}{one['first_epoch_seconds']:>22.1f}"
        )
    ratio = found[1]["images_per_second"] / found[0]["images_per_second"]
    print(json.dumps({"ddp_ratio": ratio, "runs": found}))


if __name__ == "__main__":
    main()
