"""The front of accuracy and latency on real photos: what is told of each network on it, and what its file does.

    python benchmarks/on_device.py FOLDER [--trials 24] [--limit 15] [--sizes 96,160,224]

A search of heads on three backbones (MobileNetV2 and EfficientNet-Lite0 with their ImageNet weights, ResNet18 without)
by image size and quantization, none of which may take longer than the limit. Each network on the front is exported, as
a user would; its file is timed in a process of its own, and asked about the test images. What is told and what is
measured should be within 10 % on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import tuner

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.transfer import LITE0, installed_weights, lite0
from tuner.inspection import load_winner
from tuner.results.front import at_point, front_of
from tuner.results.run import RecordedRun
from tuner.worker.network_cost import MB, RUNS, timed

WITHIN = 0.1
STUDY = """\
from tuner import Budget, ImageClassifier, Study, choice, loguniform

study = Study(
    "on-device",
    trial=ImageClassifier("folder:{folder}", weights={weights}),
    space={{
        "model": choice({models}),
        "image_size": choice({sizes}),
        "quantization": choice(["none", "int8"]),
        "finetune": "head",
        "lr": loguniform(1e-3, 1e-1),
    }},
    metric=["val_accuracy", "latency_ms"],
    limits={{"latency_ms": {limit}}},
    budget=Budget(trials={trials}, max_epochs=9),
)
"""


def searched(storage: Path, options: argparse.Namespace) -> RecordedRun:
    """The search's run."""
    weights = {"mobilenet_v2": str(installed_weights()), LITE0: str(lite0(storage / "lite0.pth")), "resnet18": None}
    sizes = [int(size) for size in options.sizes.split(",")]
    told = {"folder": options.folder.resolve(), "weights": weights, "models": list(weights), "sizes": sizes}
    file = storage / "on_device.py"
    file.write_text(STUDY.format(**told, limit=options.limit, trials=options.trials))
    return tuner.run(tuner.load_study(file), storage=storage / "runs", wandb="off")


def shipped(run: RecordedRun, trial: str, folder: Path) -> dict[str, Any]:
    """What is told of a network on the front, and what its exported file does."""
    point, inputs = at_point(run, trial), load_winner(run, point=trial).card.inputs
    assert point.best is not None
    assert run.costs is not None
    told = run.costs.of(point.best.config)
    assert told is not None
    tuner.export_model(run, "onnx", folder, point=trial)
    file, facts = folder / "model.onnx", json.loads((folder / "model.json").read_text())
    times, _ = timed(file, (1, inputs.channels, inputs.image_size, inputs.image_size), threads=1, runs=RUNS)
    return {
        "trial": trial,
        **{name: point.best.config[name] for name in ("model", "image_size", "quantization")},
        "test_accuracy": point.best_metrics["test_accuracy"],
        "file_accuracy": facts["checks"][0]["accuracy"],
        "told_ms": told.latency_ms,
        "file_ms": max(times),
        "told_mb": told.size_mb,
        "file_mb": file.stat().st_size / MB,
    }


def main() -> None:
    """Search, export each network of the front, and print what was told beside what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--limit", type=float, default=15)
    parser.add_argument("--sizes", default="96,160,224")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        storage = Path(temporary)
        run = searched(storage, options)
        trials = [one.trial.trial for one in front_of(run)]
        rows = [shipped(run, trial, storage / f"export-{trial}") for trial in trials]
        print(f"{'told, and of the file':<40}{'test accuracy':>23}{'ms':>23}{'MB':>23}")
        for row in rows:
            name = f"{row['model']} {row['image_size']} {row['quantization']}"
            values = [(row["test_accuracy"], row["file_accuracy"]), (row["told_ms"], row["file_ms"])]
            values.append((row["told_mb"], row["file_mb"]))
            print(f"{name:<40}" + "".join(f"{told:>14.3f} {found:>8.3f}" for told, found in values))
        apart = [abs(row["file_ms"] / row["told_ms"] - 1) for row in rows]
        obeyed = all(row["file_ms"] <= options.limit for row in rows)
        print(f"{sum(one < WITHIN for one in apart)} of {len(rows)} within 10 %, the farthest {max(apart):.1%} apart")
        print(json.dumps({"rows": rows, "farthest": max(apart), "obeyed": obeyed}))


if __name__ == "__main__":
    main()
