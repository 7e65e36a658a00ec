"""Searches whose trials share their stays on workers: heads on a frozen backbone; under Ray."""

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.commands import start, tuner
from tests.searches import wait_for
from tests.train.conftest import write_colours
from tuner import load_run
from tuner.errors import TunerError
from tuner.inspection import load_model
from tuner.results.run import RecordedRun
from tuner.train.models import random_network

pytestmark = pytest.mark.ray
SMALL = "shufflenet_v2_x0_5"
STUDY = """
from tuner import ASHA, Budget, Folds, ImageClassifier, NoEarlyStopping, Random, Study, choice, loguniform, uniform

study = Study(
    "heads",
    trial=ImageClassifier("folder:photos", {model!r}, weights="saved.pt", validation={validation}),
    space={{
        "finetune": "head", "lr": loguniform(1e-3, 1e-1), "dropout": uniform(0, 0.4), "batch_size": choice([8, 16]),
        "optimizer": choice(["adam", "sgd"]), "image_size": 24,
    }},
    search=Random(),
    scheduler={scheduler},
    budget=Budget(trials={trials}, max_epochs=9), combine={combine},
)
"""


def study(folder: Path, *, trials: int, scheduler: str, validation: str = "None", combine: str | None = None) -> None:
    write_colours(folder / "photos")
    torch.save(random_network(SMALL, channels=3, classes=7, seed=9).module.state_dict(), folder / "saved.pt")
    text = STUDY.format(model=SMALL, trials=trials, scheduler=scheduler, validation=validation, combine=repr(combine))
    (folder / "space.py").write_text(text)


def searched(folder: Path, *options: str) -> RecordedRun:
    done = tuner("run", "space.py", "--storage", "out", "--no-history", *options, folder=folder)
    assert done.code == 0, done.err
    run = load_run(folder / "out")
    assert run.info["unscored"] is None
    return run


def together(run: RecordedRun) -> Counter[int]:
    """How many trials shared each stay, counted for each of them."""
    return Counter(event.get("together", 1) for event in run.events if event["event"] == "trial_placed")


def checked(run: RecordedRun, trials: int) -> None:
    """Each trial has ended, and has each of its epochs once."""
    found = list(run.record.trials.values())
    assert len(found) == trials
    assert {trial.status for trial in found} <= {"completed", "stopped", "failed"}
    for trial in found:
        assert sorted(trial.epochs) == list(range(1, trial.epoch + 1))


def apart(folder: Path, trial: str) -> float:
    """The largest difference of any metric when the trial is trained alone, relative to its size."""
    done = tuner("replay", "out", trial, "--json", folder=folder)
    assert done.code in (0, 1), done.err
    pairs = [pair for epoch in done.json["epochs"] for pair in epoch["differing"].values()]
    return max((abs(one - other) / max(abs(one), 1e-6) for one, other in pairs), default=0.0)


def test_trials_that_share_a_stay_are_trials_like_any_other(tmp_path: Path) -> None:
    study(tmp_path, trials=40, scheduler="ASHA(grace_epochs=1, reduction_factor=3)")
    run = searched(tmp_path, "--concurrency", "1")
    assert max(together(run)) == 4
    checked(run, 40)
    trials = list(run.record.trials.values())
    assert {trial.status for trial in trials} == {"completed", "stopped"}
    assert {len(trial.epochs) for trial in trials} >= {1, 9}
    assert run.record.epochs_again() == 0
    assert run.record.running_seconds() <= run.record.wall_seconds + 1  # shared, not counted for each
    best = run.best
    assert best is not None
    assert load_model(Path(run.path) / "best") is not None
    for trial in (best.trial, trials[3].trial, trials[-1].trial):
        assert apart(tmp_path, trial) < 1e-4


def test_cross_validated_trials_share_stays_too(tmp_path: Path) -> None:
    study(tmp_path, trials=20, scheduler="NoEarlyStopping()", validation="Folds(3)")
    run = searched(tmp_path, "--concurrency", "1")
    assert max(together(run)) == 2
    checked(run, 20)
    assert all("val_accuracy_se" in trial.epochs[9].metrics for trial in run.record.trials.values())
    model = load_model(Path(run.path) / "best")
    assert (model.card.networks, len(model.card.parts)) == (3, 1)  # the layers before the heads are there once


def test_the_best_trials_are_averaged_undone_and_averaged_again(tmp_path: Path) -> None:
    study(tmp_path, trials=12, scheduler="NoEarlyStopping()", validation="Folds(3)", combine="ensemble")
    run = searched(tmp_path, "--concurrency", "1")
    best = Path(run.path) / "best"
    kept = {trial.trial for trial in run.record.trials.values() if trial.checkpoints}
    assert kept == {one.trial.trial for one in run.record.ranked()[:10]}
    told = run.scored("metrics.json")
    assert told is not None
    assert told["combined"]["metric"] == run.info["metric"]  # by which a winner is chosen without some images, too
    members = {one["trial"] for one in told["combined"]["members"]}
    assert len(members) > 1
    assert members <= kept
    photo = next((tmp_path / "photos").rglob("*.png"))
    answers = load_model(best).predict(photo)[0].confidence
    own = load_model(best / "single").predict(photo)[0].confidence
    assert answers != own
    shown = tuner("show", "out", folder=tmp_path).out
    assert "trials are averaged in best/ (" in " ".join(shown.split())
    gains = "What the combination gains in each class"
    assert gains in (Path(run.path) / "report.html").read_text()

    undone = tuner("combine", "out", "--undo", folder=tmp_path)
    assert undone.code == 0, undone.err
    assert load_model(best).predict(photo)[0].confidence == own
    assert not (best / "single").exists()
    assert gains not in (Path(run.path) / "report.html").read_text()
    refused = tuner("combine", "out", "--undo", folder=tmp_path)
    assert refused.code == 2
    assert "combine --undo needs a run whose best/ has combined trials or a scaled winner" in refused.err
    again = tuner("combine", "out", "--as", "ensemble", folder=tmp_path)
    assert again.code == 0, again.err
    assert load_model(best).predict(photo)[0].confidence == pytest.approx(answers)
    assert len(load_run(run.path).record.trials) == 12

    mixed = tuner("combine", "out", "--as", "soup", folder=tmp_path)
    assert mixed.code == 0, mixed.err
    assert "a network with the mean of their weights" in " ".join(mixed.err.split())
    told = load_run(run.path).scored("metrics.json")
    assert told is not None
    shown = " ".join(tuner("show", "out", folder=tmp_path).out.split())
    if told["combined"]["way"] == "soup":
        assert len(told["combined"]["members"]) > 1
        assert "has the mean of the weights of" in shown
        assert load_model(best).predict(photo)[0].confidence not in (answers, own)
    else:
        assert "no mean of the weights of trials with the winner's layers" in shown


OF_A_FUNCTION = """
from pathlib import Path

import torch

from tuner import Budget, ImageClassifier, NoEarlyStopping, Random, Study, loguniform


def small(config):
    only = Path({folder!r}) / "only"
    if only.exists() and abs(config["lr"] - float(only.read_text())) > 1e-12:
        raise RuntimeError("this network is broken now")
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 4, 3))


study = Study(
    "functions", trial=ImageClassifier("folder:photos", small, None), space={{"lr": loguniform(1e-3, 1e-1)}},
    search=Random(), scheduler=NoEarlyStopping(), budget=Budget(trials=4, max_epochs=2), combine="ensemble",
)
"""


@pytest.mark.slow
def test_where_others_fail_the_winner_ships_alone_and_it_is_told(tmp_path: Path) -> None:
    write_colours(tmp_path / "photos")
    (tmp_path / "space.py").write_text(OF_A_FUNCTION.format(folder=str(tmp_path)))
    run = searched(tmp_path)
    assert run.best is not None
    (tmp_path / "only").write_text(str(run.best.config["lr"]))
    again = tuner("combine", "out", "--as", "ensemble", folder=tmp_path)
    assert again.code == 0, again.err
    told = " ".join(tuner("show", "out", folder=tmp_path).out.split())
    assert "could not be averaged (" in told
    assert "this network is broken now" in told
    assert load_run(run.path).info["unscored"] is None
    assert not (Path(run.path) / "best" / "single").exists()
    assert (Path(run.path) / "best" / "model.safetensors").exists()


@pytest.mark.slow
def test_trials_whose_head_is_no_matrix_turn_out_to_be_trained_one_by_one(tmp_path: Path) -> None:
    study(tmp_path, trials=20, scheduler="NoEarlyStopping()")
    state = random_network("squeezenet1_1", channels=3, classes=7, seed=9).module.state_dict()
    torch.save(state, tmp_path / "saved.pt")
    text = (tmp_path / "space.py").read_text().replace(SMALL, "squeezenet1_1").replace("trials=20", "trials=12")
    (tmp_path / "space.py").write_text(text.replace('"image_size": 24', '"image_size": 32'))
    run = searched(tmp_path, "--concurrency", "1")
    checked(run, 12)
    assert {trial.status for trial in run.record.trials.values()} == {"completed"}


def test_a_target_that_is_reached_within_a_stay_leaves_a_winner_with_its_network(tmp_path: Path) -> None:
    study(tmp_path, trials=40, scheduler="NoEarlyStopping()")
    text = (tmp_path / "space.py").read_text().replace("max_epochs=9", "max_epochs=500, target=0.3")
    (tmp_path / "space.py").write_text(text)
    run = searched(tmp_path, "--concurrency", "1")
    assert run.record.ended == "target"
    assert max(together(run)) == 4
    assert run.best is not None
    assert run.best_epoch in run.best.checkpoints
    assert not [notice for notice in run.record.notices if "memory grows" in notice]
    assert load_model(Path(run.path) / "best") is not None


@pytest.mark.slow
def test_a_killed_worker_loses_no_epoch_and_its_trials_go_on_apart(tmp_path: Path) -> None:
    study(tmp_path, trials=40, scheduler="ASHA(grace_epochs=1, reduction_factor=3)")
    driver = start("run", "space.py", "--storage", "out", "--no-history", "--concurrency", "1", folder=tmp_path)
    os.kill(_process_of_a_stay(tmp_path), signal.SIGKILL)
    out, err = driver.communicate(timeout=300)
    assert driver.returncode == 0, out + err
    run = load_run(tmp_path / "out")
    checked(run, 40)
    lost = {event["trial"] for event in run.events if event["event"] == "trial_lost"}
    assert 1 <= len(lost) <= 4
    assert {trial.status for trial in run.record.trials.values()} == {"completed", "stopped"}


def test_a_killed_driver_loses_nothing_and_ends_no_trial_twice(tmp_path: Path) -> None:
    study(tmp_path, trials=40, scheduler="ASHA(grace_epochs=1, reduction_factor=3)")
    text = (tmp_path / "space.py").read_text().replace('"sgd"])', '"sgd", "lbfgs"]), "weight_decay": 1e-7')
    (tmp_path / "space.py").write_text(text)
    for delay in (0.0, 0.3):
        arguments = (
            ("resume", "out")
            if (tmp_path / "out").exists()
            else ("run", "space.py", "--storage", "out", "--no-history")
        )
        driver = start(*arguments, "--concurrency", "1", folder=tmp_path)
        _process_of_a_stay(tmp_path)
        time.sleep(delay)
        driver.kill()
        driver.communicate()
    done = tuner("resume", "out", "--take-over", folder=tmp_path)
    assert done.code == 0, done.err
    run = load_run(tmp_path / "out")
    checked(run, 40)
    assert {trial.status for trial in run.record.trials.values()} == {"completed", "stopped"}
    assert Counter(one["trial"] for one in run.events if one["event"] == "trial_ended") == Counter(
        list(run.record.trials)
    )
    solved = [trial for trial in run.record.trials.values() if trial.config["optimizer"] == "lbfgs"]
    assert 0 < len(solved) < 40
    assert apart(tmp_path, max(solved, key=lambda trial: trial.epoch).trial) < 1e-4


def _process_of_a_stay(folder: Path) -> int:
    """The worker of a stay that several trials share and that has begun now."""
    since, found = time.time(), list[int]()

    def begun() -> bool:
        with suppress(TunerError):
            events = load_run(folder / "out").events
            placed = [one for one in events if one["event"] == "trial_placed" and one.get("together", 1) > 1]
            found[:] = [one["pid"] for one in placed if one["time"] >= since]
        return bool(found)

    wait_for(begun)
    return found[-1]


SLOW = """
import time

import torch
from tuner import Budget, Grid, ImageClassifier, NoEarlyStopping, Study, grid_search


class Slow(torch.nn.Module):
    \"\"\"A network that takes a second for each batch.\"\"\"

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
        self.head = torch.nn.Linear(12, 3)

    def forward(self, images):
        time.sleep(1.0)
        return self.head(self.body(images))


study = Study(
    "slow",
    trial=ImageClassifier("folder:photos", lambda config: Slow()),
    space={"finetune": "head", "lr": grid_search([0.1, 0.01]), "image_size": 224},
    search=Grid(),
    scheduler=NoEarlyStopping(),
    budget=Budget(max_epochs=2),
)
"""


def test_features_that_take_long_are_told_while_they_are_computed(tmp_path: Path) -> None:
    write_colours(tmp_path / "photos")
    (tmp_path / "space.py").write_text(SLOW)
    done = tuner("run", "space.py", "--storage", "out", "--no-history", "--wandb", "off", folder=tmp_path)
    assert done.code == 0, done.err
    run = load_run(tmp_path / "out")
    told = [event for event in run.events if event["event"] == "features_computed"]
    assert {event["trial"] for event in told} == {"00000", "00001"}
    assert all(0 < event["images"] < event["total"] == 54 and event["seconds_left"] > 0 for event in told)
    assert "trial 00000 is computing features of " in done.err
    assert all(trial.epoch == 2 for trial in run.record.trials.values())
