"""32 workers of one external study, one of them the shell script of the documents, killed at random, and so the server."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.service.running import wait_for
from tests.service.submissions import furnace
from tests.service.test_external import client, made_served, search_of, server_process, submitted
from tests.service.web.serving import Served
from tuner import load_run

__all__ = ["made_served"]
WORKERS, TRIALS, EPOCHS, KILLS = 32, 120, 4, 25

WORKER = """
import sys, time
import tuner

service = tuner.connect(sys.argv[1], sys.argv[2], patience=600)  # the server may be away now
study = service.study(int(sys.argv[3]))
while (trial := study.ask(worker=sys.argv[4])) is not None:
    for epoch in trial.epochs_left:
        time.sleep(2)  # so that the study outlasts all that is killed
        if trial.report(epoch, abs(trial.config["x"] - 0.3) + 1 / epoch) != "continue":
            break
"""


def script(folder: Path) -> Path:
    """The shell script of the documents."""
    (found,) = [block for block in blocks(ROOT / "docs/how-to/service-api.md") if block.title == "worker.sh"]
    file = folder / "worker.sh"
    file.write_text(found.text)
    return file


class Workers:
    """Programs that work on a study, each with a token of its own."""

    def __init__(self, served: Served, study: int, shell: Path) -> None:
        self.study, self.shell, self.url = study, shell, served.url
        create = served.access.create_token
        self.tokens = [create(served.users["hand"], f"w{number}")[1] for number in range(WORKERS)]
        self.programs = [self.start(number) for number in range(WORKERS)]

    def start(self, number: int) -> subprocess.Popen[bytes]:
        name, token = f"w{number}", self.tokens[number]
        if number == 0:
            env = os.environ | {"TUNER_SERVER": self.url, "TUNER_TOKEN": token}
            return subprocess.Popen(["sh", self.shell, str(self.study), name], env=env, start_new_session=True)
        command = [sys.executable, "-c", WORKER, self.url, token, str(self.study), name]
        return subprocess.Popen(command, start_new_session=True)

    def kill(self, number: int) -> None:
        """Kill one, and start it again."""
        os.killpg(self.programs[number].pid, signal.SIGKILL)
        self.programs[number].wait()
        self.programs[number] = self.start(number)

    def end(self) -> None:
        for program in self.programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def test_the_shell_script_of_the_documents_runs_a_study(made_served: Served, tmp_path: Path) -> None:
    if shutil.which("jq") is None or shutil.which("curl") is None:
        pytest.skip("needs curl and jq")
    with server_process(made_served.service.folder.storage, made_served.port):
        study = submitted(made_served, tmp_path, furnace(budget={"trials": 2, "max_epochs": 2}))
        env = os.environ | {"TUNER_SERVER": made_served.url, "TUNER_TOKEN": made_served.tokens["hand"]}
        command = ["sh", str(script(tmp_path)), str(study.id), "shell"]
        ran = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=300)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        assert study.wait(300) == "finished"
        wrong = subprocess.run(
            command, check=False, env=env | {"TUNER_TOKEN": "x"}, capture_output=True, text=True, timeout=300
        )
        assert (wrong.returncode, '"status":401' in wrong.stderr) == (1, True)
    run = load_run(study.record["run"])
    assert [trial.status for trial in run.record.trials.values()] == ["completed", "completed"]
    assert {trial.worker for trial in run.record.trials.values()} == {"hand/shell"}


@pytest.mark.slow
def test_workers_the_search_and_the_server_are_killed_at_random(made_served: Served, tmp_path: Path) -> None:
    study_json = furnace(budget={"trials": TRIALS, "max_epochs": EPOCHS}, failures={"lost": 50})
    storage, drawn = made_served.service.folder.storage, random.Random(3)
    with server_process(storage, made_served.port) as server:
        study = submitted(made_served, tmp_path, study_json)
        workers = Workers(made_served, study.id, script(tmp_path))
        try:
            for _ in range(KILLS):
                time.sleep(drawn.uniform(0.1, 0.6))
                workers.kill(drawn.randrange(WORKERS))
            server.kill()
            server.wait()
            for _ in range(5):
                workers.kill(drawn.randrange(WORKERS))
            with server_process(storage, made_served.port):
                for _ in range(KILLS):
                    time.sleep(drawn.uniform(0.1, 0.6))
                    workers.kill(drawn.randrange(WORKERS))
                os.kill(search_of(made_served, study.id), signal.SIGKILL)  # it comes again after 10 s
                remote = client(made_served, "anne").study(study.id)
                assert remote.wait(600) == "finished"
                wait_for(lambda: all(program.poll() is not None for program in workers.programs))
                assert [program.returncode for program in workers.programs] == [0] * WORKERS
        finally:
            workers.end()
    check_run(str(made_served.service.study(study.id).run))


def check_run(path: str) -> None:
    """Every trial once and to its end, every epoch once for each time it was handed out, the right winner."""
    run = load_run(path)
    trials = run.record.trials
    assert (run.status, len(trials), run.damages) == ("finished", TRIALS, [])
    assert {trial.status for trial in trials.values()} == {"completed"}
    assert all(sorted(trial.epochs) == list(range(1, EPOCHS + 1)) for trial in trials.values())
    reported: dict[tuple[str, int], list[int]] = defaultdict(list)
    times: dict[str, int] = defaultdict(int)
    for event in run.events:
        if event["event"] == "trial_started":
            times[event["trial"]] += 1
        elif event["event"] == "epoch_reported":
            reported[event["trial"], times[event["trial"]]].append(event["epoch"])
    for epochs in reported.values():
        assert epochs == sorted(set(epochs))
    ends = [event["trial"] for event in run.events if event["event"] == "trial_ended"]
    assert len(ends) == len(set(ends)) == TRIALS
    assert run.best is not None
    best = min(trials.values(), key=lambda trial: abs(trial.config["x"] - 0.3))
    assert run.best.trial == best.trial
    assert best.metrics()["loss"] == pytest.approx(abs(best.config["x"] - 0.3) + 1 / EPOCHS, rel=1e-4)  # awk's digits
