"""docker/slurm/search.sh, run for real on this machine: what Slurm itself does is done by two small programs."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, environment, study_file
from tests.nodes import NEEDS_PLAIN_PATH
from tests.searches import RESUMABLE, epochs_reported, processes_of, study, wait_for
from tests.test_several_devices import ON_LOOPBACK
from tuner import load_run

SCRIPT = ROOT / "docker" / "slurm" / "search.sh"
PROGRAMS = {
    # starts the command once for each task, and hands SIGTERM on to them, as Slurm's does; further nodes have addresses
    # of their own, and join, which Ray doesn't do where it keeps to loopback by itself; one after the other, as they
    # share this machine's CPUs, and Ray gives each half a minute
    "srun": """
count=1 tasks=() over=0
while [[ $1 == -* ]]; do
    case $1 in --ntasks=*) count=${1#*=} ;; esac
    shift
done
trap 'over=1; kill -TERM "${tasks[@]}"' TERM
[[ $* == *--address=* ]] && export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1
for ((task = 0; task < count && ! over; task++)); do
    if [[ $* == *--address=* ]]; then
        said=$(mktemp)
        "$@" "--node-ip-address=127.0.0.$((task + 6))" > "$said" 2>&1 & tasks+=("$!")
        until grep -q 'Ray runtime started' "$said" || ! kill -0 "$!" 2> /dev/null; do sleep 0.2; done
        ((over)) || kill -0 "$!" 2> /dev/null || cat "$said" >&2
    else
        "$@" & tasks+=("$!")
    fi
done
wait; wait
""",
    "scontrol": 'echo "$@" >> requeued\n',
    # an address of loopback that `ray start` doesn't take for "this machine", to put another one in its place
    "hostname": "[[ ${1:-} == --*ip-address* ]] && echo 127.0.0.5 || echo node1\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a study, whose name has a space, and beside it what stands in for Slurm."""
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/usr/bin/env bash\n{text}")
        program.chmod(0o755)
    (tmp_path / "my studies").mkdir()
    settings = "search=Random(), scheduler=NoEarlyStopping(), resources=Resources(cpus=1)"
    study_file(tmp_path / "my studies", study(RESUMABLE, settings, trials=4))
    return tmp_path / "my studies"


Job = subprocess.Popen[str]


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """The jobs that a test starts; what is left of them is killed."""
    started: list[Job] = []
    yield started
    for job in started:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()


def start(folder: Path, jobs: list[Job], nodes: int, **more: str) -> Job:
    variables = {
        "PATH": f"{folder.parent / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_CPUS_PER_TASK": "1",
        **ON_LOOPBACK,
        **more,
    }
    command = ["bash", str(SCRIPT), "space.py", "--wandb", "off"]
    log = (folder / "log").open("a")  # as `--open-mode=append` does
    jobs.append(
        subprocess.Popen(
            command, cwd=folder, env=environment(**variables), stdout=log, stderr=log, text=True, start_new_session=True
        )
    )
    return jobs[-1]


@pytest.mark.ray
@pytest.mark.slow
@NEEDS_PLAIN_PATH
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_job_is_saved_before_its_limit_and_goes_on_when_it_is_put_into_the_queue_again(
    folder: Path, jobs: list[Job], nodes: int
) -> None:
    runs = folder / "runs" / f"slurm-{os.getpid()}"
    first = start(folder, jobs, nodes)
    wait_for(lambda: epochs_reported(folder / "runs") >= 6 * nodes or first.poll() is not None)
    assert first.poll() is None, (folder / "log").read_text()
    running = [trial for trial in load_run(runs).record.trials.values() if trial.status == "running"]
    assert len(running) == nodes  # each has one CPU
    sent = time.monotonic()
    first.send_signal(signal.SIGUSR1)
    assert first.wait(180) == 130, (folder / "log").read_text()
    assert time.monotonic() - sent < 180  # what `--signal` gives it
    assert (folder / "requeued").read_text() == f"requeue {os.getpid()}\n"
    run = load_run(runs)
    assert (run.info["status"], run.info["end_reason"]) == ("interrupted", "SIGTERM")
    assert processes_of({first.pid}) == []
    before = {(trial.trial, epoch) for trial in run.record.trials.values() for epoch in trial.epochs}

    again = start(folder, jobs, nodes, EPOCH_SECONDS="0")
    assert again.wait(300) == 0, (folder / "log").read_text()
    after = load_run(runs)
    assert (after.path, after.info["status"], after.info["sessions"]) == (run.path, "finished", 2)
    trials = after.record.trials.values()
    assert all(trial.status == "completed" and sorted(trial.epochs) == list(range(1, 10)) for trial in trials)
    assert before <= {(trial.trial, epoch) for trial in trials for epoch in trial.epochs}
    assert (folder / "requeued").read_text().count("\n") == 1
    assert not Path(f"/tmp/ray-{os.getpid()}").exists()


@pytest.mark.ray
@pytest.mark.slow
@NEEDS_PLAIN_PATH
def test_a_job_that_is_cancelled_is_saved_and_not_put_into_the_queue(folder: Path, jobs: list[Job]) -> None:
    job = start(folder, jobs, nodes=1)
    wait_for(lambda: epochs_reported(folder / "runs") >= 3 or job.poll() is not None)
    job.terminate()
    assert job.wait(180) == 130, (folder / "log").read_text()
    assert load_run(folder / "runs").info["status"] == "interrupted"
    assert not (folder / "requeued").exists()


@pytest.mark.ray
@pytest.mark.slow
def test_a_job_whose_ray_does_not_start_ends_with_a_sentence(folder: Path, jobs: list[Job]) -> None:
    job = start(folder, jobs, nodes=1, SLURM_CPUS_PER_TASK="many")
    assert job.wait(120) == 1
    assert "a node's `ray start` ended before 1 nodes had joined" in (folder / "log").read_text()
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("own", "others", "variable", "taken"),
    [
        ("127.0.1.1", "fd00::1 10.1.2.3 10.9.9.9", "", "10.1.2.3"),  # Debian's /etc/hosts
        ("10.4.5.6", "10.1.2.3", "", "10.4.5.6"),
        ("10.4.5.6", "10.1.2.3", "10.7.7.7", "10.7.7.7"),
        ("127.0.0.1", "127.0.0.1 fd00::1", "", "127.0.0.1"),
    ],
)
def test_workers_are_told_an_address_that_they_can_reach(
    folder: Path, jobs: list[Job], own: str, others: str, variable: str, taken: str
) -> None:
    programs = {
        "hostname": f'case ${{1:-}} in --ip*) echo "{own}" ;; --all*) echo "{others}" ;; *) echo node1 ;; esac',
        "srun": 'echo "$@" >> steps',
        "python": "exit 1",
    }
    for name, text in programs.items():
        (folder.parent / "bin" / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder.parent / "bin" / name).chmod(0o755)
    job = start(folder, jobs, nodes=2, TUNER_ADDRESS=variable)
    assert job.wait(60) == 1
    assert f"--head --node-ip-address={taken} " in (folder / "steps").read_text()


def test_the_time_to_save_fits_between_the_signal_and_the_limit() -> None:
    text = SCRIPT.read_text()
    (signalled,) = re.findall(r"^#SBATCH --signal=B:USR1@(\d+)$", text, re.MULTILINE)
    (grace,) = re.findall(r"^grace=(\d+)", text, re.MULTILINE)
    assert int(grace) + 30 <= int(signalled)
