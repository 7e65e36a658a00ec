"""Whole external studies: real server, real search process, killed and paused under workers that go on."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tuner
from tests.commands import run_main
from tests.service.running import end_drivers, wait_for
from tests.service.submissions import furnace
from tests.service.web.serving import Served, made, serving
from tuner import Budget, External, NoEarlyStopping, Random, Study, load_run, uniform
from tuner.service import outcomes
from tuner.service.client import Client, RemoteStudy
from tuner.service.model import State
from tuner.service.remote_trial import RemoteTrial
from tuner.service.web import workers

LONG = furnace(budget={"trials": 1000, "max_epochs": 3})


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that starts and follows what is submitted, and tells workers to come again soon."""
    monkeypatch.setattr(workers, "LATER_SECONDS", 0.5)
    with serving(tmp_path / "a storage") as found:
        found.service.start()
        yield found


def client(served: Served, user: str) -> Client:
    return tuner.connect(served.url, served.tokens[user])


def submitted(served: Served, folder: Path, study: dict[str, object]) -> RemoteStudy:
    file = folder / "furnace.json"
    file.write_text(json.dumps(study))
    found = client(served, "anne").submit(file)
    wait_for(lambda: found.refresh().state == State.RUNNING, every=0.2)
    return found


def loss(trial: RemoteTrial, epoch: int) -> float:
    return float(abs(trial.config["x"] - 0.3) + 1 / epoch)


def train(trial: RemoteTrial, epochs: int | None = None) -> str:
    answer = "continue"
    for epoch in list(trial.epochs_left)[:epochs]:
        answer = trial.report(epoch, loss(trial, epoch))
        if answer != "continue":
            break
    return answer


def search_of(served: Served, study: int) -> int:
    """The number of the study's newest process."""
    folder = served.service.folder.attempt(study, served.service.study(study).attempt)
    return int(json.loads((folder / "process.json").read_text())["pid"])


def test_an_external_study_runs_without_devices_to_its_end(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = Study(
        "furnace",
        trial=External("furnace"),
        space={"x": uniform(0, 1)},
        metric="loss",
        mode="min",
        search=Random(),
        scheduler=NoEarlyStopping(),
        budget=Budget(trials=3, max_epochs=3),
    )
    busy = client(served, "anne").submit(declared, options={"trials": 4})
    worker = client(served, "hand").study(busy.id)
    values = {}
    while (trial := worker.ask(worker="w1")) is not None:  # from the moment of its submission on
        assert train(trial) == "stop"
        values[trial.id] = loss(trial, 3)
    assert busy.wait(300) == "finished"
    assert (busy.record["external"], busy.record["demand"]["kind"], busy.record["devices"]) == (True, "external", [])
    run = load_run(busy.record["run"])
    assert run.best is not None
    assert run.best.trial == min(values, key=lambda name: values[name])
    assert len(values) == 4
    assert all(use.study is None for use in served.service.devices())
    assert served.service.usage(0.0) == []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TUNER_SERVER", served.url)
    monkeypatch.setenv("TUNER_TOKEN", served.tokens["anne"])
    code, out, _ = run_main(capsys, "show", f"@{busy.id}")
    assert (code, run.best.trial in out) == (0, True)
    code, out, _ = run_main(capsys, "logs", f"@{busy.id}")
    assert (code, out.splitlines()[-1]) == (0, "the search is finished")
    code, out, err = run_main(capsys, "logs", f"@{busy.id}", "--trial", "0")
    assert (code, out, err.count("\n")) == (0, "", 1)
    assert "trial 0 runs outside the service, where its worker has the output" in err
    file = tmp_path / "furnace.json"
    file.write_text(tuner.study_to_json(declared))
    code, out, _ = run_main(capsys, "submit", file, "--trials", "9", "--json", "--no-wait")
    assert (code, json.loads(out)["options"], json.loads(out)["name"]) == (0, {"trials": 9}, "furnace")
    file.write_text("{")
    code, _, err = run_main(capsys, "submit", file)
    assert (code, err.count("\n"), "a study in JSON is a file that can be read" in err) == (2, 1, True)


def test_a_paused_study_keeps_its_workers_which_go_on_after_it(served: Served, tmp_path: Path) -> None:
    study = submitted(served, tmp_path, LONG)
    hand = client(served, "hand").study(study.id)
    trial = hand.ask("w1")
    assert trial is not None
    assert trial.report(1, 0.5) == "continue"
    study.pause()
    wait_for(lambda: study.refresh().state == State.PAUSED, every=0.2)
    assert study.record["reason"] == "paused by anne"
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(trial.report(2, 0.4)))
    waiting.start()  # which is sent again until the study runs
    study.change(concurrency=1)
    study.resume()
    wait_for(lambda: study.refresh().state == State.RUNNING, every=0.2)
    waiting.join(300)
    assert answers == ["continue"]
    assert hand.request("POST", ":ask", {"worker": "w2"})["outcome"] == "wait"  # one trial at once, now
    study.change(concurrency=2)
    wait_for(lambda: hand.request("POST", ":ask", {"worker": "w2"})["outcome"] == "trial")
    assert trial.report(3, 0.3) == "stop"
    run = load_run(study.record["run"])
    reports = [(e["trial"], e["epoch"]) for e in run.events if e["event"] == "epoch_reported"]
    assert reports == [("00000", 1), ("00000", 2), ("00000", 3)]
    assert run.record.trials["00000"].losses == 0


def test_a_trial_that_was_paused_comes_again_with_its_checkpoint(served: Served, tmp_path: Path) -> None:
    """Which another worker reads where the first one has left it."""
    scheduler = {"type": "ASHA", "grace_epochs": 1, "reduction_factor": 2, "rule": "promote"}
    study = submitted(served, tmp_path, furnace(scheduler=scheduler, budget={"trials": 4, "max_epochs": 4}))
    hands, answers, kept = [client(served, user).study(study.id) for user in ("hand", "anne")], set(), tmp_path / "kept"
    kept.mkdir()
    turn, from_epochs = 0, set()
    while (trial := hands[turn % 2].ask("w1")) is not None:
        turn += 1
        from_epochs.add(trial.from_epoch)
        if trial.from_epoch:
            assert trial.checkpoint is not None
            assert Path(trial.checkpoint).read_text() == f"{trial.id} {trial.from_epoch}"
        for epoch in trial.epochs_left:
            file = kept / f"{trial.id}-{epoch}"
            file.write_text(f"{trial.id} {epoch}")
            answers.add(answer := trial.report(epoch, loss(trial, epoch), checkpoint=file))
            if answer != "continue":
                break
    assert study.wait(300) == "finished"
    assert (answers, from_epochs) == ({"continue", "pause", "stop"}, {0, 1, 2})
    run = load_run(study.record["run"])
    reports = [(e["trial"], e["epoch"]) for e in run.events if e["event"] == "epoch_reported"]
    assert len(reports) == len(set(reports))


@pytest.mark.slow
def test_an_external_study_is_finished_extended_and_cancelled(served: Served, tmp_path: Path) -> None:
    study = submitted(served, tmp_path, LONG)
    hand = client(served, "hand").study(study.id)
    trial = hand.ask("w1")
    assert trial is not None
    assert train(trial) == "stop"
    study.request("POST", "/notes", {"text": "hot today"})
    study.finish()
    assert study.wait(300) == "finished"
    assert hand.ask("w1") is None
    run = load_run(study.record["run"])
    assert [e["arguments"]["text"] for e in run.events if e.get("verb") == "note"] == ["hot today"]
    assert run.best is not None
    assert run.best.trial == "00000"
    study.change(trials=1001)  # a finished one goes on
    again = hand.ask("w1")
    assert again is not None
    study.cancel()
    assert again.report(again.from_epoch + 1, 1.0) == "stop"
    wait_for(lambda: served.service.study(study.id).devices == ())


def test_a_killed_search_loses_nothing_and_goes_on_with_its_workers(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "WAITS", (0.5, 60.0, 300.0))
    study = submitted(served, tmp_path, LONG)
    hand = client(served, "hand").study(study.id)
    first, second = hand.ask("w1"), hand.ask("w2")
    assert first is not None
    assert second is not None
    assert first.report(1, 0.5) == "continue"
    os.kill(search_of(served, study.id), signal.SIGKILL)
    assert first.report(2, 0.4) == "continue"  # sent again until the next process takes it
    assert second.heartbeat() == "continue"
    assert first.report(3, 0.3) == "stop"
    wait_for(lambda: served.service.study(study.id).deaths == 0)  # it has come on since
    found = served.service.study(study.id)
    assert (found.attempt, found.state) == (2, State.RUNNING)
    run = load_run(str(found.run))
    reports = [(e["trial"], e["epoch"]) for e in run.events if e["event"] == "epoch_reported"]
    assert reports == [("00000", 1), ("00000", 2), ("00000", 3)]
    assert sum(trial.losses for trial in run.record.trials.values()) == 0
    assert run.damages == []


def test_slots_are_given_in_the_queues_order(tmp_path: Path) -> None:
    from tests.service.running import running, wait_until
    from tests.service.submissions import ANNE, external
    from tuner.service.model import Limits

    with running(tmp_path, limits=Limits(external_at_once=1)) as service:
        first = service.submit(external(LONG), ANNE).id
        wait_until(service, first, State.RUNNING)
        second = service.submit(external(LONG), ANNE).id
        wait_until(service, second, State.QUEUED)
        (place,) = service.queue()
        assert (place.study, place.reason) == (second, "first in line: it needs 1 external slot, and none is free")
        service.cancel(first, ANNE)
        wait_until(service, second, State.RUNNING)


@contextmanager
def server_process(storage: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """`tuner serve` as a process, which is killed at the end."""
    command = [sys.executable, "-m", "tuner", "serve", "--storage", str(storage), "--cpus", "1", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "serves" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def made_served(tmp_path: Path) -> Iterator[Served]:
    """A storage folder with users, and the address at which a test serves it."""
    found = made(tmp_path / "a storage")
    found.port = free_port()
    found.url = f"http://127.0.0.1:{found.port}"
    yield found
    found.service.close()
    end_drivers(tmp_path / "a storage")


def test_a_search_outlives_a_killed_server_and_is_adopted_by_the_next(made_served: Served, tmp_path: Path) -> None:
    storage = made_served.service.folder.storage
    with server_process(storage, made_served.port) as server:
        study = submitted(made_served, tmp_path, LONG)
        hand = client(made_served, "hand").study(study.id)
        trial = hand.ask("w1")
        assert trial is not None
        assert trial.report(1, 0.5) == "continue"
        process = search_of(made_served, study.id)
        server.kill()
        server.wait()
    os.kill(process, 0)  # it lives
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(trial.report(2, 0.4)))
    waiting.start()
    with server_process(storage, made_served.port):
        waiting.join(300)
        assert answers == ["continue"]
        assert trial.report(3, 0.3) == "stop"
        assert search_of(made_served, study.id) == process
        study.cancel()
        wait_for(lambda: made_served.service.study(study.id).devices == ())
    run = load_run(str(made_served.service.study(study.id).run))
    assert [e["epoch"] for e in run.events if e["event"] == "epoch_reported"] == [1, 2, 3]
