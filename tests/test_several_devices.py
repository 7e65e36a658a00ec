"""Trials that several processes train, in real searches on the CPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, environment, start, study_file, tuner
from tests.nodes import NEEDS_PLAIN_PATH
from tests.searches import wait_for
from tuner import Budget, ImageClassifier, Resources, Study, StudyError, choice, load_run, loguniform
from tuner.driver.pipelines import check_splits
from tuner.machine.hardware import Machine

STUDY = """
import torch
from torch import nn

def data():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    images = torch.randint(0, 60, (600, 1, 12, 12), generator=generator) + 60 * labels[:, None, None, None]
    parts = [slice(0, 400), slice(400, 500), slice(500, 600)]
    return [(images[part].to(torch.uint8), labels[part]) for part in parts]

def network(config):
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 16), nn.GELU(), nn.Linear(16, 3))

study = Study(
    name="several", trial=ImageClassifier(data, network), space={"lr": loguniform(1e-3, 1e-1), "batch_size": 20},
    search=Random(), scheduler=ASHA(grace_epochs=2), budget=Budget(trials=2, max_epochs=EPOCHS),
    resources=Resources(cpus=2, strategy="ddp"), warm_start=None,
)
"""


UNPAUSED = STUDY.replace("ASHA(grace_epochs=2)", "NoEarlyStopping()")


def rank_processes(folder: Path) -> list[int]:
    """The processes of trials of searches in a folder."""
    found = subprocess.run(["pgrep", "-f", "tuner.train.parallel.rank"], capture_output=True, text=True, check=False)
    return [pid for pid in map(int, found.stdout.split()) if str(folder) in environment_of(pid)]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def environment_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return ""


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_among_strategies_pauses_promotes_and_leaves_a_plain_winner(tmp_path: Path) -> None:
    searched = STUDY.replace("EPOCHS", "4").replace(', strategy="ddp"', "")
    study_file(tmp_path, searched.replace('"batch_size": 20', '"strategy": choice(["ddp", "pipeline"])'))
    finished = tuner("run", "space.py", "--json", folder=tmp_path, MARK=str(tmp_path))
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "runs")
    assert run.best_metrics["test_accuracy"] > 0.9
    assert "trial_paused" in {event["event"] for event in run.events}
    assert {trial.config["strategy"] for trial in run.record.trials.values()} == {"ddp", "pipeline"}
    assert any("splits the model into stages that begin with 1, 3" in note for note in run.record.notices)
    for trial in run.record.trials.values():
        assert sorted(trial.epochs) == list(range(1, trial.epoch + 1))
    assert rank_processes(tmp_path) == []


@pytest.mark.ray
@pytest.mark.slow
def test_a_process_that_is_killed_or_an_interruption_costs_a_trial_the_epochs_since_its_last_checkpoint(
    tmp_path: Path,
) -> None:
    study_file(tmp_path, UNPAUSED.replace("EPOCHS", "150"))
    search = start("run", "space.py", "--trials", "1", folder=tmp_path, MARK=str(tmp_path))
    while not list(tmp_path.glob("runs/several/*/events/*.jsonl")) or not load_run(tmp_path / "runs").record.epochs():
        assert search.poll() is None
        time.sleep(0.2)
    os.kill(rank_processes(tmp_path)[1], signal.SIGKILL)
    while not load_run(tmp_path / "runs").record.trials["00000"].losses:
        assert search.poll() is None
        time.sleep(0.2)
    search.send_signal(signal.SIGINT)
    search.communicate(timeout=300)
    assert search.returncode == 130
    time.sleep(1)
    assert rank_processes(tmp_path) == []

    assert tuner("resume", "runs", folder=tmp_path, MARK=str(tmp_path)).code == 0
    run = load_run(tmp_path / "runs")
    assert [trial.status for trial in run.record.trials.values()] == ["completed"]
    assert sorted(run.record.trials["00000"].epochs) == list(range(1, 151))
    (lost,) = run.record.trials["00000"].attempts.failed
    assert (lost.kind, lost.message) == ("lost", "process 1 of 2 was killed by signal 9")
    assert [event["from_epoch"] for event in run.events if event["event"] == "trial_started"][1] >= 1


ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # there Ray keeps to it, to be spared the firewall's questions


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster of two nodes with a CPU each."""
    command = [sys.executable, "-m", "tests.two_nodes"]
    settings = environment(MARK=str(tmp_path), **ON_LOOPBACK)
    nodes = subprocess.Popen(command, cwd=ROOT, env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert nodes.stdin is not None
    assert nodes.stdout is not None
    yield nodes.stdout.readline().strip()
    nodes.stdin.close()
    nodes.wait(timeout=300)


@pytest.mark.ray
@pytest.mark.slow
@NEEDS_PLAIN_PATH
def test_a_trial_may_be_spread_over_the_nodes_of_a_cluster(tmp_path: Path, two_nodes: str) -> None:
    spread = UNPAUSED.replace("EPOCHS", "1000").replace('"ddp"', '"ddp", placement="spread"')
    study_file(tmp_path, spread.replace("    return nn", "    print('a network')\n    return nn"))
    search = start("run", "space.py", "--trials", "1", "--address", two_nodes, folder=tmp_path, **ON_LOOPBACK)
    while not list(tmp_path.glob("runs/several/*/events/*.jsonl")) or not load_run(tmp_path / "runs").record.epochs():
        assert search.poll() is None, search.communicate()[1]
        time.sleep(0.2)
    started = rank_processes(tmp_path)
    assert len({parent_of(parent_of(pid)) for pid in started}) == 2  # the workers' raylets
    printed = [f"epoch 1 rank {rank} | a network" for rank in (0, 1)]
    wait_for(lambda: all(line in load_run(tmp_path / "runs").log("00000") for line in printed))
    os.kill(started[-1], signal.SIGKILL)
    while not load_run(tmp_path / "runs").record.trials["00000"].losses:
        assert search.poll() is None, search.communicate()[1]
        time.sleep(0.2)
    search.send_signal(signal.SIGINT)
    search.communicate(timeout=300)
    assert search.returncode == 130
    time.sleep(1)
    assert rank_processes(tmp_path) == []


# What is refused before anything starts


def study(space: dict[str, Any] | None = None, **resources: Any) -> Study:
    return Study(
        "several",
        trial=ImageClassifier("digits", weights=None),
        space=space or {"lr": loguniform(1e-3, 1e-1)},
        budget=Budget(trials=1),
        resources=Resources(**resources),
    )


HERE = Machine(cpus=8, gpus=0, memory_bytes=2**34, processor="a CPU")


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(
        StudyError,
        match=r"Resources.strategy needs one of 'ddp', 'pipeline', 'dp', 'balanced_dp', or None for one device, got 'dpp'",
    ):
        Resources(strategy="dpp")


@pytest.mark.parametrize("cpus", [None, 1, 2.5])
def test_one_device_or_a_part_of_one_is_refused(cpus: float | None) -> None:
    with pytest.raises(StudyError, match=r"needs at least two whole devices, got .* use Resources\(cpus=2"):
        study(cpus=cpus, strategy="ddp").check_machine(HERE)


def test_more_devices_than_there_are_are_refused() -> None:
    with pytest.raises(StudyError, match=r"at most the CPUs that this machine has \(8\)"):
        study(cpus=9, strategy="ddp").check_machine(HERE)


@pytest.mark.parametrize("sizes", [choice([8, 4, 64]), 4])
def test_a_batch_that_is_too_small_to_share_out_is_refused(sizes: Any) -> None:
    with pytest.raises(StudyError, match=r"each of the 4 devices, got a batch_size of 4; raise it to 8"):
        study({"batch_size": sizes}, cpus=4, strategy="ddp").check_machine(HERE)
    study({"batch_size": 8}, cpus=4, strategy="ddp").check_machine(HERE)


def test_a_function_of_the_users_own_is_refused() -> None:
    def train(config: dict[str, Any]) -> None:
        return

    given = Study("f", trial=train, space={"x": loguniform(1, 2)}, resources=Resources(cpus=2, strategy="ddp"))
    with pytest.raises(StudyError, match="needs an ImageClassifier, got the function 'train'"):
        given.check_machine(HERE)


def test_the_command_line_names_the_strategy(tmp_path: Path) -> None:
    study_file(tmp_path, STUDY.replace("EPOCHS", "3").replace(', strategy="ddp"', ""))
    finished = tuner("check", "space.py", "--strategy", "ddp", "--cpus-per-trial", "1", folder=tmp_path)
    assert finished.code == 2
    assert "needs at least two whole devices" in finished.err


@pytest.mark.parametrize("name", ["dp", "balanced_dp"])
def test_one_process_for_several_cpus_is_refused(name: str) -> None:
    with pytest.raises(StudyError, match=rf"strategy='{name}' needs two GPUs or more, .* got none; use strategy='ddp'"):
        study(cpus=2, strategy=name).check_machine(HERE)
    study(gpus=2, strategy=name).check_machine(replace(HERE, gpus=2))


def test_every_strategy_of_the_space_is_checked() -> None:
    with pytest.raises(StudyError, match="strategy='dp' needs two GPUs"):
        study({"strategy": choice(["ddp", "dp"])}, cpus=2).check_machine(HERE)
    with pytest.raises(StudyError, match="strategy='pipeline' needs at least two"):
        study({"strategy": "pipeline"}).check_machine(HERE)
    study({"strategy": choice(["ddp", "pipeline"])}, cpus=2).check_machine(HERE)
    study({"strategy": "pipeline", "batch_size": 2}, cpus=4).check_machine(HERE)  # a batch isn't shared out


def test_the_command_lines_strategy_goes_before_the_spaces() -> None:
    searched = study({"strategy": choice(["ddp", "pipeline"])}, cpus=2)
    assert searched.strategies == ("ddp", "pipeline")
    assert searched.with_options(strategy="pipeline").strategies == ("pipeline",)
    assert study(cpus=2).with_options(strategy="ddp").strategies == ("ddp",)


def test_a_model_that_cannot_be_split_is_refused_before_anything_starts(tmp_path: Path) -> None:
    one_block = STUDY.replace("nn.Linear(144, 16), nn.GELU(), nn.Linear(16, 3)", "nn.Linear(144, 3)")
    study_file(tmp_path, one_block.replace("EPOCHS", "3"))
    finished = tuner("run", "space.py", "--strategy", "pipeline", folder=tmp_path)
    assert finished.code == 2
    assert "got network() with one block that can't be taken apart; write it as nn.Sequential of blocks" in finished.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("space", "cpus", "problem"),
    [
        ({"pipeline_split": "layer9.0"}, 2, "pipeline_split needs a block for each of the 1 stages"),
        ({"pipeline_split": choice(["layer2.0", "layer9.0"])}, 2, "got 'layer9.0'"),
        ({"pipeline_split": "layer2.0"}, 3, "pipeline_split needs a block for each of the 2 stages"),
        ({}, 20, "a block for each device, got 20 devices and 11 blocks"),
    ],
)
def test_a_split_that_cannot_be_made_is_refused(space: dict[str, Any], cpus: int, problem: str) -> None:
    with pytest.raises(StudyError, match=problem):
        check_splits(study({"lr": loguniform(1e-3, 1e-1), **space}, cpus=cpus, strategy="pipeline"))
