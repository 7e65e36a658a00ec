"""Training functions that don't end when they are told to, report elsewhere, or raise what others don't."""

from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tests.searches import study
from tuner import load_run

pytestmark = pytest.mark.ray

UNRULY = """
import multiprocessing
import os
import threading

def train(config):
    KINDS[round(config["x"] * 10)](config)

def careless(config):
    for i in range(30):
        try:
            time.sleep(0.1)
            tuner.report(loss=config["x"], pid=os.getpid())
        except:
            print("ignored")

def patient(config):
    try:
        for i in range(30):
            tuner.report(loss=config["x"], pid=os.getpid())
    except SystemExit:
        print("cleaned up")

def threaded(config):
    def work():
        while True:
            time.sleep(0.1)
            tuner.report(loss=config["x"], pid=os.getpid())

    threading.Thread(target=work).start()
    while True:
        time.sleep(0.01)

def interrupted(config):
    tuner.report(loss=config["x"], pid=os.getpid())
    raise KeyboardInterrupt

def truthful(config):
    tuner.report(loss=True)

def forking(config):
    child = multiprocessing.get_context("fork").Process(target=tuner.report, kwargs={"loss": 0.0})
    child.start()
    child.join()
    tuner.report(loss=config["x"], pid=os.getpid())

KINDS = patient, threaded, interrupted, truthful, forking, careless, careless, patient
"""
SETTINGS = """search=Random(), start_from=[{"x": x / 10} for x in range(8)],
    scheduler=NoEarlyStopping(), failures=Failures(lost=0)"""


@pytest.mark.slow
def test_unruly_trials_harm_no_others_and_are_told_of_in_tuners_words(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(UNRULY, SETTINGS, trials=8))
    finished = tuner("run", space, "--storage", "out", "--concurrency", "1", "--wandb", "off", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    trials = list(run.record.trials.values())
    assert [(trial.status, trial.epoch, trial.losses) for trial in trials] == [
        ("completed", 9, 0),
        ("completed", 9, 0),
        ("failed", 1, 0),
        ("failed", 1, 0),
        ("completed", 1, 0),
        ("completed", 9, 0),
        ("completed", 9, 0),
        ("completed", 9, 0),
    ]
    assert [trial.message for trial in trials if trial.status == "failed"] == [
        "KeyboardInterrupt",
        "the study's metric needs a number, got loss=True; report a float",
    ]
    workers = [trial.epochs[1].metrics.get("pid") for trial in trials]
    first, retried, fresh, second, third = (workers[at] for at in (0, 2, 4, 6, 7))
    assert workers == [first, first, retried, None, fresh, fresh, second, third]
    assert len({first, retried, fresh, second, third}) == 5
    replaced = [notice for notice in run.record.notices if "went on" in notice]
    assert replaced == [
        f"the code of trial 0000{number} went on after the trial was ended, so its worker was replaced; "
        "it catches SystemExit: write `except Exception:` in place of `except:`"
        for number in (5, 6)
    ]
    assert max(trial.running_seconds for trial in trials) < 60
    for jargon in ("reset_config", "re-use actor", "actor_id", "\x1b["):
        assert jargon not in finished.err
    logs = {path.stem: path.read_text() for path in Path(run.path).glob("logs/*.log")}
    assert "cleaned up" in logs["00000"]
    assert "RuntimeError: tuner.report works in the trial's own process" in logs["00004"]
    assert logs["00005"].count("ignored") == 1
