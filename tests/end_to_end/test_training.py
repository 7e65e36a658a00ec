"""Searches of image classifiers through the command line: the user's own models and data, memory, lost workers."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.commands import tuner
from tuner import Run, load_model, load_run
from tuner.machine.hardware import this_machine

pytestmark = pytest.mark.ray

OWN = '''
"""A model and data of your own."""
import torch
from torch import nn
from tuner import *

def blobs():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    images = (torch.rand(300, 1, 8, 8, generator=generator) * 100 + labels.view(-1, 1, 1, 1) * 70).to(torch.uint8)
    return (images[:200], labels[:200]), (images[200:250], labels[200:250]), (images[250:], labels[250:])

def perceptron(config):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 3))

study = Study(
    "own", trial=ImageClassifier(blobs, perceptron),
    space={"width": randint(4, 32), "lr": loguniform(1e-3, 1e-1), "batch_size": 32},
    metric="val_accuracy", mode="max", search=Random(), scheduler=ASHA(grace_epochs=1, rule="promote"),
    budget=Budget(trials=4, max_epochs=6),
)
'''


def search(folder: Path, text: str, *options: str, **environment: str) -> Run:
    (folder / "space.py").write_text(text)
    done = tuner("run", "space.py", "--storage", "out", *options, folder=folder, **environment)
    assert done.code == 0, done.err
    return load_run(folder / "out")


STARVED = '''
class Starved(nn.Sequential):
    """Runs out of memory with more than 10 images, as on a GPU."""

    def forward(self, images):
        if self.training and len(images) > 10:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return super().forward(images)
'''


def test_a_model_and_data_of_ones_own_are_searched_in_parts_that_fit_into_memory_scored_and_loaded_back(
    tmp_path: Path,
) -> None:
    starved = OWN.replace("nn.Sequential(", "Starved(").replace("def blobs", f"{STARVED}\ndef blobs")
    run = search(tmp_path, starved, "--concurrency", "1")
    assert run.best_metrics["test_accuracy"] > 0.9
    assert run.best is not None
    assert set(run.history["micro_batch_size"]) == {8}  # half of a half of 32
    assert run.history["oom_retries"].max() == 2
    assert (run.history["memory_peak_bytes"] > 0).all()
    assert "trial_paused" in {event["event"] for event in run.events}
    model = load_model(run)
    assert model.card.model == "perceptron()"
    assert model.module[1].out_features == run.best.config["width"]  # type: ignore[union-attr, index]
    image = tmp_path / "bright.png"
    Image.new("L", (8, 8), 190).save(image)
    assert model.predict([image])[0].label == "2"
    shown = tuner("predict", "out", "bright.png", folder=tmp_path)
    assert shown.code == 0
    assert shown.out.splitlines()[-1].split()[1] == "2"


KINDS = '''
"""Four animals, which a data set turns into the names of two kinds."""
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset
from tuner import *

class Animals(Dataset):
    classes, targets = ["cat", "dog", "wolf", "lynx"], torch.arange(80) % 4

    def __len__(self):
        return 80

    def __getitem__(self, index):
        image = torch.zeros(3, 4, 4)
        image[int(self.targets[index]) // 2] = 1
        return image, ("wild" if self.targets[index] // 2 else "pet")

def animals():
    return Animals(), Subset(Animals(), range(20)), ConcatDataset([Animals(), Subset(Animals(), range(4))])

def perfect(config):
    last = nn.Linear(3, 2, bias=False)
    nn.init.eye_(last.weight)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)

study = Study(
    "kinds", trial=ImageClassifier(animals, perfect), space={"lr": loguniform(1e-6, 1e-5)}, metric="val_accuracy",
    mode="max", search=Random(), budget=Budget(trials=1, max_epochs=1),
)
'''


def test_a_perfect_classifier_of_a_data_sets_own_labels_is_right_about_every_image(tmp_path: Path) -> None:
    run = search(tmp_path, KINDS)
    assert (run.history["val_accuracy"].tolist(), run.best_metrics["test_accuracy"]) == ([1.0], 1.0)
    assert load_model(run).card.classes == ("pet", "wild")
    matrix = json.loads((Path(run.path) / "best" / "confusion_matrix.json").read_text())
    assert matrix == {"classes": ["pet", "wild"], "counts": [[42, 0], [0, 42]]}


@pytest.mark.slow
def test_the_winner_of_a_search_that_a_limit_cut_off_is_saved_and_scored(tmp_path: Path) -> None:
    large = OWN.replace("randint(4, 32)", "200_000").replace(
        "grace_epochs=1", "grace_epochs=5"
    )  # takes a while to write
    run = search(tmp_path, large, "--total-epochs", "2", "--concurrency", "1", "--no-portfolio")
    assert run.end_reason == "total_epochs"
    assert "test_accuracy" in run.best_metrics
    assert run.record.notices == []


FRAGILE = '''
"""A worker that kills itself once, in the fifth epoch."""
import os, signal
from pathlib import Path
from torch import nn
from tuner import *

MARK = Path("killed").absolute()

class Fragile(nn.Sequential):
    steps = 0

    def forward(self, images):
        self.steps += self.training
        if self.steps == 100 and not MARK.exists():
            MARK.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)

def fragile(config):
    return Fragile(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

study = Study(
    "fragile", trial=ImageClassifier("digits", fragile), space={"lr": 1e-3, "image_size": 8},
    metric="val_accuracy", mode="max", search=Random(), scheduler=NoEarlyStopping(),
    budget=Budget(trials=1, max_epochs=8),
)
'''


@pytest.mark.slow
def test_a_killed_worker_goes_on_from_what_was_written_behind_its_back(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    (tmp_path / "whole" / "killed").write_text("")
    whole, killed = (search(tmp_path / name, FRAGILE) for name in ("whole", "killed"))
    assert [run.record.trials["00000"].losses for run in (whole, killed)] == [0, 1]
    columns = ["epoch", "train_loss", "val_loss", "val_accuracy"]
    assert killed.history[columns].values.tolist() == whole.history[columns].values.tolist()
    kinds = [event["event"] for event in killed.events]
    before = {event["epoch"] for event in killed.events[: kinds.index("trial_lost")] if "epoch" in event}
    after = [
        event["epoch"] for event in killed.events[kinds.index("trial_lost") :] if event["event"] == "epoch_reported"
    ]
    assert before == {1, 2, 3, 4}
    assert 2 <= after[0] <= 5  # not from the beginning


FOLDED = (
    FRAGILE.split("def fragile", maxsplit=1)[0].replace("steps == 100", "steps == 20")
    + """
def fragile(config):
    return Fragile(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))

study = Study(
    "folded", trial=ImageClassifier("digits", fragile, validation=Folds(3), metrics=["balanced_accuracy"]),
    space={"lr": 1e-2, "image_size": 8, "batch_size": 256}, metric="val_balanced_accuracy", search=Random(),
    scheduler=NoEarlyStopping(), budget=Budget(trials=1, max_epochs=5),
)
"""
)


@pytest.mark.slow
def test_a_killed_cross_validation_goes_on_bit_for_bit_is_replayed_and_all_its_networks_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.train import trainer_of
    from tuner.worker.clean_process import clean_process

    run = search(tmp_path, FOLDED)  # its first network's 20th step, in the fourth epoch, kills the worker
    trial = run.record.trials["00000"]
    assert trial.losses == 1
    monkeypatch.chdir(tmp_path)  # where the mark lies by which it is killed but once
    study = run.declared_study(trust=True)
    threads = int(trial.epochs[1].metrics["threads"])
    with clean_process(seed=trial.seed, threads=threads):
        alone = trainer_of(study.trial, trial.config, epochs=5, seed=trial.seed, split_seed=0)  # type: ignore[arg-type]
        told = [alone.run_epoch().metrics() for _ in range(5)]
    names = ("val_balanced_accuracy", "val_balanced_accuracy_se", "val_loss", "val_accuracy_se", "train_loss")
    assert [[e.metrics[name] for name in names] for e in trial.epochs.values()] == [
        [one[name] for name in names] for one in told
    ]
    assert run.mode == "max"
    model = load_model(run)
    assert model.card.networks == 3
    assert run.best_metrics["test_balanced_accuracy"] > 0.5
    assert run.test_intervals["test_balanced_accuracy"][0] < run.best_metrics["test_balanced_accuracy"]
    replayed = tuner("replay", "out", "0", "--epochs", "2", folder=tmp_path)
    assert replayed.code == 0, replayed.err
    assert "the curve is the same in 2 epochs" in replayed.out


GREEDY = (
    OWN.split("def perceptron", maxsplit=1)[0]
    + """
import time

class Greedy(nn.Linear):
    def forward(self, images):
        if self.training:
            held = torch.ones(len(images) * 80 * 2**18)  # 80 MiB an image, 5 GiB for 64 of them
            time.sleep(0.5)  # long enough for Ray to look
        return super().forward(images)

def greedy(config):
    return nn.Sequential(nn.Flatten(), Greedy(64, 3))

study = Study(
    "greedy", trial=ImageClassifier(blobs, greedy), space={"lr": 1e-3, "batch_size": 64},
    metric="val_loss", mode="min", search=Random(), scheduler=NoEarlyStopping(),
    budget=Budget(trials=1, max_epochs=1), resources=Resources(cpus=1),
)
"""
)


@pytest.mark.slow
def test_a_trial_whose_worker_was_killed_for_its_memory_goes_on_with_smaller_parts(tmp_path: Path) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    memory = {name: int(amount.split()[0]) * 1024 for name, _, amount in (line.partition(":") for line in lines)}
    if memory.get("MemAvailable", 0) < 6 * 2**30 or memory["MemTotal"] != this_machine().memory_bytes:
        pytest.skip("needs 6 GiB of free memory that no container limits")
    used = memory["MemTotal"] - memory["MemAvailable"]
    limit = {
        "RAY_memory_usage_threshold": str((used + 5.25 * 2**30) / memory["MemTotal"]),
        "RAY_memory_monitor_refresh_ms": "100",
    }
    run = search(tmp_path, GREEDY, **limit)
    trial = run.record.trials["00000"]
    assert trial.losses >= 1
    (message,) = {event["message"] for event in run.events if event["event"] == "trial_lost"}
    assert message.startswith("its worker was killed because the machine ran low on memory (")
    assert trial.status == "completed"
    assert run.history["micro_batch_size"].tolist() == [64 // 2**trial.losses]


@pytest.mark.slow
def test_no_checkpoint_is_left_but_the_winners(tmp_path: Path) -> None:
    (tmp_path / "killed").write_text("")
    run = search(tmp_path, FRAGILE, "--trials", "3", "--set", "batch_size=128")
    folders = sorted(path.name for path in Path(run.path).glob("checkpoints/*/*") if path.is_dir())
    assert len(folders) == 1
    assert run.best is not None
    assert (Path(run.path) / "best" / "model.safetensors").is_file()
