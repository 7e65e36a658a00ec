"""What follows a search, cut off and done again; study files edited in mid-run; errors of the search itself."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.commands import start, study_file, tuner
from tests.searches import CURVE, RESUMABLE, epochs_reported, study, wait_for
from tuner import load_run

pytestmark = pytest.mark.ray

SCORED_SLOWLY = """
import os
from pathlib import Path


def images():
    import torch

    if Path("slow").exists() and os.environ.get("SLOW"):
        Path("scoring.new").write_text(str(os.getpid()))
        os.replace("scoring.new", "scoring")
        time.sleep(600)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(96) % 4
    images = torch.rand(96, 1, 8, 8, generator=generator)
    return tuple((images[part], labels[part]) for part in (slice(64), slice(64, 80), slice(80, 96)))


def network(config):
    import torch

    class Paced(torch.nn.Sequential):
        def forward(self, x):
            time.sleep(self.training * float(os.environ.get("STEP_SECONDS", 0)))
            return super().forward(x)

    return Paced(torch.nn.Flatten(), torch.nn.Linear(64, 4))


study = Study(
    "scored", trial=ImageClassifier(images, network), space={"lr": loguniform(1e-3, 1e-2), "batch_size": 32},
    search=Random(), scheduler=NoEarlyStopping(), budget=Budget(trials=1, max_epochs=30),
)
"""


def workers_beside(pid: int) -> list[str]:
    """The command lines of other workers of the same raylet, but of trials that have ended and of Ray's agents."""
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    lines = [Path(f"/proc/{child}/cmdline").read_bytes().decode() for child in children if int(child) != pid]
    return [line for line in lines if "default_worker.py" in line or line.startswith("ray::IDLE")]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill -9", "Ctrl-C"])
def test_a_run_that_is_cut_off_in_training_and_while_its_winner_is_scored_is_concluded_by_resume(
    tmp_path: Path, end: str
) -> None:
    """The splits are made once for each worker, and again where the winner is scored."""
    space = study_file(tmp_path, SCORED_SLOWLY)
    options = ("out", "--concurrency", "1")
    process = start("run", space, "--storage", *options, folder=tmp_path, STEP_SECONDS="0.1")
    wait_for(lambda: epochs_reported(tmp_path / "out") >= 5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    space.unlink()
    reported = epochs_reported(tmp_path / "out")
    process = start("resume", *options, folder=tmp_path, STEP_SECONDS="0.05", SLOW="yes")
    wait_for(lambda: epochs_reported(tmp_path / "out") >= reported + 1)
    (tmp_path / "slow").touch()
    wait_for((tmp_path / "scoring").exists)
    scoring = int((tmp_path / "scoring").read_text())
    assert workers_beside(scoring) == []  # a second one would load torch, and do nothing
    os.kill(process.pid, signal.SIGKILL if end == "kill -9" else signal.SIGINT)
    _, err = process.communicate(timeout=300)
    before = load_run(tmp_path / "out")
    assert before.status == "interrupted"
    if end == "Ctrl-C":
        assert process.returncode == 130
        assert err.splitlines()[-1] == f"python -m tuner resume {before.path}"
    (tmp_path / "slow").unlink()
    finished = tuner("resume", *options, "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    assert run.status == "finished"
    assert "test_accuracy" in run.best_metrics
    assert Path(str(run.info["report"])).is_file()
    assert [sorted(trial.epochs) for trial in run.record.trials.values()] == [list(range(1, 31))]
    first, second = (event["from_epoch"] for event in run.events if event["event"] == "trial_started")
    assert first == 0
    assert second >= 1
    assert tuner("resume", "out", folder=tmp_path).code == 2


@pytest.mark.slow
def test_an_edited_study_file_is_told_kept_and_refused_where_trials_could_not_be_compared(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping()"))
    process = start("run", space, "--storage", "out", folder=tmp_path)
    wait_for(lambda: epochs_reported(tmp_path / "out") >= 20)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    file = Path(load_run(tmp_path / "out").path) / "study.py"
    original = file.read_text()
    file.write_text(original.replace('space={"x": uniform(0, 1)}', 'space={"x": uniform(0, 2)}'))
    refused = tuner("resume", "out", folder=tmp_path)  # what else is kept: tests/lifecycle/test_study_changes.py
    assert refused.code == 2
    assert "a run keeps the space that it began with" in refused.err
    assert "Traceback" not in refused.err
    file.write_text(original.replace("+ 1 / epoch", "+ 2 / epoch"))
    finished = tuner("resume", "out", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert "study.py was edited after the run began" in finished.err
    assert "2 / epoch" in finished.err
    assert (file.parent / "study.1.py").read_text() == original
    run = load_run(tmp_path / "out")
    versions = run.trials.set_index("trial")["study_version"]
    assert set(versions) == {1, 2}
    for trial in run.record.trials.values():
        last = trial.epochs[9].metrics["loss"] - (trial.config["x"] - 0.3) ** 2
        assert last == pytest.approx(versions[trial.trial] / 9)


@pytest.mark.slow
def test_an_error_of_the_search_itself_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    body = "def worth(config):\n    if FLAG.exists() and config['x'] < 0.9:\n        raise KeyError('depth')\n    return True\n"
    body = "from pathlib import Path\n\nFLAG = Path('broken').resolve()\n\n" + body + CURVE
    path = study_file(tmp_path, study(body, "search=Random(), constraint=worth", trials=30))
    process = start("run", path, "--storage", "out", folder=tmp_path)
    wait_for(lambda: epochs_reported(tmp_path / "out") >= 3)
    (tmp_path / "broken").touch()
    _, err = process.communicate(timeout=300)
    run = load_run(tmp_path / "out")
    assert process.returncode == 1
    assert "Traceback" not in err
    said, command = err.splitlines()[-2:]
    assert said.startswith("the search was cut off by an error: SpaceError: constraint needs to take every")
    assert "KeyError: 'depth'" in said
    assert command == f"python -m tuner resume {run.path}"
    assert (run.status, run.end_reason) == ("interrupted", "error")
    assert (Path(run.path) / "report.html").is_file()
    (tmp_path / "broken").unlink()
    finished = tuner("resume", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert finished.json["trials"]["total"] == 30


@pytest.mark.slow
def test_a_trial_that_hangs_does_not_outlive_the_hours(tmp_path: Path) -> None:
    body = "def train(config):\n    tuner.report(loss=config['x'])\n    time.sleep(3600)\n"
    path = study_file(tmp_path, study(body, "search=Random(), scheduler=NoEarlyStopping()", trials=9))
    begun = time.monotonic()
    finished = tuner("run", path, "--storage", "out", "--hours", "0.001", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert time.monotonic() - begun < 200
    info = json.loads((Path(load_run(tmp_path / "out").path) / "run.json").read_text())
    assert (info["status"], info["end_reason"]) == ("finished", "hours")


@pytest.mark.slow
def test_a_driver_whose_run_was_taken_over_says_so_and_writes_no_more(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping()", trials=12))
    first = start("run", space, "--storage", "out", folder=tmp_path)
    wait_for(lambda: epochs_reported(tmp_path / "out") >= 4)
    second = tuner("resume", "out", "--take-over", "--json", folder=tmp_path)
    _, err = first.communicate(timeout=300)
    assert first.returncode == 2
    assert "another process has taken over the run" in err
    assert "Traceback" not in err
    assert second.code == 0, second.err
    run = load_run(tmp_path / "out")
    assert run.status == "finished"
    assert [sorted(trial.epochs) for trial in run.record.trials.values()] == [list(range(1, 10))] * 12


@pytest.mark.slow
def test_a_run_of_format_1_is_extended(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "format-1" / "2026-11-21T10-00-00"
    shutil.copytree(Path(__file__).parent.parent / "history" / "format_1", folder)
    before = load_run(folder)
    finished = tuner("resume", folder, "--trials", "8", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(folder)
    assert (run.info["format"], len(run.record.trials), run.status) == (2, 8, "finished")
    for name, trial in before.record.trials.items():
        again = run.record.trials[name]
        assert (again.config, again.epoch, again.status) == (trial.config, trial.epoch, trial.status)
