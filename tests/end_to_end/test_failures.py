"""Searches through the command line that go wrong, are interrupted, or could be reached by others."""

import os
import signal
from pathlib import Path

import pytest

from tests.commands import ROOT, Finished, run_main, start, study_file, tuner, without_network
from tests.searches import CURVE, RESUMABLE, epochs_reported, processes_of, sessions_of, study, wait_for
from tuner import load_run
from tuner.history.logs import log_text

pytestmark = pytest.mark.ray


# What goes wrong


FAILING = """
import math
import sys

def train(config):
    if config["x"] > 0.8:
        sys.exit(3)
    if config["x"] > 0.6:
        from ray import tune

        tune.report({"loss": 1.0})
    if config["x"] > 0.4:
        raise RuntimeError("the third layer fell off")
    if config["x"] > 0.2:
        tuner.report(loss=math.nan)
    tuner.report(loss=config["x"])
"""
MISTAKES = (
    (0.8, "error", "the trial's code called exit(3); raise an exception instead"),
    (0.6, "error", "the function called ray.tune.report; call tuner.report(...) instead"),
    (0.4, "error", "RuntimeError: the third layer fell off"),
    (0.2, "diverged", "loss"),
    (0.0, None, ""),
)


def test_trials_that_raise_diverge_or_call_exit_or_ray_fail_with_their_cause_and_the_search_goes_on(
    tmp_path: Path,
) -> None:
    settings = 'search=HyperOpt(startup_trials=4), start_from=[{"x": x / 10} for x in (9, 7, 5, 3, 1)]'
    space = study_file(tmp_path, study(FAILING, settings, trials=12))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert "Traceback" not in finished.err
    trials = load_run(tmp_path / "out").record.trials.values()
    assert {trial.cause for trial in trials} == {"error", "diverged", None}
    for trial in trials:
        cause, message = next(told for above, *told in MISTAKES if trial.config["x"] > above)
        assert trial.cause == cause
        assert message in (trial.message or "")
        assert message in finished.err
        assert trial.losses == 0  # the worker lives
    (raised,) = (trial for trial in trials if trial.config["x"] == 0.5)
    assert 'raise RuntimeError("the third layer fell off")' in (raised.traceback or "")
    assert sum(finished.json["failures"].values()) == finished.json["trials"]["failed"]


LONG_MESSAGE = """
def train(config):
    raise ValueError("a" * 2_000_000 + " the end")
"""


def test_a_message_of_two_megabytes_costs_no_time_and_the_trials_log_has_all_of_it(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(LONG_MESSAGE, trials=5))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 1, finished.err
    run = load_run(tmp_path / "out")
    for trial in run.record.trials.values():
        assert (trial.message or "").endswith(" the end")
        assert len(trial.message or "") < 4_000
        assert "a" * 2_000_000 + " the end\n" in log_text(run.folder, trial.trial)


def test_a_search_without_a_winner_exits_1_and_names_the_most_frequent_cause(tmp_path: Path) -> None:
    body = "def train(config):\n    raise ValueError('no such layer')\n"
    finished = tuner("run", study_file(tmp_path, study(body, trials=3)), "--storage", "out", "--quiet", folder=tmp_path)
    assert finished.code == 1
    run = load_run(tmp_path / "out")
    assert run.status == "failed"
    assert finished.out == ""
    assert finished.err == (
        "no trial succeeded: 3 of 3 trials failed, ValueError: no such layer (space.py:7)\n"
        f"for its traceback: python -m tuner show {run.path} --trial 00000\n"
    )
    shown = tuner("show", run.path, "--trial", "0", folder=tmp_path)
    assert "raise ValueError('no such layer')" in shown.out


PROMOTED = """
import os
import signal
from pathlib import Path

BATCHES = 4


def images():
    import torch

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(384) % 4
    images = torch.rand(384, 1, 8, 8, generator=generator) * 0.9
    images[torch.arange(384), 0, labels, labels] += 0.6
    return tuple((images[part], labels[part]) for part in (slice(256), slice(256, 320), slice(320, 384)))


def network(config):
    import torch

    class Fragile(torch.nn.Sequential):
        steps = 0

        def forward(self, x):
            self.steps += self.training
            if os.environ.get("KILL_AFTER") and self.steps == int(os.environ["KILL_AFTER"]) and starts(config) == 3:
                os.kill(os.getpid(), signal.SIGKILL)  # this trial is on its way from the second rung
            time.sleep(0.05 * (self.training and starts(config) == 3))  # so that saves come between
            return super().forward(x)

    with (Path(os.environ["STARTS"]) / str(config["lr"])).open("a") as file:
        file.write("x")
    return Fragile(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


def starts(config):
    return len((Path(os.environ["STARTS"]) / str(config["lr"])).read_text())


study = Study(
    "promoted", trial=ImageClassifier(images, network), space={"lr": loguniform(3e-4, 3e-3), "batch_size": 64},
    search=Random(), budget=Budget(trials=9, max_epochs=12), warm_start=None,
)
"""


@pytest.mark.slow
def test_a_worker_killed_two_epochs_past_a_rung_loses_nothing_with_the_default_early_stopping(tmp_path: Path) -> None:
    space = study_file(tmp_path, PROMOTED)
    curves = {}
    for name, steps in (("killed", "11"), ("whole", "")):  # of 4 to an epoch
        (tmp_path / f"starts-{name}").mkdir()
        changed = {"STARTS": str(tmp_path / f"starts-{name}"), "KILL_AFTER": steps}
        options = ("--storage", name, "--concurrency", "1", "--json")
        finished = tuner("run", space, *options, folder=tmp_path, **changed)
        assert finished.code == 0, finished.err
        trials = load_run(tmp_path / name).record.trials.values()
        assert {trial.status for trial in trials} <= {"completed", "stopped"}
        assert sum(trial.losses for trial in trials) == (name == "killed")
        curves[name] = [
            (trial.status, [(e, trial.epochs[e].metrics["val_loss"]) for e in sorted(trial.epochs)]) for trial in trials
        ]
        assert (tmp_path / load_run(tmp_path / name).path / "best" / "model.safetensors").is_file()
    assert max(len(curve) for _, curve in curves["whole"]) == 12
    assert curves["killed"] == curves["whole"]


@pytest.mark.slow
def test_a_worker_that_dies_every_time_is_a_lost_trial(tmp_path: Path) -> None:
    body = "import os\n\ndef train(config):\n    tuner.report(loss=1.0)\n    os._exit(1)\n"
    space = study_file(tmp_path, study(body, "search=Random()", trials=1))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 1, finished.err
    assert finished.json["failures"] == {"lost": 1}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ('{"x": loguniform(0.0, 1)}', "loguniform needs low > 0, got low=0.0 for 'x'; use uniform or raise low"),
        ('{"x": choice([])}', "choice needs at least one value, got an empty list for 'x'"),
    ],
)
def test_bad_input_exits_2_with_one_message_and_leaves_nothing(tmp_path: Path, space: str, message: str) -> None:
    path = study_file(tmp_path, study(CURVE).replace('{"x": uniform(0, 1)}', space))
    finished = tuner("run", path, folder=tmp_path)
    assert (finished.code, finished.out) == (2, "")
    assert message in finished.err
    assert finished.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_imagenet_weights_that_cannot_be_had_are_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_network(monkeypatch)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    code, out, err = run_main(capsys, "run", ROOT / "search_spaces/digits.py", "--weights", "imagenet")
    assert (code, out) == (2, "")
    assert "--weights none" in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


# The network


def listening(pids: set[int]) -> list[str]:
    """Local addresses on which processes listen, from the kernel's tables."""
    inodes = set()
    for pid in pids:
        try:
            links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1].rsplit(":", 1)[0] for row in rows if row[3] == "0A" and row[9] in inodes]


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def assert_only_this_machine_reaches(sessions: set[int]) -> None:
    """Ray, while it runs, listens on loopback."""
    pids = {int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit() and _session_of(e) in sessions}
    addresses = listening(pids)
    assert len(pids) > 4
    assert addresses
    assert set(addresses) <= LOOPBACK


def assert_no_token_is_left(home: Path) -> None:
    """That others could read."""
    readable = [path for path in home.rglob("*token*") if path.is_file() and path.stat().st_mode & 0o077]
    assert readable == []


def _session_of(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
    except OSError:
        return -1


# Ctrl-C, and going on


def interrupt(space: Path, folder: Path, signal_number: int, reports: int = 8) -> Finished:
    (home := folder / "home").mkdir()
    process = start("run", space, "--storage", "out", folder=folder, HOME=str(home))
    wait_for(lambda: epochs_reported(folder / "out") >= reports)
    sessions = sessions_of(process.pid)
    assert_only_this_machine_reaches(sessions)
    os.kill(process.pid, signal_number)
    out, err = process.communicate(timeout=300)
    wait_for(lambda: processes_of(sessions) == [])
    assert_no_token_is_left(home)
    return Finished(process.returncode, out, err)


@pytest.mark.slow
def test_a_search_told_to_end_saves_prints_how_to_resume_and_leaves_no_process(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(RESUMABLE, "search=HyperOpt(startup_trials=3)"))
    finished = interrupt(space, tmp_path, signal.SIGTERM)
    run = load_run(tmp_path / "out")
    assert finished.code == 130
    assert finished.err.splitlines()[-1] == f"python -m tuner resume {run.path}"
    assert run.status == "interrupted"
    assert any(trial.status == "interrupted" for trial in run.record.trials.values())
    assert (Path(run.path) / "trials.csv").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, id="Ctrl-C"), pytest.param(signal.SIGKILL, -9, id="kill -9")]
)
def test_an_interrupted_search_goes_on_to_what_it_would_have_been(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    space = study_file(tmp_path, study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping()"))
    assert interrupt(space, tmp_path, number).code == code
    before = load_run(tmp_path / "out")
    assert before.status == "interrupted"
    saved = {trial.trial: trial.last_checkpoint for trial in before.record.trials.values() if trial.live}
    finished = tuner("resume", "out", "--json", folder=tmp_path, EPOCH_SECONDS="0")
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    assert run.path == before.path
    trials = list(run.record.trials.values())
    assert [trial.trial for trial in trials] == [f"{number:05d}" for number in range(6)]
    assert [trial.status for trial in trials] == ["completed"] * 6
    assert all(sorted(trial.epochs) == list(range(1, 10)) for trial in trials)
    for name, first in saved.items():
        assert run.record.trials[name].epochs[9].metrics["first"] == first
    again = tuner("resume", "out", folder=tmp_path)
    assert again.code == 2
    assert "--trials is the total number of trials and must be above 6, which the run already has" in again.err
