"""A search over heads on a frozen ResNet18, beside a bare tensor loop and beside trials that are trained one by one.

    python benchmarks/heads.py [--trials 1000] [--epochs 20] [--folds 5] [--images 1200] [--scheduler none|asha]

The images are noise, and so are the weights: only time is measured. Their features are computed before. Three sides,
with as many processes as CPUs, of one thread each:

    tuner      the command `python -m tuner run`, from its start to the report
    bare       as many heads with the same batch sizes and Adam, as tensors [heads, features, classes] in a loop of
               torch's operations: no validation, records, checkpoints or processes to talk to
    single     the first 20 configurations by tuner's own trainer, one after another, in one process; all of them
               would take as many times longer as there are more, shared by the processes

Also the CPU seconds of the driver's own process, and the largest resident set of all processes together (sampled). The
last line is one JSON object; `bare_ratio` and `single_ratio` are tuner's time over bare's, and single's over tuner's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from tuner import load_run
from tuner.train import trainer_of
from tuner.train.models import random_network
from tuner.trial import Folds, ImageClassifier

CLASSES, PIXELS, FEATURES = 10, 32, 512
SIZES = (32, 64, 128, 256)
SINGLE = 20
STUDY = """\
from tuner import ASHA, Budget, Folds, ImageClassifier, NoEarlyStopping, Random, Study, choice, loguniform, uniform

study = Study(
    name="heads",
    trial=ImageClassifier("folder:photos", "resnet18", weights="saved.pt", validation={validation}),
    space={{
        "finetune": "head", "image_size": {pixels}, "lr": loguniform(1e-4, 1e-1), "batch_size": choice({sizes}),
        "weight_decay": loguniform(1e-6, 1e-1), "label_smoothing": uniform(0, 0.2),
    }},
    metric="val_accuracy",
    search=Random(),
    scheduler={scheduler},
    budget=Budget(trials={trials}, max_epochs={epochs}),
)
"""


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Write images, weights and the study file."""
    generator = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / "photos" / f"class{label}").mkdir(parents=True)
    for number in range(options.images):
        pixels = generator.integers(0, 256, (PIXELS, PIXELS, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"class{number % CLASSES}" / f"{number}.png")
    torch.save(random_network("resnet18", channels=3, classes=7, seed=0).module.state_dict(), folder / "saved.pt")
    write_study(folder, options, options.trials)


def write_study(folder: Path, options: argparse.Namespace, trials: int) -> None:
    """The study file with this many trials."""
    scheduler = {"none": "NoEarlyStopping()", "asha": "ASHA()"}[options.scheduler]
    validation = f"Folds({options.folds})" if options.folds > 1 else "None"
    made = STUDY.format(
        pixels=PIXELS,
        sizes=list(SIZES),
        scheduler=scheduler,
        validation=validation,
        trials=trials,
        epochs=options.epochs,
    )
    (folder / "space.py").write_text(made)


def search(folder: Path, storage: str) -> dict[str, float]:
    """Seconds of the command, the CPU seconds of its own process, and the most memory that its processes took."""
    command = [sys.executable, "-m", "tuner", "run", "space.py", "--storage", storage]
    paths = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [*command, "--no-history", "--wandb", "off", "--quiet"], cwd=folder, env={**os.environ, "PYTHONPATH": paths}
    )
    with sampled(process.pid) as most:
        code = process.wait()
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        sys.exit(f"{' '.join(command)} ended with {code}")
    return {
        "seconds": seconds,
        "driver_cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    } | most


@contextmanager
def sampled(pid: int) -> Iterator[dict[str, float]]:
    """The most resident memory, in GB, of a process and its descendants, and of all that Ray started."""
    most, over = {"memory_gb": 0.0}, threading.Event()

    def look() -> None:
        import psutil

        while not over.wait(0.5):
            found = [one for one in psutil.process_iter(["name", "memory_info", "cmdline"]) if _belongs(one, pid)]
            total = sum(one.info["memory_info"].rss for one in found if one.info["memory_info"])
            most["memory_gb"] = max(most["memory_gb"], total / 1e9)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield most
    over.set()
    thread.join()


def _belongs(process: Any, pid: int) -> bool:
    words = " ".join(process.info["cmdline"] or ())
    return process.pid == pid or words.startswith("ray::") or "tuner-ray" in words


def bare(options: argparse.Namespace) -> float:
    """Seconds of the loop, in as many processes as there are CPUs."""
    count = os.cpu_count() or 1
    lanes = options.trials * max(1, options.folds) // count
    begun = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(count) as processes:
        processes.starmap(train_barely, [(lanes, options.images, options.epochs, max(1, options.folds))] * count)
    return time.perf_counter() - begun


def train_barely(lanes: int, images: int, epochs: int, folds: int) -> None:
    """Train this many heads on random features, a group for each batch size, some hundred at once."""
    torch.set_num_threads(1)
    features, labels = torch.randn(images, FEATURES), torch.arange(images) % CLASSES
    rows = images * 9 // 10 * (folds - 1) // folds if folds > 1 else images * 8 // 10
    for size in SIZES:
        left = lanes // len(SIZES)
        while left > 0:
            heads, left = min(left, 100), left - 100
            train_group(features, labels, heads, size, rows, epochs)


def train_group(features: Tensor, labels: Tensor, heads: int, size: int, rows: int, epochs: int) -> None:
    """Adam, by the formulas of Kingma and Ba."""
    with torch.no_grad():
        shape = heads, CLASSES, FEATURES + 1
        weights, first, second = torch.randn(shape) / FEATURES**0.5, torch.zeros(shape), torch.zeros(shape)
        rates = (10 ** torch.empty(heads, 1, 1).uniform_(-4, -1)).expand(heads, 1, 1)
        steps = 0
        for _ in range(epochs):
            orders = torch.stack([torch.randperm(rows) for _ in range(heads)])
            for start in range(0, rows, size):
                chosen = orders[:, start : start + size]
                values, targets = features[chosen], labels[chosen]
                logits = torch.baddbmm(weights[:, None, :, -1], values, weights[:, :, :-1].transpose(1, 2))
                errors = logits.softmax(2)
                errors.scatter_add_(2, targets[..., None], torch.full_like(targets[..., None], -1, dtype=torch.float32))
                errors /= chosen.shape[1]
                gradient = torch.cat([errors.transpose(1, 2) @ values, errors.sum(1)[..., None]], 2)
                steps += 1
                first.lerp_(gradient, 0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                scale = (second / (1 - 0.999**steps)).sqrt_().add_(1e-8)
                weights -= rates / (1 - 0.9**steps) * first / scale


def single(folder: Path, run: Path, options: argparse.Namespace) -> float:
    """Seconds that one process would take for all configurations by tuner's trainer, from the first of them."""
    torch.set_num_threads(1)
    validation = Folds(options.folds) if options.folds > 1 else None
    trial = ImageClassifier(
        f"folder:{folder / 'photos'}", "resnet18", weights=folder / "saved.pt", validation=validation
    )
    trials = list(load_run(run).record.trials.values())[:SINGLE]
    begun = time.perf_counter()
    for one in trials:
        trainer = trainer_of(trial, one.config, epochs=options.epochs, seed=one.seed)
        while not trainer.finished:
            trainer.run_epoch()
        trainer.close()
    return (time.perf_counter() - begun) / len(trials) * options.trials


def main() -> None:
    """Measure all three, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--folds", type=int, default=5, help="1: a part of the images for validation")
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--scheduler", choices=("none", "asha"), default="none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TUNER_CACHE"] = str(folder / "cache")
        prepare(folder, options)
        write_study(folder, options, 2)
        search(folder, "before")  # decodes the images and computes their features
        write_study(folder, options, options.trials)
        found = search(folder, "runs")
        loop = bare(options)
        alone = single(folder, folder / "runs", options) / (os.cpu_count() or 1)
    found |= {"bare_seconds": loop, "single_seconds": alone}
    found |= {"bare_ratio": found["seconds"] / loop, "single_ratio": alone / found["seconds"]}
    told = vars(options) | {key: round(value, 2) for key, value in found.items()}
    for key, value in told.items():
        print(f"{key:16}{value}")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
