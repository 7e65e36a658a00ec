"""What `tuner init` and `tuner run` reach on photos, beside settings that were chosen without a search.

    python benchmarks/hand_picked.py [--sets flowers trash] [--cuts 4] [--minutes 5]

Each cut has other photos of each class in train/ and in test/ (at most 400 of these in all). `init` writes the study
with MobileNetV2 and EfficientNet-Lite0 to choose from, with their real ImageNet weights, and `run` searches with it on
all CPUs of this machine. By hand, on all of train/: the features of either backbone at its own image size, and a head
by Adam at 0.001 with batches of 32 and dropout 0.2, for ten epochs and for a hundred. The best of these four counts,
chosen for each set by its mean over the cuts, on the test images themselves: the search has no such help.

Needs `../shared/data` or TUNER_TEST_DATA, and the packages with weights that `make .venv/.installed` installs. Figures
of "signs" are for claims: nothing was designed on it. Prints a JSON line for each cut (accuracies in percent, minutes
that `init` foresaw and that the search took), and at last for each set what the search has more, in points, with half
the width of the 90 % interval over cuts.
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
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.combine import cut
from benchmarks.transfer import LITE0, installed_weights, lite0
from tuner import ImageClassifier
from tuner.train import data, evaluation, models

MOBILE = "mobilenet_v2"
WEIGHTS = {MOBILE: "IMAGENET1K_V1", LITE0: "imagenet"}
LITE0_CACHED = "models--timm--tf_efficientnet_lite0.in1k/snapshots/main/model.safetensors"  # in the hub's cache
LENGTHS = (10, 100)
AVERAGE = ("in", "failed", "candidates", "loss", "gain", "error", "better", "better_error")  # as metrics.json has them
STUDENT_90 = {2: 6.31, 3: 2.92, 4: 2.35, 5: 2.13, 6: 2.02, 8: 1.89, 10: 1.83}


def main() -> None:
    """Measure, print a line for each cut, and what the search has more for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sets", nargs="+", default=["flowers", "trash"], choices=["flowers", "trash", "signs"])
    parser.add_argument("--cuts", type=int, default=4)
    parser.add_argument("--first-cut", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=5.0, help="for `init`")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TUNER_TEST_DATA", "../shared/data")))
    options = parser.parse_args()
    for name in options.sets:
        rows = []
        for seed in range(options.first_cut, options.first_cut + options.cuts):
            with tempfile.TemporaryDirectory(prefix="hand picked ") as folder:
                rows.append(_row(Path(folder), options.data / "photos" / name, options.minutes, seed))
                print(json.dumps({"set": name, "cut": seed, **rows[-1]}), flush=True)
        print(json.dumps({"set": name, **_figures(rows)}), flush=True)


def _row(folder: Path, photos: Path, minutes: float, seed: int) -> dict[str, Any]:
    here = _with_weights(folder)
    cut(photos, folder / "photos", seed)
    found = _searched(folder, here, minutes, seed)
    os.environ.update(here)
    return found | {"by_hand": {f"{model} {epochs}": one for (model, epochs), one in _by_hand(folder, seed).items()}}


def _with_weights(folder: Path) -> dict[str, str]:
    """The environment in which both backbones' weights are cached, and nothing else."""
    weights = installed_weights()
    assert weights is not None, "the weights aren't there; run: make .venv/.installed"
    checkpoints = folder / "torch" / "hub" / "checkpoints"
    cached = folder / "hub" / LITE0_CACHED
    for path in (checkpoints, cached.parent):
        path.mkdir(parents=True)
    shutil.copy(weights, checkpoints)
    save_file({name: one.contiguous() for name, one in torch.load(lite0(folder / "lite0.pth")).items()}, cached)
    return {
        "TORCH_HOME": str(folder / "torch"),
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "TUNER_CACHE": str(folder / "cache"),
    }


def _searched(folder: Path, here: dict[str, str], minutes: float, seed: int) -> dict[str, Any]:
    """The test accuracy of what ships, in percent, what was averaged, and the minutes that were foreseen and taken."""
    first = _tuner(folder, here, "init", "photos", "--minutes", str(minutes), "--models", ",".join(WEIGHTS), "--json")
    begun = time.perf_counter()
    found = _tuner(folder, here, "run", "study.py", "--json", "--seed", str(seed))
    took = (time.perf_counter() - begun) / 60
    combined = found["best"].get("combined") or {}
    return {
        "search": 100 * float(found["best"]["metrics"]["test_accuracy"]),
        "single": 100 * float(combined["own"]["test_accuracy"]) if combined.get("in") else None,
        "average": {name: combined.get(name) for name in AVERAGE if name in combined},
        "trials": found["trials"]["total"],
        "foreseen": first["cost"]["minutes"]["middle"],
        "took": round(took, 2),
    }


def _tuner(folder: Path, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tuner", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _by_hand(folder: Path, seed: int) -> dict[tuple[str, int], float]:
    """Test accuracies in percent, by model and epochs."""
    found = {}
    for model in WEIGHTS:
        (train, labels), (test, asked) = _features(folder / "photos", model)
        for epochs in LENGTHS:
            torch.manual_seed(seed)
            head = nn.Linear(train.shape[1], len(labels.unique()))
            optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
            for _ in range(epochs):
                for rows in torch.randperm(len(labels)).split(32):
                    optimizer.zero_grad()
                    logits = head(nn.functional.dropout(train[rows], 0.2))
                    nn.functional.cross_entropy(logits, labels[rows]).backward()
                    optimizer.step()
            found[model, epochs] = 100 * float((head(test).argmax(1) == asked).float().mean())
    return found


def _features(photos: Path, model: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The frozen backbone's answers [N, F] to the images of train/ and test/, with labels [N]."""
    trial = ImageClassifier(f"folder:{photos}", model, WEIGHTS[model], validation=0.2)
    splits = data.load_splits(trial, seed=0)
    chosen = trial.hyperparameters({})
    network = models.build_network(trial, channels=3, classes=len(splits.classes), seed=0, config=chosen)
    network.module.set_submodule(network.head, nn.Identity())
    answer = evaluation.Evaluator(torch.device("cpu")).logits
    parts = [answer(network.module, one, splits.normalisation) for one in (splits.train, splits.validation)]
    labels = torch.cat([splits.train.labels, splits.validation.labels])
    test = answer(network.module, splits.test, splits.normalisation).clone()  # not of inference mode
    return (torch.cat(parts), labels), (test, splits.test.labels)


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the search has more than the best settings by hand, in points, over the cuts."""
    means = {name: statistics.fmean(row["by_hand"][name] for row in rows) for name in rows[0]["by_hand"]}
    best = max(means, key=means.__getitem__)
    more = [row["search"] - row["by_hand"][best] for row in rows]
    half = STUDENT_90.get(len(more), 1.8) * statistics.stdev(more) / len(more) ** 0.5 if len(more) > 1 else None
    return {
        "search": round(statistics.fmean(row["search"] for row in rows), 2),
        "by_hand": {name: round(mean, 2) for name, mean in means.items()},
        "more": round(statistics.fmean(more), 2),
        "more_90": half and round(half, 2),
        "took_minutes": round(statistics.fmean(row["took"] for row in rows), 2),
    }


if __name__ == "__main__":
    main()
