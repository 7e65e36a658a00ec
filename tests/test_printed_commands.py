"""Every command that tuner prints in the life of a search runs as it is printed, in a folder whose name has a space."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Finished, environment, start, study_file, tuner
from tests.results.simulated import simulated
from tests.searches import wait_for
from tuner import load_run
from tuner.history.run_info import write_info
from tuner.results.findings import findings_of

STUDY = """
def train(config):
    print(config)
    if config["lr"] > 0.8:
        raise KeyError("lr")
    for epoch in range(3):
        time.sleep(0.3)
        tuner.report(loss=config["lr"] / (epoch + 1))

study = Study("cheap", trial=train, space={"lr": uniform(0, 1)}, metric="loss", mode="min", search=Random(),
    scheduler=NoEarlyStopping(), start_from=[{"lr": 0.9}], budget=Budget(trials=9, max_epochs=3),
    resources=Resources(cpus=1), warm_start=None)
"""
COMMAND = re.compile(r"(?<!`)python -m tuner [a-z_]+ .*")


def printed(finished: Finished) -> list[str]:
    """The commands in what was printed, each to the end of its line."""
    return COMMAND.findall(f"{finished.out}\n{finished.err}")


def as_printed(command: str, folder: Path) -> Finished:
    """Run by a shell whose `python` is this one."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = ["sh", "-c", command]
    done = subprocess.run(
        shell, cwd=folder, env=environment(PATH=path), capture_output=True, text=True, check=False, timeout=300
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def verbs(commands: list[str]) -> list[str]:
    return [shlex.split(command)[3] for command in commands]


@pytest.mark.ray
@pytest.mark.slow
def test_the_commands_that_a_search_prints_run_as_printed(tmp_path: Path) -> None:
    folder = tmp_path / "my own searches"
    folder.mkdir()
    study_file(folder, STUDY)
    search = start("run", "space.py", "--wandb", "off", "--storage", str(folder / "all runs"), folder=folder)
    wait_for(lambda: any("00002" in events.read_text() for events in folder.glob("all runs/cheap/*/events/*")))
    search.send_signal(signal.SIGINT)
    interrupted = Finished(0, *search.communicate(timeout=300))
    assert verbs(printed(interrupted)) == ["resume"]

    resumed = as_printed(printed(interrupted)[0], folder)
    assert resumed.code == 0, resumed.err
    run = load_run(folder / "all runs")
    shown = tuner("show", run.path, folder=folder)
    failed = tuner("show", run.path, "--trial", "0", folder=folder)
    refined = tuner("refine", run.path, "-o", "a next.py", folder=folder)
    assert refined.code == 0, refined.err
    ordered = tuner("stop", run.path, folder=folder)
    advised = [one.command for one in findings_of(run).advice if one.command]
    found = [*printed(shown), *printed(failed), *printed(refined), *printed(ordered), *advised]
    assert {"show", "run", "resume", "refine"} <= set(verbs(found))
    for command in found:
        assert as_printed(command, folder).code == 0, command


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_an_order_to_a_run_that_is_over_names_a_command_for_that_run(tmp_path: Path, verb: str) -> None:
    run = simulated(tmp_path / "my own searches" / "run 1")
    write_info(run.folder, {**run.info, "status": "finished", "study_file": "space.py"})
    (command,) = printed(tuner(verb, run.path, folder=tmp_path))
    assert run.path in shlex.split(command)


def test_the_failures_of_a_search_are_shown_by_the_command_that_it_prints(tmp_path: Path) -> None:
    run = simulated(tmp_path / "my own searches" / "run 1", curve=lambda config, epoch: float("nan"))
    search = tuner("resume", run.path, folder=tmp_path)
    commands = [*printed(search), *(one.command for one in findings_of(run).advice if one.command)]
    assert "show" in verbs(commands)
    for command in commands:
        if verbs([command]) == ["show"]:
            assert as_printed(command, tmp_path).code == 0, command
