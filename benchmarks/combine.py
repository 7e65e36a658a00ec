"""What `combine="auto"` ships beside the single winner: test accuracy and loss, on small tasks and on photos.

    python benchmarks/combine.py [--rows small|photos|claim|whole|null] [--cuts 4] [--configurations 24] [--student]

Each row is a whole search as users run it, without earlier knowledge, and what it has put into best/. "small": the
networks of `benchmarks.small_tasks`, whole ones and heads, 9 epochs. "photos": heads on MobileNetV2 and
EfficientNet-Lite0, solved, 5 folds, on cuts of two photo sets; "claim" is the same on a third set, on which nothing was
designed. "whole": all layers of MobileNetV2 on cuts of that set at 64 pixels, ten trials after what tuner
knows beforehand; "plain" and "random" are the accuracy of what ships beside one training with sensible settings, and
beside the winner of ten random configurations that were all trained to their end. "step_s" is what the choice of the
average and its test took, done once more; "over_refit" is the accuracy beside a refit of the winner. With --student
also what else can be made of the same run in any case, as accuracy beside the winner's: "ensemble", "soup",
"distilled". Needs
`../shared/data` or TUNER_TEST_DATA, and the packages that `tests/train/test_beside_plain_loop.py` names. "null"
simulates conclusions with candidates that gain next to nothing together, and counts how often a gain is claimed, and
how often it is none.

Prints a JSON line for each task, and at last the means with half the width of their 90 % intervals over tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import small_tasks
from benchmarks.small_tasks import AUGMENTATION, FINE_TUNING, OPTIMISATION
from benchmarks.transfer import LITE0, installed_weights, lite0
from tuner import (
    Budget,
    Folds,
    History,
    ImageClassifier,
    NoEarlyStopping,
    Random,
    Study,
    choice,
    loguniform,
    run,
)
from tuner.history.checkpoints import checkpoint_path
from tuner.history.combination import DISTILLED, ENSEMBLE, POOL, SOUP, STUDENT_LENGTH, Candidate, pool
from tuner.inspection import score
from tuner.inspection.combining import found_among, write_combined
from tuner.space import Space
from tuner.train import trainer_of
from tuner.train.tasks import Targets, targets_of
from tuner.trial.tasks import ONE_LABEL

PER_CLASS = 60
MOST_TEST = 400
HEADS = Space(
    {
        "finetune": "head",
        "optimizer": "lbfgs",
        "model": choice(["mobilenet_v2", LITE0]),
        "weight_decay": loguniform(1e-3, 1.0),
        "label_smoothing": choice([0.0, 0.1]),
        "image_size": 224,
    }
)
WHOLE = Space({**OPTIMISATION, **AUGMENTATION, **FINE_TUNING, "image_size": 64})
PLAIN = {"optimizer": "adam", "lr": 1e-3, "batch_size": 32, "schedule": "cosine", "image_size": 64}


def conclude(
    trial: ImageClassifier,
    space: Space,
    *,
    epochs: int,
    count: int,
    folder: Path,
    seed: int = 0,
    student: bool = False,
    knowing: History | None = None,
) -> dict[str, Any]:
    """Search with so many trials, and tell what was shipped beside the winner."""
    study = Study(
        "combined",
        trial=trial,
        space=space,
        budget=Budget(trials=count, max_epochs=epochs),
        combine="auto",
        warm_start=knowing,
        seed=seed,
    )
    began = time.perf_counter()
    found = run(study, storage=folder, wandb="off", progress=False)
    searched = time.perf_counter() - began
    members = [
        Candidate(one.trial, epoch, one.config, Path(found.path) / checkpoint_path(one.trial, epoch) / "files")
        for one, epoch in pool(found.record)
    ]
    details = {"trial": members[0].trial, "epoch": epochs, "metrics": {}, "combined": {"asked": "auto"}}
    began = time.perf_counter()
    write_combined(trial, members, folder / "again", record=details, split_seed=seed)
    concluded = time.perf_counter() - began
    told = json.loads((Path(found.path) / "best" / "metrics.json").read_text())
    combined, metrics = told["combined"], told["metrics"]
    own = combined["own"] if combined["in"] else metrics
    beside = {}
    for how in (ENSEMBLE, SOUP, DISTILLED) if student else ():
        asked = {"asked": how, "epochs": STUDENT_LENGTH * epochs}
        write_combined(trial, members, folder / how, record=details | {"combined": asked}, split_seed=seed)
        reached = json.loads((folder / how / "metrics.json").read_text())["metrics"]
        beside |= {
            how: reached["test_accuracy"] - own["test_accuracy"],
            f"{how}_loss": own["test_loss"] - reached["test_loss"],
        }
    refitted = _trained(trial.refitted(), members[0].config, epochs, folder / "refitted", seed)
    return {
        "shipped": combined["in"],
        "candidates": combined["candidates"],
        "members": len(combined.get("members", [])),
        "validation_gain": combined["gain"],
        "validation_error": combined["error"],
        "own_accuracy": own["test_accuracy"],
        "accuracy": metrics["test_accuracy"] - own["test_accuracy"],
        "over_refit": metrics["test_accuracy"] - refitted,
        "error": combined["own"]["error"] if combined["in"] else 0.0,
        "own_loss": own["test_loss"],
        "loss": own["test_loss"] - metrics["test_loss"],
        "milliseconds": combined["cost"]["milliseconds"] / combined["cost"]["own_milliseconds"]
        if combined["in"]
        else 1.0,
        **beside,
        "search_s": searched,
        "step_s": concluded,
    }


def _trained(trial: ImageClassifier, config: dict[str, Any], epochs: int, folder: Path, seed: int) -> float:
    """The test accuracy of one training."""
    running = trainer_of(trial, config, epochs=epochs, seed=1000 + seed, split_seed=seed)
    for _ in range(epochs):
        running.run_epoch()
    running.save(folder)
    return float(score(trial, config, folder, split_seed=seed).test["accuracy"])


def small(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    small_tasks.DATA = options.data
    os.environ["TUNER_TEST_DATA"] = str(options.data)  # for the workers
    for task in small_tasks.TASKS[:12]:
        with tempfile.TemporaryDirectory() as folder:
            trial = task.trial(small_tasks.CACHE)
            how = {"epochs": small_tasks.EPOCHS, "count": options.configurations, "folder": Path(folder)}
            yield {"task": task.name, **conclude(trial, task.space, **how, student=options.student)}


def cut(source: Path, target: Path, seed: int, per_class: int = PER_CLASS) -> None:
    """A training folder with some photos of each class, and a test folder with the others."""
    generator = random.Random(seed)
    rest = []
    for folder in sorted(path for path in source.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.iterdir() if path.is_file())
        generator.shuffle(files)
        rest += files[per_class:]
        _link(files[:per_class], target / "train")
    _link(generator.sample(rest, min(MOST_TEST, len(rest))), target / "test")


def _link(files: list[Path], target: Path) -> None:
    for file in files:
        (target / file.parent.name).mkdir(parents=True, exist_ok=True)
        (target / file.parent.name / file.name).symlink_to(file.resolve())


def photos(options: argparse.Namespace, *sets: str) -> Iterator[dict[str, Any]]:
    mobile = installed_weights()
    assert mobile is not None
    with tempfile.TemporaryDirectory() as root:
        os.environ["TUNER_CACHE"] = f"{root}/cache"
        weights = {"mobilenet_v2": str(mobile), LITE0: str(lite0(Path(root) / "lite0.pth"))}
        for name in sets:
            for seed in range(options.cuts):
                folder = Path(root) / f"{name}-{seed}"
                cut(options.data / "photos" / name, folder / "photos", seed)
                trial = ImageClassifier(
                    f"folder:{folder / 'photos'}", "mobilenet_v2", weights=weights, validation=Folds(5)
                ).within(HEADS)
                how = {"epochs": 1, "count": options.configurations, "folder": folder, "seed": seed}
                yield {"task": f"{name}-{seed}", **conclude(trial, HEADS, **how)}


def whole(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Whole networks on photos of which nothing is known, beside one training and beside random search in full."""
    weights = installed_weights()
    assert weights is not None
    epochs = small_tasks.EPOCHS
    for seed in range(options.cuts):
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root)
            cut(options.data / "photos" / "signs", folder / "photos", seed, per_class=40)
            trial = ImageClassifier(
                f"folder:{folder / 'photos'}", "mobilenet_v2", weights=str(weights), validation=0.25
            )
            how: dict[str, Any] = {"epochs": epochs, "count": 10, "seed": seed, "student": options.student}
            found = conclude(trial, WHOLE, folder=folder / "runs", knowing=History(), **how)
            drawn = Study(
                "random",
                trial=trial,
                space=WHOLE,
                search=Random(sobol=False),
                scheduler=NoEarlyStopping(),
                budget=Budget(trials=10, max_epochs=epochs),
                warm_start=None,
                seed=seed,
            )
            best = Path(run(drawn, storage=folder / "random", wandb="off", progress=False).path) / "best"
            others = {
                "random": json.loads((best / "metrics.json").read_text())["metrics"]["test_accuracy"],
                "plain": _trained(trial, PLAIN, epochs, folder / "plain", seed),
            }
            ships = found["own_accuracy"] + found["accuracy"]
            yield {"task": f"signs-{seed}", **found, **{name: ships - one for name, one in others.items()}}


def null(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Candidates whose errors are nearly the same: how often a gain is claimed, and how large it is on other images."""
    targets = targets_of(ONE_LABEL)(tuple("abcd"))
    for together in (1.0, 0.998, 0.99, 0.95):
        claims, false = 0, 0
        for seed in range(200):
            outputs, labels = _drawn(150, together, seed)
            mixed = _mixed(outputs, labels, targets)
            found = found_among(_with_mean(outputs, mixed), labels, targets, seed=seed, soup=len(mixed) > 1)
            fresh, others = _drawn(5000, together, 10_000 + seed)
            fresh = _with_mean(fresh, mixed)
            averaged = targets.together(fresh * found.scales.float()[:, None, None], found.shares.float())
            gain = targets.metrics(fresh[0], others).loss - targets.metrics(averaged, others).loss
            claims += found.pays
            false += found.pays and gain <= 0
        yield {"task": f"null-{together}", "claimed": claims / 200, "wrongly": false / 200}


def _mixed(outputs: torch.Tensor, labels: torch.Tensor, targets: Targets) -> list[int]:
    """Whose mean a soup of heads on the same features is: the mean of their layers gives the mean of their outputs."""

    def loss(several: list[int]) -> float:
        mean = outputs[several].mean(0, keepdim=True)
        scaled = mean * targets.scales(mean, labels).to(mean)
        return float(targets.losses(targets.merits(scaled, labels)).mean())

    taken = [0]
    for number in sorted(range(1, len(outputs)), key=lambda one: loss([one])):
        if loss([*taken, number]) < loss(taken):
            taken.append(number)
    return taken


def _with_mean(outputs: torch.Tensor, mixed: list[int]) -> torch.Tensor:
    return torch.cat([outputs, outputs[mixed].mean(0, keepdim=True)]) if len(mixed) > 1 else outputs


def _drawn(images: int, together: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (images,), generator=generator)
    shared = torch.randn(1, images, 4, generator=generator) * together**0.5
    own = torch.randn(POOL, images, 4, generator=generator) * (1 - together) ** 0.5
    return 2.0 * torch.nn.functional.one_hot(labels, 4) + 1.5 * (shared + own), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", choices=("small", "photos", "claim", "whole", "null"), default="small")
    parser.add_argument("--cuts", type=int, default=4)
    parser.add_argument("--configurations", type=int, default=24)
    parser.add_argument("--student", action="store_true", help="small, whole: all that can be made of the run, too")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TUNER_TEST_DATA", "../shared/data")))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {
        "small": lambda: small(options),
        "photos": lambda: photos(options, "flowers", "trash"),
        "claim": lambda: photos(options, "signs"),
        "whole": lambda: whole(options),
        "null": lambda: null(options),
    }[options.rows]()
    kept = []
    for row in rows:
        kept.append(row)
        print(
            json.dumps({name: round(one, 4) if isinstance(one, float) else one for name, one in row.items()}),
            flush=True,
        )
    if options.rows != "null" and len(kept) > 1:
        means: dict[str, Any] = {"tasks": len(kept), "shipped": sum(row["shipped"] for row in kept)}
        half = float(stats.t.ppf(0.95, len(kept) - 1)) / len(kept) ** 0.5
        told = ("accuracy", "over_refit", "loss", ENSEMBLE, SOUP, DISTILLED, "random", "plain")
        for name in [one for one in told if one in kept[0]]:
            values = [row[name] for row in kept]
            means[name] = round(statistics.fmean(values), 4)
            means[f"{name}_90"] = round(half * statistics.stdev(values), 4)
        means["loss_better"] = sum(row["loss"] > 0 for row in kept)
        means["worse_beyond_chance"] = sum(row["accuracy"] < -1.645 * row["error"] for row in kept)
        print(json.dumps(means))


if __name__ == "__main__":
    main()
