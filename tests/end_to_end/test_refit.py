"""Real searches whose winner is trained again at the end, and what is cut off in its middle."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.commands import start, tuner
from tests.searches import wait_for
from tuner import Run, load_run
from tuner.history.refits import shipped_refit

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # the loop, the trainer and the worker have quick tests
ENVIRONMENT = {"WANDB_MODE": "disabled"}
STUDY = """
import os
import time

import torch
from torch import nn

from tuner import Budget, Folds, ImageClassifier, Study, loguniform


def images():
    torch.manual_seed(0)
    parts = []
    for count in (48, 24, 24):
        labels = torch.arange(count).remainder(2)
        parts.append(((torch.rand(count, 3, 8, 8) + labels[:, None, None, None] * 0.5), labels))
    return tuple(parts)


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, 2)

    def forward(self, x):
        if self.training:
            time.sleep(float(os.environ.get("STEP_SECONDS", 0.01)))
        return self.head(x.flatten(1))


def model(config):
    return Slow()


study = Study(
    "again", trial=ImageClassifier(%s, model, weights=None%s), space={"lr": loguniform(1e-3, 1e-1), "batch_size": 16},
    budget=Budget(trials=2, max_epochs=6), %s
)
"""
DECLARED = STUDY % ("images", "", 'refit="train+validation"')


def only_run(folder: Path) -> Run:
    return load_run(folder / "runs")


def refit_epochs(folder: Path) -> int:
    """Reports of the refit so far; -1 before it has begun."""
    try:
        trials = only_run(folder).record.trials.values()
    except Exception:
        return -1
    return max((len(trial.epochs) for trial in trials if trial.refits is not None), default=-1)


def check_shipped(folder: Path, out: str) -> Run:
    """The refit was trained in full, each epoch once, and is what best/, show and --json tell of."""
    run = only_run(folder)
    refit, best = shipped_refit(run.record), run.best
    assert best is not None
    assert refit is not None
    assert sorted(refit.epochs) == list(range(1, (run.best_epoch or 0) + 1))
    assert not [trial for trial in run.record.trials.values() if trial.live]
    reported = [(e["trial"], e["epoch"]) for e in run.events if e["event"] == "epoch_reported"]
    assert len(set(reported)) == sum(len(trial.epochs) for trial in run.record.trials.values())
    metrics = json.loads((Path(run.path) / "best" / "metrics.json").read_text())
    assert (metrics["trial"], metrics["refit"]["trial"]) == (best.trial, refit.trial)
    assert "test_accuracy" in metrics["metrics"]
    assert metrics["images"] == {"train": 72, "validation": 0, "test": 24}
    assert json.loads((Path(run.path) / "best" / "model.json").read_text())["trained_on"] == "train+validation"
    said = f"trial {refit.trial} trained the winner, {best.trial}, again for"
    assert said in out.replace("\n", " ")
    assert said in tuner("show", "runs", folder=folder).out.replace("\n", " ")
    assert tuner("show", "runs", "--json", folder=folder).json["best"]["refit"]["trial_id"] == refit.trial
    report = (Path(run.path) / "report.html").read_text()
    assert f"Trial {refit.trial} trained the winner" in report
    assert "On the same test images the winner" in report
    return run


@pytest.mark.parametrize("how", ["driver", "interrupt"])
def test_a_driver_that_goes_in_its_middle_leaves_it_to_resume(tmp_path: Path, how: str) -> None:
    (tmp_path / "space.py").write_text(DECLARED)
    driver = start("run", "space.py", folder=tmp_path, **{**ENVIRONMENT, "STEP_SECONDS": "0.2"})
    wait_for(lambda: refit_epochs(tmp_path) >= 1 or driver.poll() is not None)
    if how == "driver":
        os.killpg(driver.pid, signal.SIGKILL)
    else:
        driver.send_signal(signal.SIGINT)
    driver.communicate()
    before = only_run(tmp_path)
    assert before.status == "interrupted"
    (cut_off,) = [trial for trial in before.record.trials.values() if trial.refits is not None]
    assert cut_off.live
    resumed = tuner("resume", "runs", folder=tmp_path, **ENVIRONMENT)
    assert resumed.code == 0, resumed.err
    run = check_shipped(tmp_path, resumed.out)
    assert list(run.record.trials) == list(before.record.trials)  # no other trial was begun
    over = tuner("resume", "runs", folder=tmp_path, **ENVIRONMENT)
    assert over.code == 2
    assert "--trials is the total number of trials" in over.err


def test_one_whose_worker_is_killed_goes_on(tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(DECLARED)
    driver = start("run", "space.py", folder=tmp_path, **{**ENVIRONMENT, "STEP_SECONDS": "0.1"})
    wait_for(lambda: refit_epochs(tmp_path) >= 2 or driver.poll() is not None)
    (refit,) = [trial for trial in only_run(tmp_path).record.trials.values() if trial.refits is not None]
    os.kill(refit.stays[-1].pid, signal.SIGKILL)
    out, err = driver.communicate(timeout=300)
    assert driver.returncode == 0, err
    run = check_shipped(tmp_path, out)
    assert run.record.trials[refit.trial].losses == 1


def test_refit_trains_the_winner_of_an_ended_run_and_predict_and_export_use_it(tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(STUDY % ("images", "", ""))
    assert tuner("run", "space.py", folder=tmp_path, **ENVIRONMENT).code == 0
    assert json.loads((Path(only_run(tmp_path).path) / "best" / "model.json").read_text())["trained_on"] == "train"
    done = tuner("refit", "runs", folder=tmp_path, **ENVIRONMENT)
    assert done.code == 0, done.err
    assert "trains the winner, trial 0000" in done.err
    run = check_shipped(tmp_path, done.out)
    assert run.end_reason == "trials"
    replayed = tuner("replay", "runs", "2", folder=tmp_path, **ENVIRONMENT)
    assert replayed.code == 0, replayed.err
    assert "(train_loss)" in replayed.out
    assert f"the curve is the same in {run.best_epoch} epochs" in replayed.out
    shipped = tuner("export", "runs", "--to", "safetensors", "model", folder=tmp_path, **ENVIRONMENT)
    assert shipped.code == 0, shipped.err
    card = (tmp_path / "model" / "README.md").read_text()
    assert "It was trained on all images but those of the test split, those for validation among them." in card
    assert "No image was left to validate it.\n\nTrial 00002 trained the winner" in card
    assert "On the same test images the winner's own network has test_accuracy" in card
    assert "on the same test images the winner's own network has test_accuracy" in done.out.replace("\n", " ")
    own = tuner("show", "runs", "--json", folder=tmp_path).json["best"]["refit"]["own"]
    assert {"test_accuracy", "test_loss", "gain", "error"} <= set(own)
    check_undone_and_done_again(tmp_path, own)


def check_undone_and_done_again(folder: Path, own: dict[str, float]) -> None:
    """The winner's own network ships once the refit is undone, and the refitted one where it is wanted again."""
    again = tuner("refit", "runs", folder=folder, **ENVIRONMENT)
    assert again.code == 2
    assert "has trained again; to use its own network again" in again.err
    refitted = only_run(folder).best_metrics["test_accuracy"]
    undone = tuner("refit", "runs", "--undo", folder=folder, **ENVIRONMENT)
    assert undone.code == 0, undone.err
    run = only_run(folder)
    assert json.loads((Path(run.path) / "best" / "model.json").read_text())["trained_on"] == "train"
    assert run.best_metrics["test_accuracy"] == pytest.approx(own["test_accuracy"], abs=1e-6)
    assert refitted - run.best_metrics["test_accuracy"] == pytest.approx(own["gain"], abs=1e-6)
    assert run.summary()["best"]["refit"] is None
    assert (run.status, run.end_reason) == ("finished", "trials")
    over = tuner("refit", "runs", "--undo", folder=folder, **ENVIRONMENT)
    assert over.code == 2
    assert "that ships a refitted network" in over.err
    redone = tuner("refit", "runs", folder=folder, **ENVIRONMENT)
    assert redone.code == 0, redone.err
    check_shipped(folder, redone.out)
    assert len(only_run(folder).record.trials) == 3


def test_a_cross_validated_winner_ships_as_one_network(tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(
        (STUDY % ('"digits"', ", validation=Folds(3)", 'refit="train+validation"'))
        .replace("self.head = nn.Linear(3 * 8 * 8, 2)", "self.head = nn.Linear(8 * 8, 10)")
        .replace('"batch_size": 16', '"batch_size": 64, "image_size": 8')
    )
    finished = tuner("run", "space.py", folder=tmp_path, **ENVIRONMENT)
    assert finished.code == 0, finished.err
    run = only_run(tmp_path)
    card = json.loads((Path(run.path) / "best" / "model.json").read_text())
    assert (card["networks"], card["trained_on"]) == (1, "train+validation")
    assert run.images["validation"] == 0
    refit = shipped_refit(run.record)
    assert refit is not None
    assert refit.epoch == run.best_epoch
