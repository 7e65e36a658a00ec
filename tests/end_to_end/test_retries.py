"""Failed and hung trials that are tried again, in searches through the command line."""

from pathlib import Path

import pytest

from tests.commands import start, study_file, tuner
from tests.processes import is_alive
from tests.searches import epochs_reported, study, wait_for
from tuner import load_run

pytestmark = pytest.mark.ray

ACCIDENTS = """
import os
import signal
import tempfile
from pathlib import Path

def first_time(name):
    try:
        (Path(os.environ["MARKS"]) / name).touch(exist_ok=False)
        return True
    except FileExistsError:
        return False

def hang():
    (Path(os.environ["MARKS"]) / "pid").write_text(str(os.getpid()))
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass

def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 6):
        if epoch == 4 and config["x"] == 1 and first_time("raised"):
            raise OSError("the disk was away for a moment")
        if epoch == 4 and config["x"] == 2 and first_time("hung"):
            hang()
        if epoch == 4 and config["x"] == 3 and first_time("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=config["x"] + 1 / epoch, first=first, checkpoint=folder)

study = Study(
    "accidents", trial=train, space={"x": grid_search([0, 1, 2, 3])}, metric="loss", mode="min", search=Grid(),
    scheduler=NoEarlyStopping(), budget=Budget(max_epochs=5), failures=Failures(error=1, hung_minutes=0.1),
)
"""


def test_trials_that_raise_hang_or_lose_their_worker_go_on_from_their_checkpoints(tmp_path: Path) -> None:
    finished = tuner("run", study_file(tmp_path, ACCIDENTS), "--storage", "out", folder=tmp_path, MARKS=str(tmp_path))
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    well, raised, hung, killed = trials = sorted(run.record.trials.values(), key=lambda trial: trial.config["x"])
    assert [trial.status for trial in trials] == ["completed"] * 4
    for trial in (raised, hung, killed):
        assert [trial.epochs[epoch].metrics["first"] for epoch in range(1, 6)] == [0, 0, 0, 3, 3]
    assert [trial.losses for trial in (well, raised, killed)] == [0, 0, 1]
    assert [(attempt.kind, attempt.cause) for attempt in killed.attempts.failed] == [("lost", "lost")]
    (error,) = raised.attempts.failed
    assert (error.cause, error.message) == ("error", "OSError: the disk was away for a moment")
    (hang,) = hung.attempts.failed
    assert (hang.cause, hang.kind) == ("hung", "lost")
    assert hang.message == (
        "it reported nothing for 0.1 minutes (hung_minutes), so it was killed; its stacks show where"
    )
    assert "in hang\n" in (hang.traceback or "")
    assert "in train\n" in (hang.traceback or "")
    assert [line for line in run.log(hung.trial).splitlines() if " tuner | " in line and line.endswith(" in hang")]
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert not (Path(run.path) / "stacks").exists()
    shown = tuner("show", run.path, "--trial", hung.trial, folder=tmp_path)
    assert "tried again after epoch 3, hung: it reported nothing for 0.1 minutes" in shown.out


BROKEN = """
import tempfile
from pathlib import Path

def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 10):
        if epoch == 4 and config["x"] > 0.5:
            raise KeyError("momentun")  # the mistake
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=config["x"] + 1 / epoch, first=first, checkpoint=folder)
"""


@pytest.mark.slow
def test_failed_trials_run_again_with_the_file_that_was_mended(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(BROKEN, "search=Random(), scheduler=NoEarlyStopping()", trials=4))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    failed = [trial.trial for trial in run.record.trials.values() if trial.status == "failed"]
    assert failed
    assert list(finished.json["failures"].values()) == [len(failed)]
    assert "KeyError: 'momentun' (space.py:" in next(iter(finished.json["failures"]))
    text = (Path(run.path) / "study.py").read_text()
    (Path(run.path) / "study.py").write_text(text.replace('raise KeyError("momentun")', "pass"))
    again = tuner("retry", run.path, "--json", folder=tmp_path)
    assert again.code == 0, again.err
    run = load_run(tmp_path / "out")
    assert (again.json["trials"], again.json["failures"]) == (
        {"total": 4, "completed": 4, "stopped": 0, "failed": 0},
        {},
    )
    for trial in map(run.record.trials.__getitem__, failed):
        assert [trial.epochs[epoch].metrics["first"] for epoch in range(1, 10)] == [0] * 3 + [3] * 6
        assert {attempt.message for attempt in trial.attempts.failed} == {"KeyError: 'momentun'"}
    nothing = tuner("retry", run.path, folder=tmp_path)
    assert nothing.code == 2
    assert nothing.err.endswith("tuner: failed trials can run again, got a run without any; there is nothing to do\n")


ENDLESS = """
import os
import threading
from pathlib import Path

def train(config):
    tuner.report(loss=config["x"])
    Path(os.environ["MARKS"], str(os.getpid())).touch()
    if config["x"] > 0.5:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass
"""


@pytest.mark.slow
def test_hours_end_a_search_whose_trials_hang_and_their_processes_are_gone(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    space = study_file(tmp_path, study(ENDLESS, "search=Random()", trials=2))
    options = ("--storage", "out", "--hours", "0.003", "--json")
    process = start("run", space, *options, folder=tmp_path, MARKS=str(tmp_path / "marks"))
    wait_for(lambda: epochs_reported(tmp_path / "out") >= 1)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    run = load_run(tmp_path / "out")
    assert run.end_reason == "hours"
    assert {(trial.status, trial.ended_by) for trial in run.record.trials.values()} == {("stopped", "hours")}
    pids = [int(path.name) for path in (tmp_path / "marks").iterdir()]
    assert pids
    wait_for(lambda: not any(map(is_alive, pids)))


BLAMED = """
import os

def train(config):
    tuner.report(loss=1.0, pid=os.getpid())
    if config["x"] in (1, 3):
        raise KeyError("momentun")
    tuner.report(loss=float("nan") if config["x"] == 5 else 1.0)

study = Study(
    "blamed", trial=train, space={"x": randint(0, 7)}, metric="loss", mode="min", search=Random(),
    start_from=[{"x": x} for x in range(7)], scheduler=NoEarlyStopping(), budget=Budget(trials=7, max_epochs=2),
)
"""


def test_after_a_new_error_the_next_trial_gets_a_fresh_worker_and_an_error_on_a_used_one_another_try(
    tmp_path: Path,
) -> None:
    options = ("--storage", "out", "--concurrency", "1", "--wandb", "off")
    finished = tuner("run", study_file(tmp_path, BLAMED), *options, folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    trials = list(run.record.trials.values())
    assert [trial.status for trial in trials] == [*["completed", "failed"] * 2, "completed", "failed", "completed"]
    assert [[attempt.kind for attempt in trial.attempts.failed] for trial in trials] == [[], ["used"], *[[]] * 5]
    workers = [event["pid"] for event in run.events if event["event"] == "trial_placed"]
    first, fresh, another = workers[0], workers[2], workers[3]
    assert workers == [first, first, fresh, *[another] * 5]
    assert len({first, fresh, another}) == 3
