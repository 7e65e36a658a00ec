"""Real searches whose configurations are trained under several seeds, killed at random moments, lose nothing."""

import os
import random
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.commands import start, tuner
from tests.searches import epochs_reported, wait_for
from tuner import Run, load_run
from tuner.history.records import TrialRecord

pytestmark = pytest.mark.ray
STUDY = """
import os
import random
import tempfile
import time
from pathlib import Path

import tuner
from tuner import Budget, Study, uniform


def train(config):
    kept = tuner.checkpoint()
    first = int((kept / "epoch").read_text()) if kept else 0
    luck = random.random()  # which the trial's seed decides, from whatever epoch it goes on
    for epoch in range(first + 1, 10):
        time.sleep(float(os.environ.get("EPOCH_SECONDS", 0.1)))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / epoch + 0.1 * luck, checkpoint=folder)


study = Study(
    "seeds", trial=train, space={"x": uniform(0, 1)}, metric="loss", mode="min",
    budget=Budget(trials=6, max_epochs=9), %s
)
"""
ENVIRONMENT = {"WANDB_MODE": "disabled"}


def only_run(folder: Path) -> Run:
    return load_run(folder / "runs")


def kill_after(driver: "subprocess.Popen[str]", folder: Path, epochs: int, seconds: float) -> bool:
    """Kill the driver and its group once so many more epochs are reported, and a moment later; whether it still ran."""
    before = epochs_reported(folder / "runs")
    wait_for(lambda: driver.poll() is not None or epochs_reported(folder / "runs") >= before + epochs)
    time.sleep(seconds)
    was_running = driver.poll() is None
    if was_running:
        os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    return was_running


def check_nothing_is_lost(run: Run) -> None:
    """Each trial has ended, each epoch of it is there once, and a repeat was trained in full."""
    trials = list(run.record.trials.values())
    assert not [trial.trial for trial in trials if trial.live]
    assert not run.record.confirming.waiting
    for trial in trials:
        assert sorted(trial.epochs) == list(range(1, trial.epoch + 1))
    assert {trial.status for trial in trials if trial.repeats is not None} == {"completed"}
    assert {trial.epoch for trial in trials if trial.repeats is not None} == {9}
    assert len({trial.seed for trial in trials}) == len(trials)
    ends = Counter(event["trial"] for event in run.events if event["event"] == "trial_ended")
    assert set(ends.values()) == {1}
    best = run.best
    assert isinstance(best, TrialRecord)
    assert (Path(run.path) / "best" / "checkpoint" / "epoch").read_text() == str(run.best_epoch)


@pytest.mark.slow
def test_a_confirm_that_is_killed_goes_on_by_resume(tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(STUDY % "")
    assert tuner("run", "space.py", folder=tmp_path, **ENVIRONMENT).code == 0
    before = [one.trial for one in only_run(tmp_path).record.ranked()]
    driver = start("confirm", "runs", "--top", "2", "--seeds", "2", folder=tmp_path, **ENVIRONMENT)
    assert kill_after(driver, tmp_path, 12, 0.05)
    assert only_run(tmp_path).status == "interrupted"
    resumed = tuner("resume", "runs", folder=tmp_path, **ENVIRONMENT)
    assert resumed.code == 0, resumed.err
    run = only_run(tmp_path)
    check_nothing_is_lost(run)
    assert Counter(t.repeats for t in run.record.trials.values() if t.repeats) == {t.trial: 2 for t in before[:2]}
    assert run.record.configurations == 6
    assert run.end_reason == "trials"
    assert " over 3 seeds " in resumed.out or " over 2 seeds " in resumed.out
    over = tuner("resume", "runs", folder=tmp_path, **ENVIRONMENT)
    assert over.code == 2
    assert "--trials is the total number of trials and must be above 6" in over.err


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_race_and_a_confirm_killed_again_and_again_lose_nothing(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    (tmp_path / "space.py").write_text(STUDY % "repeats=3,")
    environment = {**ENVIRONMENT, "EPOCH_SECONDS": "0.05"}
    driver = start("run", "space.py", folder=tmp_path, **environment)
    kills = 0
    for command in ("resume", "resume", "resume"):
        kills += kill_after(driver, tmp_path, draw.randrange(3, 16), draw.uniform(0, 0.3))
        driver = start(command, "runs", folder=tmp_path, **environment)
    driver.communicate()
    driver = start("confirm", "runs", "--top", "2", "--seeds", "3", folder=tmp_path, **environment)
    for _ in range(2):
        kills += kill_after(driver, tmp_path, draw.randrange(1, 18), draw.uniform(0, 0.3))
        driver = start("resume", "runs", folder=tmp_path, **environment)
    driver.communicate()
    run = only_run(tmp_path)
    assert kills >= 2
    check_nothing_is_lost(run)
    assert sum(trial.confirms for trial in run.record.trials.values()) == 6
    assert run.record.configurations == 6
    assert any(not trial.confirms for trial in run.record.trials.values() if trial.repeats)


LUCKY = """
import os
import tempfile
from pathlib import Path

import tuner
from tuner import Budget, Grid, NoEarlyStopping, Study, grid_search

MARK = Path(os.environ["MARK"])


def train(config):
    x = config["x"]
    lucky = x == 0 and not MARK.exists()
    if x == 0:
        MARK.touch()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x").write_text(str(x))
        tuner.report(loss=-1.0 if lucky else 5.0 if x == 0 else 1 / (1 + x), checkpoint=%s)


study = Study(
    "lucky", trial=train, space={"x": grid_search([0, 1, 2, 3])}, metric="loss", mode="min", search=Grid(),
    scheduler=NoEarlyStopping(), budget=Budget(max_epochs=1),
)
"""


def marked(folder: Path) -> dict[str, str]:
    return {**ENVIRONMENT, "MARK": str(folder / "was-lucky")}


def test_confirm_never_empties_best_and_crowns_nothing_that_it_did_not_confirm(tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(LUCKY % "folder")
    assert tuner("run", "space.py", "--concurrency", "1", folder=tmp_path, **marked(tmp_path)).code == 0
    confirmed = tuner("confirm", "runs", "--top", "1", "--seeds", "2", folder=tmp_path, **marked(tmp_path))
    assert confirmed.code == 0, confirmed.err
    run = only_run(tmp_path)
    assert run.best is not None
    assert (run.best.config["x"], len(run.record.seeds_of(run.best))) == (0, 3)
    assert (Path(run.path) / "best/checkpoint/x").read_text() == "0"
    told = re.search(r"trial (\d+), like 2 more, has a better loss, 0.25, but under fewer seeds", confirmed.out)
    assert told is not None
    assert run.record.trials[told[1]].config["x"] == 3
    command = shlex.split(confirmed.out.split("before it is confirmed: ")[1].splitlines()[0])
    again = tuner(*command[3:], folder=tmp_path, **marked(tmp_path))
    assert again.code == 0, again.err
    run = only_run(tmp_path)
    assert run.best is not None
    assert (run.best.config["x"], len(run.record.seeds_of(run.best))) == (3, 3)
    assert (Path(run.path) / "best/checkpoint/x").read_text() == "3"


def test_a_winner_without_a_network_leaves_best_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(LUCKY % "folder if lucky else None")
    assert tuner("run", "space.py", "--concurrency", "1", folder=tmp_path, **marked(tmp_path)).code == 0
    confirmed = tuner("confirm", "runs", "--top", "2", "--seeds", "1", folder=tmp_path, **marked(tmp_path))
    assert confirmed.code == 0, confirmed.err
    run = only_run(tmp_path)
    assert run.best is not None
    assert run.best.config["x"] == 3
    assert (Path(run.path) / "best/checkpoint/x").read_text() == "0"
    kept = "was not kept; best/ keeps the network of an earlier winner"
    assert kept in confirmed.err
    assert kept in tuner("show", "runs", folder=tmp_path).out
    again = tuner("resume", "runs", folder=tmp_path, **marked(tmp_path))
    assert again.code == 2  # it is concluded
    assert (Path(run.path) / "best/checkpoint/x").read_text() == "0"
