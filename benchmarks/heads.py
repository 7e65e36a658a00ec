"""A search over heads on a frozen ResNet18, beside a bare tensor loop and beside trials that are trained one by one.

    python benchmarks/heads.py [--trials 1000] [--epochs 20] [--folds 5] [--images 1200] [--scheduler none|asha]
        [--optimizer adam|lbfgs] [--backbones 1|2]
    python benchmarks/heads.py --part solver [--fits 40] [--photos FOLDER]

The images are noise, and so are the weights: only time is measured. Their features are computed before. With two
backbones the second is a MobileNetV2, and trials of both alternate. lbfgs solves the heads, in one epoch, unless
`--epochs` says more. Three sides, with as many processes as CPUs, of one thread each:

    tuner      the command `python -m tuner run`, from its start to the report
    bare       as many heads with the same batch sizes and Adam, as tensors [heads, features, classes] in a loop of
               torch's operations: no validation, records, checkpoints or processes to talk to
    single     the first 20 configurations by tuner's own trainer, one after another, in one process; all of them
               would take as many times longer as there are more, shared by the processes

Also the CPU seconds of the driver's own process, and the largest resident set of all processes together (sampled).
`bare_ratio` and `single_ratio` are tuner's time over bare's, and single's over tuner's. lbfgs and two
backbones have no bare side.

`--part solver` solves heads with values of `weight_decay` from 1e-5 to 1, beside scikit-learn's `LogisticRegression`
(lbfgs), one thread each: what they minimise, summed over the heads, the largest element of a gradient, CPU seconds.
tuner takes epochs until one changes no head any more, scikit-learn iterations until its gradient is as small, in
float64, and ("centred") on features whose mean is 0, as tuner has them. Features are MobileNetV2's with its ImageNet
weights, of photos in folders by class; without `--photos`, drawn clusters.

The last line is one JSON object, with the load of the machine at the beginning.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

from tuner import load_run
from tuner.train import trainer_of
from tuner.train.data.splits import HeldSplit
from tuner.train.heads.features import SharedFeatures
from tuner.train.heads.head import Head, flat, parts_of
from tuner.train.heads.solver import SMALL, Solver
from tuner.train.models import random_network
from tuner.train.optimisation import Schedule
from tuner.train.tasks.one_label import CrossEntropy
from tuner.trial import Folds, ImageClassifier
from tuner.trial.hyperparameters import HYPERPARAMETERS

CLASSES, PIXELS, FEATURES = 10, 32, 512
BACKBONES = ("resnet18", "mobilenet_v2")
EPOCHS = {"adam": 20, "lbfgs": 1}
DECAYS = (-5.0, 0.0)  # powers of ten, of heads beside scikit-learn
MOST_EPOCHS = 20  # of a head that is solved
SIZES = (32, 64, 128, 256)
SINGLE = 20
STUDY = """\
from tuner import ASHA, Budget, Folds, ImageClassifier, NoEarlyStopping, Random, Study, choice, loguniform, uniform

study = Study(
    name="heads",
    trial=ImageClassifier("folder:photos", weights={weights}, validation={validation}),
    space={{
        "model": choice({models}), "optimizer": "{optimizer}", "finetune": "head", "image_size": {pixels},
        "lr": loguniform(1e-4, 1e-1), "batch_size": choice({sizes}),
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
    for model, file in weights_of(folder, options).items():
        torch.save(random_network(model, channels=3, classes=7, seed=0).module.state_dict(), file)
    write_study(folder, options, options.trials)


def weights_of(folder: Path, options: argparse.Namespace) -> dict[str, str]:
    """The file of each backbone."""
    return {model: str(folder / f"{model}.pt") for model in BACKBONES[: options.backbones]}


def write_study(folder: Path, options: argparse.Namespace, trials: int) -> None:
    """The study file with this many trials."""
    scheduler = {"none": "NoEarlyStopping()", "asha": "ASHA()"}[options.scheduler]
    validation = f"Folds({options.folds})" if options.folds > 1 else "None"
    weights = weights_of(folder, options)
    made = STUDY.format(
        models=list(weights),
        weights=weights,
        optimizer=options.optimizer,
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
    weights = {model: Path(file) for model, file in weights_of(folder, options).items()}
    trial = ImageClassifier(f"folder:{folder / 'photos'}", weights=weights, validation=validation)
    trials = list(load_run(run).record.trials.values())[:SINGLE]
    begun = time.perf_counter()
    for one in trials:
        trainer = trainer_of(trial, one.config, epochs=options.epochs, seed=one.seed)
        while not trainer.finished:
            trainer.run_epoch()
        trainer.close()
    return (time.perf_counter() - begun) / len(trials) * options.trials


def photo_features(folder: Path, most: int) -> tuple[Tensor, Tensor]:
    """MobileNetV2's features [N, 1280] of photos in folders by class, as many of each, and their labels."""
    from benchmarks.few_images import backbone_features

    classes = sorted(one for one in folder.iterdir() if one.is_dir())
    paths = [sorted(one.iterdir())[: most // len(classes)] for one in classes]
    labels = [torch.full((len(each),), label) for label, each in enumerate(paths)]
    return torch.cat([backbone_features(each) for each in paths]), torch.cat(labels)


def drawn_features(images: int) -> tuple[Tensor, Tensor]:
    """Clusters that overlap, above 0 as a backbone's features are, and their labels."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(images) % CLASSES
    centres = torch.randn(CLASSES, FEATURES, generator=draw) / 4
    return (centres[labels] + torch.randn(images, FEATURES, generator=draw)).relu(), labels


def solvers(options: argparse.Namespace) -> dict[str, float]:
    """Heads of other values of `weight_decay` on the same features, by both sides."""
    torch.set_num_threads(1)
    if options.photos:
        features, labels = photo_features(options.photos, options.images)
    else:
        features, labels = drawn_features(options.images)
    decays = [10.0**power for power in np.linspace(*DECAYS, options.fits)]
    found: dict[str, float] = {"width": features.shape[1], "used_images": len(labels)}
    sides = {
        "tuner": partial(solved, features),
        "sklearn": partial(fitted, features.double()),
        "centred": partial(fitted, features.double() - features.double().mean(0)),
    }
    for name, side in sides.items():
        begun = time.process_time()
        weights = side(labels, decays)
        found[f"{name}_cpu"] = time.process_time() - begun
        shift = features.double().mean(0) * (name != "centred")
        each = [in_double(features, labels, one, decay, shift) for one, decay in zip(weights, decays, strict=True)]
        found |= {f"{name}_objectives": sum(one for one, _ in each), f"{name}_gradient": max(one for _, one in each)}
    found["cpu_ratio"] = found["sklearn_cpu"] / found["tuner_cpu"]
    return found


@torch.no_grad()
def solved(features: Tensor, labels: Tensor, decays: Sequence[float]) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases by tuner's solver, all at once."""
    layer = nn.Linear(features.shape[1], int(labels.max()) + 1)
    defaults = {name: row.default for name, row in HYPERPARAMETERS.items()}
    heads = [
        Head(
            chosen=defaults | {"optimizer": "lbfgs", "weight_decay": decay},
            seed=0,
            schedule=Schedule.of(defaults, 1),
            objective=CrossEntropy(),
            live=flat(*layer.parameters()),
            average=None,
            groups=[{"lr": 1.0, "weight_decay": decay}],
        )
        for decay in decays
    ]
    shared = SharedFeatures(HeldSplit(features, labels), torch.device("cpu"))
    for _ in range(MOST_EPOCHS):
        before = torch.stack([head.live for head in heads])
        Solver(heads, shared, layer).run()
        if torch.allclose(before, torch.stack([head.live for head in heads]), atol=1e-6):
            break
    return [parts_of(head.live, layer) for head in heads]


def fitted(features: Tensor, labels: Tensor, decays: Sequence[float]) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases by scikit-learn, one head after another."""
    values, targets, found = features.numpy(), labels.numpy(), []
    with threadpool_limits(1):
        for decay in decays:
            model = LogisticRegression(C=1 / (decay * len(targets)), tol=SMALL, max_iter=100_000).fit(values, targets)
            found.append((torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)))
    return found


def in_double(
    features: Tensor, labels: Tensor, weights: tuple[Tensor, Tensor], decay: float, shift: Tensor
) -> tuple[float, float]:
    """The objective at these weights and biases, and the largest element of its gradient, in float64.

    The gradient is that of features with the mean 0. The biases are for features that are larger by `shift`.
    """
    kernel, bias = (one.double() for one in weights)
    kernel, bias = kernel.requires_grad_(), (bias + kernel.detach() @ shift).requires_grad_()
    logits = (features.double() - features.double().mean(0)) @ kernel.T + bias
    objective = nn.functional.cross_entropy(logits, labels) + decay / 2 * (kernel**2).sum()
    gradients = torch.autograd.grad(objective, [kernel, bias])
    return objective.item(), max(one.abs().max().item() for one in gradients)


def searches(options: argparse.Namespace) -> dict[str, float]:
    """The search, and what it is compared with."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TUNER_CACHE"] = str(folder / "cache")
        prepare(folder, options)
        write_study(folder, options, 2 * 4 ** (options.backbones - 1))
        search(folder, "before")  # decodes the images and computes the features of each backbone
        write_study(folder, options, options.trials)
        found = search(folder, "runs")
        alone = single(folder, folder / "runs", options) / (os.cpu_count() or 1)
    found |= {"single_seconds": alone, "single_ratio": alone / found["seconds"]}
    if options.optimizer == "adam" and options.backbones == 1:
        loop = bare(options)
        found |= {"bare_seconds": loop, "bare_ratio": found["seconds"] / loop}
    return found


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("search", "solver"), default="search")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--epochs", type=int, help="20 for adam, 1 for lbfgs, unless given")
    parser.add_argument("--folds", type=int, default=5, help="1: a part of the images for validation")
    parser.add_argument("--images", type=int, default=1200, help="at most, where they are photos")
    parser.add_argument("--scheduler", choices=("none", "asha"), default="none")
    parser.add_argument("--optimizer", choices=tuple(EPOCHS), default="adam")
    parser.add_argument("--backbones", type=int, choices=(1, 2), default=1)
    parser.add_argument("--fits", type=int, default=40, help="heads beside scikit-learn")
    parser.add_argument("--photos", type=Path, help="a folder per class")
    options = parser.parse_args()
    options.epochs = options.epochs or EPOCHS[options.optimizer]
    load = os.getloadavg()[0]
    found = solvers(options) if options.part == "solver" else searches(options)
    told = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    told |= {"load": round(load, 1)} | {key: float(f"{value:.6g}") for key, value in found.items()}
    for key, value in told.items():
        print(f"{key:20}{value}")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
