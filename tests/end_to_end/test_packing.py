"""Searches whose trials share a device, with real workers; what there is to share is told to them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, environment
from tuner import Run, load_run
from tuner.history.events import Event

pytestmark = pytest.mark.ray

ON_THE_CPU = """
import tuner
from tuner.driver import packing
packing._available_bytes = lambda machine: 2_800_000_000  # for the estimates and two trials of 0.8 GB, not three

def network(config):
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(24 * 24, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10))

study = tuner.Study("packed", trial=tuner.ImageClassifier("digits", model=network, weights=None),
    space={"lr": tuner.loguniform(1e-4, 1e-2), "width": 100},
    search=tuner.Random(), scheduler=tuner.NoEarlyStopping(),
    budget=tuner.Budget(trials=3, max_epochs=1), resources=tuner.Resources(cpus="auto"), warm_start=None)
tuner.run(study, storage="out", wandb="off")
"""

ON_TWO_GPUS = """
import os, time
from dataclasses import replace
import tuner
from tests.fake_nvml import Card, FakeNvml
from tuner import machine, nvml, study as studies
from tuner.driver import cluster, packing
here = replace(machine.this_machine(), gpus=2, cpus=4)
cluster.this_machine = studies.this_machine = lambda: here
packing.read_gpus = lambda: nvml.read_gpus(FakeNvml(Card("GPU-0a"), Card("GPU-0b")), {})

def train(config):
    for epoch in range(2):
        time.sleep(0.5)
        tuner.report(loss=config["x"], saw=os.environ["CUDA_VISIBLE_DEVICES"], worker=os.getpid())

study = tuner.Study("placed", trial=train, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min",
    search=tuner.Random(), scheduler=tuner.NoEarlyStopping(), budget=tuner.Budget(trials=4, max_epochs=2),
    resources=tuner.Resources(gpus="auto"), warm_start=None)
tuner.run(study, storage="out", wandb="off")
"""

ON_A_MACHINE_WITH_GPUS = """
import os
from dataclasses import replace
import tuner
from tuner import machine, study as studies
from tuner.driver import cluster
here = replace(machine.this_machine(), gpus=2, cpus=4)
cluster.this_machine = studies.this_machine = lambda: here

def train(config):
    tuner.report(loss=config["x"], saw=os.environ.get("CUDA_VISIBLE_DEVICES", "all"), worker=os.getpid())

study = tuner.Study("seen", trial=train, space={{"x": tuner.uniform(0, 1)}}, metric="loss", mode="min",
    search=tuner.Random(), scheduler=tuner.NoEarlyStopping(), budget=tuner.Budget(trials=3, max_epochs=1),
    resources=tuner.Resources(gpus={gpus}), warm_start=None)
before = dict(os.environ)
tuner.run(study, storage="out", wandb="off", concurrency=1)
assert os.environ.get("CUDA_VISIBLE_DEVICES") == before.get("CUDA_VISIBLE_DEVICES")
"""


def search(program: str, folder: Path) -> Run:
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return load_run(folder / "out")


def most_at_once(events: list[Event]) -> int:
    running: set[str] = set()
    most = 0
    for event in events:
        if event["event"] == "trial_started":
            running.add(event["trial"])
        elif event["event"] == "trial_ended":
            running.discard(event["trial"])
        most = max(most, len(running))
    return most


@pytest.mark.slow
def test_trials_share_the_cpu_as_memory_and_cores_allow(tmp_path: Path) -> None:
    run = search(ON_THE_CPU, tmp_path)
    started = [event for event in run.events if event["event"] == "trial_started"]
    assert [trial.status for trial in run.record.trials.values()] == ["completed"] * 3
    assert most_at_once(run.events) == min(2, run.info["machine"]["cpus"])
    assert {event["device"] for event in started} == {"cpu"}
    weights = 4 * (24 * 24 * 100 + 100 + 100 * 10 + 10)
    assert all(4 * weights < event["predicted_bytes"] < 100 * weights for event in started)
    assert [json.loads(event["alike"])["width"] for event in started] == [100] * 3
    (device,) = run.events[0]["devices"]
    assert device["memory_bytes"] == pytest.approx(0.95 * 2.8e9 - 700 * 2**20)


@pytest.mark.slow
def test_each_trial_sees_the_gpu_that_it_was_given_and_a_worker_stays_with_its_own(tmp_path: Path) -> None:
    run = search(ON_TWO_GPUS, tmp_path)
    seen: dict[Any, set[Any]] = {}
    for event in run.events:
        if event["event"] == "trial_started":
            told = run.record.trials[event["trial"]].epochs[1].metrics
            assert told["saw"] == event["device"]
            seen.setdefault(told["worker"], set()).add(told["saw"])
    assert set.union(*seen.values()) == {"GPU-0a", "GPU-0b"}
    assert all(len(gpus) == 1 for gpus in seen.values())
    assert most_at_once(run.events) == 2  # nothing is known of a function's memory: each has a GPU to itself
    assert run.device_hours == pytest.approx(2 * run.record.wall_seconds / 3600)
    assert [notice for notice in run.record.notices if "to itself" in notice] == [
        "a trial has a NVIDIA H100 80GB HBM3 to itself until a similar one has been measured: the memory that "
        "the function 'train' needs is unknown"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "saw"), [(None, ""), (0, ""), (1, "0"), (2, "0,1")])
def test_trials_see_the_gpus_that_they_have_and_no_others(tmp_path: Path, gpus: int | None, saw: str) -> None:
    run = search(ON_A_MACHINE_WITH_GPUS.format(gpus=gpus), tmp_path)
    told = [trial.epochs[1].metrics for trial in run.record.trials.values()]
    assert [one["saw"] for one in told] == [saw] * 3
    assert len({one["worker"] for one in told}) == 1
