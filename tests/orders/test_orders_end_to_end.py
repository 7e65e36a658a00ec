"""Orders to real searches: by command and from Python, a kill right after one, and all of them at random moments."""

import json
import os
import random
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands import start, study_file, tuner
from tests.searches import RESUMABLE, epochs_reported, processes_of, sessions_of, study, wait_for
from tuner.errors import RunFolderError
from tuner.history.events import Event
from tuner.orders.inbox import put
from tuner.results import Run, load_run

pytestmark = pytest.mark.ray

SLOW = """
import tempfile
from pathlib import Path

def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 10):
        time.sleep(config.get("seconds", 0.3))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / epoch, checkpoint=folder)
"""
TWO_AT_ONCE = study(SLOW, "search=Random(), scheduler=NoEarlyStopping(), resources=Resources(cpus=1)", trials=6)
LONG_EPOCHS = TWO_AT_ONCE.replace('config.get("seconds", 0.3)', '0.3 if config["x"] == 0.25 else 600')


def started(folder: Path, body: str = TWO_AT_ONCE, reports: int = 2) -> "subprocess.Popen[str]":
    space = study_file(folder, body)
    process = start("run", space, "--storage", "out", folder=folder)
    wait_for(lambda: epochs_reported(folder / "out") >= reports or process.poll() is not None, 200)
    assert process.poll() is None, process.communicate()
    return process


def ended(process: "subprocess.Popen[str]", seconds: float = 120) -> tuple[int, str]:
    try:
        _, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, err


def run_in(folder: Path) -> Run:
    return load_run(folder / "out")


def events_of(folder: Path, kind: str) -> list[Event]:
    return [event for event in run_in(folder).events if event["event"] == kind]


def test_a_search_takes_every_order_while_it_runs(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert "needs a configuration" not in run_in(tmp_path).try_({"x": 0.3}).message
    noted = tuner("note", "out", "watch this one", "--trial", "0", "--json", folder=tmp_path)
    assert (noted.code, noted.json["outcome"]) == (0, "obeyed"), noted.err
    assert run_in(tmp_path).set(trials=50, hours=2).outcome == "obeyed"
    refused = tuner("set", "out", "--trials", "1", folder=tmp_path)
    assert refused.code == 2
    assert "use `tuner stop` to end the search now" in refused.err
    trial = next(name for name, record in run_in(tmp_path).record.trials.items() if record.status == "running")
    (tmp_path / "out/simple" / run_in(tmp_path).folder.name / "inbox/mine.json").write_text(
        json.dumps({"verb": "stop", "arguments": {"trial": int(trial)}})
    )
    wait_for(lambda: not run_in(tmp_path).record.trials[trial].live, 30)
    wait_for(lambda: any(e.get("order") for e in events_of(tmp_path, "trial_started")), 60)
    stopped = tuner("stop", "out", folder=tmp_path)
    assert (stopped.code, "the search ends now" in stopped.out) == (0, True), stopped.err
    code, err = ended(process)
    run = run_in(tmp_path)
    assert code == 0, err
    assert (run.status, run.end_reason, run.budget["trials"], run.info["options"]["trials"]) == (
        "finished",
        "stop",
        50,
        50,
    )
    assert run.record.trials[trial].ended_by == "stop"
    assert sum(record.config["x"] == 0.3 for record in run.record.trials.values()) == 1
    assert run.record.steered.notes_of("00000")[0].text == "watch this one"
    assert list((run.folder.path / "inbox").iterdir()) == []  # type: ignore[attr-defined]
    assert f"stop trial={trial}" in err
    assert run.info["report"]
    shown = tuner("show", "out", folder=tmp_path).out
    assert "watch this one" in shown
    assert "stopped it" in shown
    with pytest.raises(RunFolderError, match="needs a search that runs"):
        run.stop()


def test_epochs_of_ten_minutes_are_not_waited_for(tmp_path: Path) -> None:
    process = started(tmp_path, LONG_EPOCHS, reports=0)
    wait_for(lambda: (tmp_path / "out").is_dir() and len(events_of(tmp_path, "trial_started")) >= 2, 100)
    time.sleep(3)  # the worker is in its function by now
    run = run_in(tmp_path)
    assert run.try_({"x": 0.25}).outcome == "obeyed"
    assert run.stop("0").outcome == "obeyed"
    wait_for(lambda: any(record.epochs for record in run_in(tmp_path).record.trials.values()), 100)
    assert run.stop().outcome == "obeyed"
    code, err = ended(process)
    assert code == 0, err
    record = run_in(tmp_path).record
    best = record.best_trial()
    assert best is not None
    assert best.config == {"x": 0.25}
    assert run_in(tmp_path).scored("metrics.json")["trial"] == best.trial


def test_a_paused_search_frees_its_devices_and_goes_on(tmp_path: Path) -> None:
    process = started(tmp_path, study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping()", trials=3))
    sessions = sessions_of(process.pid)
    begun = time.monotonic()
    paused = tuner("pause", "out", folder=tmp_path)
    assert paused.code == 0, paused.err
    code, err = ended(process)
    wait_for(lambda: processes_of(sessions) == [], 30)
    print(f"devices free {time.monotonic() - begun:.1f} s after `tuner pause` was typed")
    run = run_in(tmp_path)
    assert (code, run.status, run.end_reason) == (
        130,
        "interrupted",
        f"paused by {events_of(tmp_path, 'order_obeyed')[0]['by']}",
    )
    assert "python -m tuner resume" in err
    waits = run.set(trials=4)
    assert waits.outcome == "waiting"
    put(run.folder, "stop", {"trial": "00000"})
    os.kill(start("resume", "out", folder=tmp_path).pid, signal.SIGKILL)  # whatever it has come to
    finished = tuner("resume", "out", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = run_in(tmp_path)
    assert (run.status, len(run.record.trials), run.record.trials["00000"].ended_by) == ("finished", 4, "stop")
    assert run.set(trials=5).outcome == "waiting"
    assert tuner("resume", "out", folder=tmp_path).code == 0
    assert len(run_in(tmp_path).record.trials) == 5


def test_a_driver_killed_right_after_an_order_has_obeyed_it_once_when_resumed(tmp_path: Path) -> None:
    process = started(tmp_path, TWO_AT_ONCE.replace("trials=6", "trials=3"))
    run = run_in(tmp_path)
    run.set(trials=4, wait=False)
    run.try_({"x": 0.125}, wait=False)
    time.sleep(random.Random(os.getpid()).uniform(0, 0.8))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = tuner("resume", "out", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = run_in(tmp_path)
    assert [event["verb"] for event in events_of(tmp_path, "order_obeyed")] == ["set", "try"]
    assert len(run.record.trials) == 4
    assert sum(record.config["x"] == 0.125 for record in run.record.trials.values()) == 1


SCHEDULERS = ("ASHA(grace_epochs=2)", 'ASHA(grace_epochs=2, rule="stop")', "HyperBand(2, 3)")
ORDERS = ("stop", "stop trial", "set", "try", "note", "pause")


@pytest.mark.slow
def test_orders_at_random_moments_of_twenty_searches_are_obeyed_within_two_seconds(tmp_path: Path) -> None:
    taken: dict[str, list[float]] = {verb: [] for verb in ORDERS}
    draw = random.Random(20)
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        cpus = 2 if number % 4 == 3 else 1
        body = study(
            SLOW, f"search=Random(), scheduler={draw.choice(SCHEDULERS)}, resources=Resources(cpus={cpus})", trials=9
        )
        process = started(folder, body, reports=draw.randint(1, 9))
        for verb in [*draw.sample(ORDERS[1:5], 3), draw.choice(["stop", "pause"])]:
            time.sleep(draw.uniform(0, 1))
            _send(run_in(folder), verb, draw)
        assert ended(process)[0] in (0, 130)
        for event in [*events_of(folder, "order_obeyed"), *events_of(folder, "order_refused")]:
            sent = int(event["order"].split("-")[0]) / 1000
            name = "stop trial" if "trial" in event["arguments"] and event["verb"] == "stop" else event["verb"]
            taken[name].append(event["time"] - sent)
    for verb, seconds in taken.items():
        print(f"{verb}: {len(seconds)} orders, median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    assert max(max(seconds) for seconds in taken.values()) < 10


def _send(run: Run, verb: str, draw: random.Random) -> None:
    arguments = {
        "stop trial": {"trial": draw.choice(sorted(run.record.trials))},
        "set": {"trials": 12, "concurrency": draw.randint(1, 2)},
        "try": {"config": {"x": draw.random()}},
        "note": {"text": "here"},
    }
    put(run.folder, verb.split(maxsplit=1)[0], arguments.get(verb, {}))
