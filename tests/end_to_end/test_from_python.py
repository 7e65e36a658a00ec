"""Searches in the background of a script, and a replay of what the command searched."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, environment, study_file, tuner
from tests.lifecycle.receiver import receiving
from tests.replay.test_replaying import plain
from tests.searches import wait_for
from tuner import load_run

pytestmark = pytest.mark.ray

PROGRAM = """
import sys, time
import tuner

def train(config):
    for epoch in range(1, 1000):
        time.sleep(0.02)
        tuner.report(loss=config["x"] / epoch)

study = tuner.Study(
    "script", trial=train, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min",
    scheduler=tuner.NoEarlyStopping(), search=tuner.Random(), budget=tuner.Budget(trials=2, max_epochs=1000),
    constraint=lambda config: config["x"] < 0.9,
)
with tuner.start(study, storage="out") as search:
    try:
        search.wait(0.1)
    except TimeoutError as error:
        print(error)
    while search.run.record.epochs() < 5:
        time.sleep(0.1)
    print(search)
    sys.stdout.flush()
    END
"""


def script(folder: Path, end: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM.replace("END", end)]
    variables = environment(PYTHONPATH=str(ROOT))
    return subprocess.Popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_search_in_the_background_is_seen_takes_orders_and_ends_in_order_where_its_block_raises(
    tmp_path: Path,
) -> None:
    orders = """
    print(search.set(trials=3).message)
    print(search.note("mine", trial=0, wait=False).outcome)
    print(search.try_({"x": 0.5}).message)
    try:
        search.retry()
    except tuner.TunerError as error:
        print(error)
    print(search.stop(0).outcome)
    raise ValueError('mine')"""
    out, err = script(tmp_path, orders.strip()).communicate(timeout=300)
    lines = out.splitlines()
    assert re.fullmatch(r"the search is still running after 0\.1 s: .*/out/script/.*", lines[0]), err
    assert re.fullmatch(r"<BackgroundSearch running: <Run script: running, [12] trials?, best loss .*>>", lines[1])
    assert lines[2:] == [
        "trials is 3 now, was 2",
        "sent",
        "the next free worker tries {'x': 0.5}",
        "failed trials can run again, got a run without any; there is nothing to do",
        "obeyed",
    ], err
    assert err.splitlines()[-1] == "ValueError: mine"
    assert "ray" not in err.lower().replace("tuner", "")
    run = load_run(tmp_path / "out")
    assert (run.status, run.end_reason, run.alive) == ("interrupted", "SIGTERM", False)
    assert run.record.trials["00000"].ended_by == "stop"
    assert run.record.steered.notes_of("00000")[0].text == "mine"


@pytest.mark.slow
def test_a_search_in_the_background_is_ended_with_its_winner(tmp_path: Path) -> None:
    out, err = script(tmp_path, "print(search.stop().outcome)").communicate(timeout=300)
    assert out.splitlines()[2:] == ["obeyed"], err
    run = load_run(tmp_path / "out")
    assert (run.status, run.end_reason, run.best is not None) == ("finished", "stop", True)


@pytest.mark.slow
def test_a_search_in_the_background_ends_in_order_when_who_started_it_is_killed(tmp_path: Path) -> None:
    process = script(tmp_path, "time.sleep(1000)")
    assert process.stdout is not None
    while "BackgroundSearch" not in process.stdout.readline():
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not load_run(tmp_path / "out").alive)
    assert load_run(tmp_path / "out").info["status"] == "interrupted"


@pytest.mark.slow
def test_a_command_is_told_of_and_its_trial_replayed(tmp_path: Path) -> None:
    text = plain().removeprefix("\nimport torch")
    space = study_file(tmp_path, f"import torch\n{text}")
    with receiving() as server:
        options = ("--storage", "out", "--wandb", "off", "--notify", f"{server.url}/secret?token=secret", "--json")
        finished = tuner("run", space, *options, folder=tmp_path)
        assert finished.code == 0, finished.err
        assert server.messages[-1]["event"] == "ended"
        assert server.messages[-1]["run"] == finished.json["run"]
        assert server.messages[-1]["value"] == finished.json["best"]["value"]
    written = [file for file in Path(finished.json["run"]).rglob("*") if file.is_file()]
    assert [file.name for file in written if b"token=secret" in file.read_bytes()] == []
    replayed = tuner("replay", "out", "0", folder=tmp_path)
    assert replayed.code == 0, replayed.err
    lines = replayed.out.splitlines()
    assert lines[:2] == ["versions, study, data and hardware are as they were", "epoch  recorded  replayed  (val_loss)"]
    assert [line.split()[0::3] for line in lines[2:-1]] == [[str(epoch), "equal"] for epoch in range(1, 5)]
    assert lines[-1] == "the curve is the same in 4 epochs."
