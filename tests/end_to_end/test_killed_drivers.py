"""Whole searches with cross-validation and with recipes, whose driver is killed: gone on with, replayed, exported."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import start, tuner
from tests.searches import wait_for
from tests.train.conftest import write_colours
from tuner import Run, load_run

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # trainer, loop and shipping have quick tests of the same
ENVIRONMENT = {"WANDB_MODE": "disabled"}
STUDY = """
import os
import time

from torch import nn

from tuner import *


class Slow(nn.Sequential):
    def forward(self, images):
        if self.training:
            time.sleep(float(os.environ.get("STEP_SECONDS", 0)))
        return super().forward(images)


def model(config):
    return Slow(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
    )


study = Study(
    "killed", trial=ImageClassifier("folder:my photos", model, weights=None{VALIDATION}),
    space={"lr": loguniform(1e-3, 3e-2), "batch_size": 16, "image_size": 12{RECIPES}},
    search=Random(sobol=False), scheduler={SCHEDULER}, budget=Budget(trials={TRIALS}, max_epochs=4), warm_start=None,
)
"""
RECIPES = ', "auto_augment": choice(["trivial", "rand"]), "random_resized_crop": 0.3, "cutmix": 1.0, "mixup": 0.2'
RECIPES += ', "test_time_flip": True, "ema_decay": 0.9'


def resumed_after_a_kill(folder: Path, epochs: int) -> tuple[Run, list[str]]:
    """The run of the study in the folder, whose driver dies after so many epochs; and the trials that went on."""
    write_colours(folder / "my photos")
    driver = start("run", "space.py", folder=folder, **{**ENVIRONMENT, "STEP_SECONDS": "0.2"})
    wait_for(lambda: driver.poll() is not None or reported(folder) >= epochs)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    before = load_run(folder / "runs")
    assert before.status == "interrupted"
    goes_on = [trial.trial for trial in before.record.trials.values() if trial.live and trial.epochs]
    assert goes_on
    done = tuner("resume", "runs", folder=folder, **ENVIRONMENT)
    assert done.code == 0, done.err
    run = load_run(folder / "runs")
    assert run.status == "finished"
    return run, goes_on


def reported(folder: Path) -> int:
    try:
        return load_run(folder / "runs").record.epochs()
    except Exception:  # it has not begun
        return 0


def check_replayed(run: Run, folder: Path, trial: str) -> None:
    done = tuner("replay", "runs", trial, folder=folder)
    assert done.code == 0, done.out + done.err
    assert f"the curve is the same in {len(run.trial(trial).epochs)} epoch" in done.out


def test_a_cross_validation_whose_driver_was_killed_goes_on_and_ships_as_one_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    declared = STUDY.replace("{VALIDATION}", ", validation=Folds(3)").replace("{RECIPES}", "")
    declared = declared.replace("{SCHEDULER}", "NoEarlyStopping()").replace("{TRIALS}", "1")
    (tmp_path / "space.py").write_text(declared)
    run, (trial,) = resumed_after_a_kill(tmp_path, epochs=2)
    assert sorted(run.trial(trial).epochs) == [1, 2, 3, 4]
    check_replayed(run, tmp_path, trial)
    assert json.loads((Path(run.path) / "best" / "model.json").read_text())["networks"] == 3
    exported = tuner("export", "runs", "--to", "onnx", "the model", folder=tmp_path)
    assert exported.code == 0, exported.err
    assert "3 networks" in (tmp_path / "the model" / "README.md").read_text()
    photos = sorted((tmp_path / "my photos").rglob("*.png"))[::7]
    script = [sys.executable, str(tmp_path / "the model" / "predict.py"), *map(str, photos)]
    answered = subprocess.run(script, capture_output=True, text=True, check=True)
    expected = tuner("predict", "runs", *photos, "--json", folder=tmp_path).json
    told = [line.split("\t")[:2] for line in answered.stdout.splitlines()]
    assert told == [[one["path"], one["label"]] for one in expected]


def test_trials_with_recipes_are_promoted_also_by_the_driver_after_a_killed_one(tmp_path: Path) -> None:
    declared = STUDY.replace("{VALIDATION}", "").replace("{RECIPES}", RECIPES).replace("{TRIALS}", "4")
    (tmp_path / "space.py").write_text(
        declared.replace("{SCHEDULER}", "ASHA(grace_epochs=1, reduction_factor=2, rule='promote')")
    )
    run, _ = resumed_after_a_kill(tmp_path, epochs=3)
    later = [event["event"] for event in run.events].index("study_resumed")
    promoted = {event["trial"] for event in run.events[later:] if event["event"] == "trial_resumed"}
    assert promoted
    for trial in {*promoted, *([run.best.trial] if run.best else [])}:
        check_replayed(run, tmp_path, trial)
