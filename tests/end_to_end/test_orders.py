"""Orders to real searches: by command and from Python, a kill right after one, and all of them at random moments."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import start, study_file, tuner
from tests.searches import RESUMABLE, epochs_reported, processes_of, sessions_of, study, wait_for
from tuner import Run, load_run
from tuner.errors import RunFolderError
from tuner.history.events import Event
from tuner.orders.inbox import put

pytestmark = pytest.mark.ray

TWO_AT_ONCE = study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping(), resources=Resources(cpus=1)", trials=6)
LONG_EPOCHS = TWO_AT_ONCE.replace("time.sleep(", "time.sleep(600 if config['x'] != 0.25 else ")

BEATS = """
import threading

def beat(path):
    def again():
        while True:
            Path(path).touch()
            time.sleep(0.01)
    threading.Thread(target=again, daemon=True).start()

"""

searches: "list[subprocess.Popen[str]]" = []


@pytest.fixture(autouse=True)
def _no_search_outlives_its_test() -> Iterator[None]:
    yield
    while searches:
        if (process := searches.pop()).poll() is None:
            process.kill()
            process.communicate()


def trials_started(folder: Path) -> int:
    return sum(file.read_text().count('"trial_started"') for file in folder.glob("out/*/*/events/*.jsonl"))


def started(folder: Path, body: str = TWO_AT_ONCE, reports: int = 2, seconds: float = 0.3) -> "subprocess.Popen[str]":
    """A search that has come to its first reports, with epochs of so many seconds."""
    space = study_file(folder, body)
    process = start("run", space, "--storage", "out", folder=folder, EPOCH_SECONDS=str(seconds))
    searches.append(process)
    wait_for(lambda: epochs_reported(folder / "out") >= reports or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def ended(process: "subprocess.Popen[str]", seconds: float = 300) -> tuple[int, str]:
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


def stopped_by_hand(folder: Path) -> str:
    """A trial that ended by an order which somebody wrote with an editor; one may end by itself before it is read."""
    for attempt in range(10):
        running = [record for record in run_in(folder).record.trials.values() if record.status == "running"]
        trial = min(running, key=lambda record: record.epoch).trial
        inbox = folder / "out/simple" / run_in(folder).folder.name / "inbox"
        (inbox / f"mine{attempt}.json").write_text(json.dumps({"verb": "stop", "arguments": {"trial": int(trial)}}))
        wait_for(lambda trial=trial: not run_in(folder).record.trials[trial].live)  # type: ignore[misc]
        if run_in(folder).record.trials[trial].ended_by == "stop":
            return trial
    raise AssertionError("ten trials ended before they could be stopped")


def test_a_search_takes_every_order_while_it_runs(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert "needs a configuration" not in run_in(tmp_path).try_({"x": 0.3}).message
    noted = tuner("note", "out", "watch this one", "--trial", "0", "--json", folder=tmp_path)
    assert (noted.code, noted.json["outcome"]) == (0, "obeyed"), noted.err
    assert run_in(tmp_path).set(trials=50, hours=2).outcome == "obeyed"
    refused = tuner("set", "out", "--trials", "1", folder=tmp_path)
    assert refused.code == 2
    assert "the order `stop` ends the search now" in refused.err
    trial = stopped_by_hand(tmp_path)
    wait_for(lambda: any(e.get("order") for e in events_of(tmp_path, "trial_started")))
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


@pytest.mark.slow
def test_epochs_of_ten_minutes_are_not_waited_for(tmp_path: Path) -> None:
    process = started(tmp_path, LONG_EPOCHS, reports=0)
    wait_for(lambda: trials_started(tmp_path) >= 2)
    time.sleep(3)  # the worker is in its function by now
    run = run_in(tmp_path)
    assert run.try_({"x": 0.25}).outcome == "obeyed"
    assert run.stop("0").outcome == "obeyed"
    wait_for(lambda: any(record.epochs for record in run_in(tmp_path).record.trials.values()))
    assert run.stop().outcome == "obeyed"
    code, err = ended(process)
    assert code == 0, err
    record = run_in(tmp_path).record
    best = record.best_trial()
    assert best is not None
    assert best.config == {"x": 0.25}
    assert run_in(tmp_path).scored("metrics.json")["trial"] == best.trial


def test_a_paused_search_frees_its_devices_and_goes_on(tmp_path: Path) -> None:
    begins, sleeps = "def train(config):\n", 'time.sleep(float(os.environ.get("EPOCH_SECONDS", 0.15)))'
    beats = RESUMABLE.replace(begins, f"{BEATS}{begins}    beat({str(tmp_path / 'beat')!r})\n")
    beats = beats.replace(sleeps, f"time.sleep(30) if (os.environ['EPOCH_SECONDS'], epoch) == ('0.4', 3) else {sleeps}")
    body = study(beats, "search=Random(), scheduler=NoEarlyStopping()", trials=3)
    process = started(tmp_path, body, seconds=0.4)  # the first trial has not ended when the command comes
    sessions = sessions_of(process.pid)
    begun = time.monotonic()
    paused = tuner("pause", "out", folder=tmp_path)
    assert paused.code == 0, paused.err
    code, err = ended(process)
    wait_for(lambda: processes_of(sessions) == [])
    print(f"devices free {time.monotonic() - begun:.1f} s after `tuner pause` was typed")
    run = run_in(tmp_path)
    assert (code, run.status, run.end_reason) == (
        130,
        "interrupted",
        f"paused by {events_of(tmp_path, 'order_obeyed')[0]['by']}",
    )
    assert "python -m tuner resume" in err
    report = Path(run.path) / "report.html"
    assert (tmp_path / "beat").stat().st_mtime < report.stat().st_mtime  # workers don't train on beside the conclusion
    waits = run.set(trials=4)
    assert waits.outcome == "waiting"
    put(run.folder, "stop", {"trial": "00000"})
    finished = tuner("resume", "out", folder=tmp_path, EPOCH_SECONDS="0")
    assert finished.code == 0, finished.err
    run = run_in(tmp_path)
    assert (run.status, len(run.record.trials), run.record.trials["00000"].ended_by) == ("finished", 4, "stop")


@pytest.mark.slow
def test_a_driver_killed_right_after_an_order_has_obeyed_it_once_when_resumed(tmp_path: Path) -> None:
    process = started(tmp_path, TWO_AT_ONCE.replace("trials=6", "trials=3"))
    run = run_in(tmp_path)
    run.set(trials=4, wait=False)
    run.try_({"x": 0.125}, wait=False)
    time.sleep(random.Random(os.getpid()).uniform(0, 0.8))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = tuner("resume", "out", folder=tmp_path, EPOCH_SECONDS="0")
    assert finished.code == 0, finished.err
    run = run_in(tmp_path)
    assert [event["verb"] for event in events_of(tmp_path, "order_obeyed")] == ["set", "try"]
    assert len(run.record.trials) == 4
    assert sum(record.config["x"] == 0.125 for record in run.record.trials.values()) == 1


SCHEDULERS = ("ASHA(grace_epochs=2)", 'ASHA(grace_epochs=2, rule="stop")', "HyperBand(2, 3)")
ORDERS = ("stop", "stop trial", "set", "try", "note", "pause")
ANSWERS = ("order_obeyed", "order_refused")
TWO_DEVICES = """
def network(config):
    from torch import nn

    filters = nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU()
    return nn.Sequential(*filters, nn.Flatten(), nn.Linear(72, 10))


study = Study(
    "simple", trial=ImageClassifier(data="digits", model=network, weights=None),
    space={"lr": loguniform(1e-4, 1e-2), "image_size": 16},
    budget=Budget(trials=9, max_epochs=9), search=Random(), resources=Resources(cpus=2, strategy="ddp"),
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20, 4))
def test_orders_at_random_moments_of_searches_are_obeyed_once(tmp_path: Path, first: int) -> None:
    """Of 20 searches in all: promotion, stopping, HyperBand, and trials on two devices; every second one is killed."""
    taken: dict[str, list[float]] = {verb: [] for verb in (*ORDERS, "devices free")}
    for number in range(first, first + 4):
        folder = tmp_path / str(number)
        folder.mkdir()
        for verb, seconds in _steered(folder, number, killed=number // 4 % 2 == number % 2):
            taken[verb].append(seconds)
    for verb, all_seconds in taken.items():
        print(f"{verb}: {', '.join(f'{seconds:.2f}' for seconds in sorted(all_seconds))} s")


def _steered(folder: Path, number: int, *, killed: bool) -> Iterator[tuple[str, float]]:
    """Orders with the seconds until the first driver answered each; after a pause also until its devices were free."""
    draw = random.Random(number)
    body = study(
        RESUMABLE, f"search=Random(), scheduler={SCHEDULERS[number % 4 % 3]}, resources=Resources(cpus=1)", trials=9
    )
    name = "x"
    if number % 4 == 3:
        body, name = TWO_DEVICES, "lr"
    process = started(folder, body, reports=draw.randint(1, 6))
    sessions, sent = sessions_of(process.pid), dict[str, str]()
    for verb in [*draw.sample(ORDERS[1:5], 3), draw.choice(["stop", "pause"])]:
        time.sleep(draw.uniform(0, 1))
        sent[_send(run_in(folder), verb, draw, name)] = verb
    begun = time.monotonic()
    if killed:
        time.sleep(draw.uniform(0, 1))
        process.kill()
    code, err = ended(process)
    assert killed or code in (0, 130), err
    if verb == "pause" and not killed:
        wait_for(lambda: processes_of(sessions) == [])
        yield "devices free", time.monotonic() - begun
    answered_at_first = [event for event in run_in(folder).events if event["event"] in ANSWERS]
    yield from ((sent[e["order"]], e["time"] - int(e["order"].split("-")[0]) / 1000) for e in answered_at_first)
    if run_in(folder).status != "finished":
        resumed = tuner("resume", "out", folder=folder, EPOCH_SECONDS="0")
        assert resumed.code == 0, resumed.err
    _obeyed_once(run_in(folder), sent)


def _obeyed_once(run: Run, sent: dict[str, str]) -> None:
    """All drivers of the run together have answered each order once, and done once what it says."""
    answers = [event for event in run.events if event["event"] in ANSWERS]
    assert Counter(event["order"] for event in answers) == Counter(sent.keys())
    tried = [event["order"] for event in run.events if event["event"] == "trial_started" and "order" in event]
    assert len(tried) == len(set(tried))
    for answer in answers:
        after = run.events[run.events.index(answer) :]
        trial = answer["arguments"].get("trial")
        if answer["event"] == "order_obeyed" and sent[answer["order"]] == "stop trial":
            assert not any(e["event"] == "epoch_reported" and e["trial"] == trial for e in after), answer
    assert list((run.folder.path / "inbox").iterdir()) == []  # type: ignore[attr-defined]


def _send(run: Run, verb: str, draw: random.Random, name: str) -> str:
    """Put the order into the inbox, and no more; its id."""
    arguments: dict[str, dict[str, object]] = {
        "stop trial": {"trial": draw.choice(sorted(run.record.trials))},
        "set": {"trials": 12, "concurrency": draw.randint(1, 2)},
        "try": {"config": {name: draw.uniform(0.001, 0.01)}},
        "note": {"text": "here"},
    }
    return put(run.folder, verb.split(maxsplit=1)[0], arguments.get(verb, {})).id
