"""The published search by tuner and by the plain Ray Tune script that it came from, in the same run.

    python benchmarks/published.py [--epochs-scale 1] [--images 60000] [--seeds 1] [--two] [--device cpu|cuda]
                                   [--data-dir DIR]

Ten trials of ResNet18 on Fashion-MNIST: learning rate, batch size 32, 64 or 128, and 4 to 9 epochs, with Adam. Three
searches one after the other, each in its own process with the whole machine: `plain_search.py` (HyperOpt, ASHA
with a grace of 1 epoch and reduction 2, `DataLoader`), `python -m tuner run` with the same algorithms, and with tuner's
default ones. A trial gets one CPU, and one GPU where there are any, at normal priority (Ray's workers have a low one,
which matters on a shared machine). All read the same files, train and validate on the same images, and score their
winner on the same test images; the order turns with each seed.

Seconds are of the whole command, Ray's start and the winner's test included. `to plain's best` are the seconds from the
command's start until an epoch reached the best validation accuracy of any epoch of the plain script. `trials at once`
is how many were in an epoch, on average. GPU utilisation is NVML's value for all GPUs, by all programs. The last
line is one JSON object: the means over the seeds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
FEWEST_EPOCHS, MOST_EPOCHS, GRACE_EPOCHS = 4, 9, 3  # the last one is tuner's default
SAMPLE_SECONDS = 0.5
ROUNDING = 1e-6  # of the same share of images, as one side or the other computes it
STUDY = """\
from tuner import ASHA, Budget, HyperOpt, ImageClassifier, MultiFidelityGP, Study, choice, loguniform, randint

study = Study(
    name="published",
    trial=ImageClassifier(data="fashion-mnist", model="resnet18", weights={weights!r}),
    space={{
        "epochs": randint({fewest}, {most} + 1),
        "lr": loguniform(1e-4, 1e-3),
        "batch_size": choice([32, 64, 128]),
    }},
    metric="val_accuracy",
    search={search},
    scheduler={scheduler},
    budget=Budget(trials={trials}, max_epochs={most}),
)
"""


@dataclass(frozen=True)
class Setting:
    """What is searched, the same for all: `scale` shortens the epochs, `images` are those of the training files.

    `gpus_per_trial` is tuner's option, "auto" if its trials share the GPUs; None for one each.
    """

    scale: float
    images: int
    trials: int
    device: str
    weights: str | None
    gpus_per_trial: str | None = None

    @property
    def epochs(self) -> tuple[int, int]:
        """Fewest and most of a trial."""
        return self.scaled(FEWEST_EPOCHS), self.scaled(MOST_EPOCHS)

    def scaled(self, epochs: int) -> int:
        """How many epochs in this form stand for `epochs` of the full form."""
        return max(1, round(self.scale * epochs))

    @property
    def environment(self) -> dict[str, str]:
        """Of the searches' processes: on CPUs no GPU is seen, and no side gives way to other work on the machine."""
        paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {}
        return {**os.environ, "PYTHONPATH": paths, "RAY_worker_niceness": "0", **hidden}


@dataclass(frozen=True, order=True)
class Epoch:
    """One epoch of a trial: when it ended, in seconds since the command's start, how long it took, what it reached."""

    ended: float
    seconds: float
    accuracy: float


@dataclass(frozen=True)
class Outcome:
    """One search: seconds of its command, the epochs of all trials in the order of their ends, the winner's test."""

    seconds: float
    epochs: tuple[Epoch, ...]
    test_accuracy: float
    gpu_utilisation: float | None = None

    @property
    def began(self) -> float:
        """When the first epoch began, in seconds since the command's start."""
        return min(epoch.ended - epoch.seconds for epoch in self.epochs)

    @property
    def best(self) -> float:
        """The best validation accuracy of any epoch."""
        return max(epoch.accuracy for epoch in self.epochs)

    @property
    def at_once(self) -> float:
        """Trials in an epoch at once, on average from the first one's begin to the last one's end."""
        return sum(epoch.seconds for epoch in self.epochs) / max(self.epochs[-1].ended - self.began, 1e-9)

    def reached(self, accuracy: float) -> float | None:
        """When an epoch was the first to be as good; None if none was."""
        return next((epoch.ended for epoch in self.epochs if epoch.accuracy >= accuracy - ROUNDING), None)


# Data


def write_data(source: Path, folder: Path, images: int) -> None:
    """The first `images` training images of Fashion-MNIST, and all test images, in its own four files."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", images), ("t10k", 10_000)):
        for kind, header in (("images-idx3", 4), ("labels-idx1", 2)):
            name = f"{part}-{kind}-ubyte"
            content = _content(source / "FashionMNIST" / "raw" / name)
            sizes = list(struct.unpack(f">{header}I", content[: 4 * header]))
            sizes[1] = min(count, sizes[1])
            length = int(np.prod(sizes[1:]))
            (raw / name).write_bytes(struct.pack(f">{header}I", *sizes) + content[4 * header : 4 * header + length])


def _content(path: Path) -> bytes:
    packed = path.with_name(f"{path.name}.gz")
    return gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()


def find_data(folder: Path) -> Path:
    """The folder, once Fashion-MNIST lies in it, as files or packed."""
    if not any((folder / "FashionMNIST" / "raw").glob("train-images-idx3-ubyte*")):
        import torchvision

        try:
            torchvision.datasets.FashionMNIST(folder, download=True)
        except Exception as error:  # whatever stands between this machine and its mirrors
            sys.exit(f"Fashion-MNIST is needed, got none under {folder} ({error}); name another folder by --data-dir")
    return folder


def held_out(folder: Path, seed: int) -> list[int]:
    """The numbers of the training images that tuner validates on, for the plain script to validate on too."""
    from tuner.train import load_splits
    from tuner.trial import ImageClassifier

    rows: list[int] = load_splits(
        ImageClassifier("fashion-mnist", weights=None, data_dir=folder), seed=seed
    ).validation.rows.tolist()
    return rows


# The searches


def plain(setting: Setting, data: Path, folder: Path, seed: int) -> Outcome:
    """The plain Ray Tune script."""
    (folder / "held_out.json").write_text(json.dumps(held_out(data, seed)))
    command = [sys.executable, str(HERE / "plain_search.py"), "--data-dir", str(data), "--storage", str(folder)]
    command += ["--epochs", *map(str, setting.epochs), "--trials", str(setting.trials), "--seed", str(seed)]
    command += ["--held-out", str(folder / "held_out.json")]
    command += ["--weights", "DEFAULT"] if setting.weights else []
    began = time.time()
    output, seconds, utilisation = run(command, setting)
    lines = [line for file in folder.glob("plain/*/result.json") for line in file.read_text().splitlines()]
    epochs = [
        Epoch(found["timestamp"] - began, found["time_this_iter_s"], found["accuracy"])
        for found in map(json.loads, lines)
    ]
    test_accuracy = json.loads(output.splitlines()[-1])["test_accuracy"]
    return Outcome(seconds, tuple(sorted(epochs)), test_accuracy, utilisation)


def ours(setting: Setting, data: Path, folder: Path, seed: int, *, search: str, scheduler: str) -> Outcome:
    """A study file, and `python -m tuner run`."""
    from tuner import load_run

    fewest, most = setting.epochs
    values = {"weights": setting.weights, "trials": setting.trials, "fewest": fewest, "most": most}
    study = folder / "published.py"
    study.write_text(STUDY.format(search=search, scheduler=scheduler, **values))
    command = [sys.executable, "-m", "tuner", "run", str(study), "--storage", str(folder / "runs")]
    command += ["--data-dir", str(data), "--seed", str(seed), "--no-history", "--wandb", "off", "--quiet", "--json"]
    command += ["--gpus-per-trial", setting.gpus_per_trial] if setting.gpus_per_trial else []
    began = time.time()
    output, seconds, utilisation = run(command, setting)
    epochs = [
        Epoch(epoch.time - began, epoch.metrics["seconds"], epoch.metrics["val_accuracy"])
        for trial in load_run(folder / "runs").record.trials.values()
        for epoch in trial.epochs.values()
    ]
    test_accuracy = json.loads(output.splitlines()[-1])["best"]["metrics"]["test_accuracy"]
    return Outcome(seconds, tuple(sorted(epochs)), test_accuracy, utilisation)


def same_algorithms(setting: Setting, data: Path, folder: Path, seed: int) -> Outcome:
    """By tuner, as the plain script searches."""
    scheduler = "ASHA(grace_epochs=1, reduction_factor=2, rule='stop')"
    return ours(setting, data, folder, seed, search="HyperOpt()", scheduler=scheduler)


def default(setting: Setting, data: Path, folder: Path, seed: int) -> Outcome:
    """By tuner, as it searches unless told otherwise; its grace is shortened with the epochs."""
    scheduler = f"ASHA(grace_epochs={setting.scaled(GRACE_EPOCHS)})"
    return ours(setting, data, folder, seed, search="MultiFidelityGP()", scheduler=scheduler)


SEARCHES: dict[str, Callable[[Setting, Path, Path, int], Outcome]] = {
    "plain Ray Tune": plain,
    "tuner, HyperOpt + ASHA": same_algorithms,
    "tuner, default": default,
}


def run(command: list[str], setting: Setting) -> tuple[str, float, float | None]:
    """What the command prints, its seconds, and how busy the GPUs were meanwhile; its own words where it fails."""
    from tuner.machine.cache_folder import default_folder

    with tempfile.TemporaryDirectory() as cache, watched(gpu_reader()) as utilisation:
        began = time.perf_counter()
        for known in default_folder().glob("machine-*.json"):  # what the first look at a GPU found, once a machine
            shutil.copy(known, cache)
        environment = {**setting.environment, "TUNER_CACHE": cache}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout, seconds, statistics.fmean(utilisation) if utilisation else None


# The machine


@contextmanager
def watched(read: Callable[[], float] | None, every: float = SAMPLE_SECONDS) -> Iterator[list[float]]:
    """What `read` says, again and again while the block runs; nothing where there is nothing to read."""
    samples: list[float] = []
    over = threading.Event()
    thread = threading.Thread(target=_sample, args=(read, every, samples, over), daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def _sample(read: Callable[[], float] | None, every: float, samples: list[float], over: threading.Event) -> None:
    while read is not None and not over.wait(every):
        with suppress(Exception):  # NVML's; a sample that can't be had is left out
            samples.append(read())


def gpu_reader() -> Callable[[], float] | None:
    """Reads the mean utilisation of the GPUs, in [0, 1]; None without a GPU, its driver or NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no library, no driver
        return None
    if not handles:
        return None
    return lambda: statistics.fmean(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles)


def hardware(device: str) -> str:
    """Processor, CPUs and GPU, and the versions of what computes."""
    import torch

    from tuner.machine.hardware import this_machine

    machine = this_machine()
    gpu = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}" if device == "cuda" else "no GPU"
    packages = ", ".join(f"{name} {version(name)}" for name in ("ray", "torch", "torchvision"))
    return f"{machine.processor}, {machine.cpus} CPUs, {gpu}, Python {platform.python_version()}, {packages}"


# What it says


def show(name: str, seed: int, found: Outcome, target: float | None) -> None:
    """A line of the table."""
    reached = found.reached(target) if target is not None else None
    cells = [f"{found.seconds:8.1f}", f"{found.began:8.1f}", f"{found.epochs[-1].ended:8.1f}"]
    cells += [f"{found.best:8.4f}", f"{found.test_accuracy:8.4f}"]
    cells += [f"{reached:10.1f}" if reached is not None else f"{'never':>10}", f"{len(found.epochs):7}"]
    cells += [f"{found.at_once:7.2f}", "   -" if found.gpu_utilisation is None else f"{found.gpu_utilisation:4.0%}"]
    print(f"{name:24}{seed:5}", *cells, flush=True)


COLUMNS = {"seconds": 9, "begin": 9, "end": 9, "valid.": 9, "test": 9, "best": 11, "epochs": 8, "at once": 8, "GPU": 5}
HEADER = f"{'':46}epochs     best accuracy to plain's          trials\n{'search':24}{'seed':>5}" + "".join(
    f"{name:>{width}}" for name, width in COLUMNS.items()
)


def figures(outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    """Means over the seeds, and how much sooner than the whole plain script tuner was as good."""
    plains = outcomes["plain Ray Tune"]
    found: dict[str, Any] = {}
    for name, runs in outcomes.items():
        times = [run.reached(plain.best) for run, plain in zip(runs, plains, strict=True)]
        reached = [time for time in times if time is not None]
        busy = [run.gpu_utilisation for run in runs if run.gpu_utilisation is not None]
        found[name] = {
            "seconds": _mean([run.seconds for run in runs]),
            "test_accuracy": _mean([run.test_accuracy for run in runs]),
            "best_test_accuracy": max(run.test_accuracy for run in runs),
            "reached_plains_best": len(reached),
            "seconds_to_plains_best": _mean(reached),
            "share_of_plains_seconds": _mean(
                [time / plain.seconds for time, plain in zip(times, plains, strict=True) if time is not None]
            ),
            "trials_at_once": _mean([run.at_once for run in runs]),
            "gpu_utilisation": _mean(busy),
        }
    return found


def _mean(values: list[float]) -> float | None:
    return round(statistics.fmean(values), 4) if values else None


def measure(setting: Setting, source: Path, seeds: int, searches: Sequence[str]) -> dict[str, list[Outcome]]:
    """These searches with every seed; each seed begins with another search."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in searches}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_data(source, data, setting.images)
        os.environ["TUNER_CACHE"] = f"{folder}/cache"  # for reading the split; each search decodes the data again
        for seed in range(seeds):
            names = [searches[(index + seed) % len(searches)] for index in range(len(searches))]
            for name in names:
                with tempfile.TemporaryDirectory() as storage:
                    outcomes[name].append(SEARCHES[name](setting, data, Path(storage), seed))
            for name, runs in outcomes.items():
                show(name, seed, runs[-1], outcomes["plain Ray Tune"][-1].best)
    return outcomes


def main() -> None:
    """Measure and print."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs-scale", type=float, default=1.0, help="0.34 for 1 to 3 epochs in place of 4 to 9")
    parser.add_argument("--images", type=int, default=60_000, help="of the training files, a tenth for validation")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--two", action="store_true", help="without tuner's search by the script's own algorithms")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--weights", choices=("none", "imagenet"), default="none", help="imagenet is downloaded")
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("TUNER_TEST_DATA", "data")))
    options = parser.parse_args()
    if round(options.epochs_scale * MOST_EPOCHS) < 2:
        parser.error(
            f"--epochs-scale needs 0.17 or more, for trials of two epochs, got {options.epochs_scale}; raise it"
        )
    if not 100 <= options.images <= 60_000 or options.trials < 1 or options.seeds < 1:
        parser.error(
            "--images needs 100 to 60000, --trials and --seeds 1 or more, "
            f"got {options.images}, {options.trials} and {options.seeds}; correct them"
        )
    weights = None if options.weights == "none" else options.weights
    setting = Setting(options.epochs_scale, options.images, options.trials, options.device, weights)
    print(hardware(setting.device))
    print(
        f"{setting.trials} trials of {setting.epochs[0]} to {setting.epochs[1]} epochs, {setting.images:,} images; "
        + ("ImageNet weights" if weights else "random weights: no comparison with 0.9144, which had ImageNet's")
    )
    print(HEADER)
    searches = [name for name in SEARCHES if not (options.two and SEARCHES[name] is same_algorithms)]
    outcomes = measure(setting, find_data(options.data_dir), options.seeds, searches)
    print(json.dumps({"setting": asdict(setting), "hardware": hardware(setting.device), **figures(outcomes)}))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main()
