"""What a user's function writes by relative paths is its own trial's, as in Ray Tune."""

from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tests.s3_server import s3_endpoint
from tests.searches import study
from tuner import find_runs, load_run

pytestmark = pytest.mark.ray

WRITES = """
from pathlib import Path
import tempfile

def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 10):
        loss = (config["x"] - 0.3) ** 2 + 1 / epoch
        Path("results").mkdir(exist_ok=True)
        Path("results/best.txt").write_text(str(config["x"]))  # as torch.save(..., "results/best.pth")
        with open("log.csv", "a") as log:
            log.write(f"{epoch}\\n")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=loss, checkpoint=folder)
"""
READS = """
from pathlib import Path
def train(config):
    tuner.report(loss=float(open("numbers/loss.txt").read()) + config["x"])
"""


SPAWNS = """
import multiprocessing
from pathlib import Path

NUMBERS = Path("numbers/loss.txt").absolute()

def read(added):
    return float(NUMBERS.read_text()) + added

def train(config):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        tuner.report(loss=pool.map(read, [config["x"]])[0])
"""


def test_trials_at_once_keep_their_files_apart_also_over_pauses(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("mine\n")
    space = study_file(tmp_path, study(WRITES, "scheduler=ASHA(grace_epochs=1, reduction_factor=3)", trials=6))
    finished = tuner("run", space, "--concurrency", "2", "--cpus-per-trial", "1", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "runs")
    assert (tmp_path / "log.csv").read_text() == "mine\n"
    assert not (tmp_path / "results").exists()
    trials = run.record.trials.values()
    assert any(len(trial.stays) > 1 for trial in trials)
    for trial in trials:
        folder = Path(run.path, "files", trial.trial)
        assert float((folder / "results/best.txt").read_text()) == trial.config["x"]
        assert (folder / "log.csv").read_text().split() == [str(epoch) for epoch in trial.epochs]
    shown = tuner("show", run.path, "--trial", "1", folder=tmp_path)
    assert "files/00001 (0.0 MB)" in "".join(shown.out.split("\n"))
    cleaned = tuner("clean", run.path, "--files", "--yes", folder=tmp_path)
    assert (cleaned.code, "deleted trials' files of 1 run" in cleaned.err) == (0, True)
    assert not Path(run.path, "files").exists()


@pytest.mark.parametrize("kind", ["temporary", "shared"])
def test_a_study_says_otherwise(tmp_path: Path, kind: str) -> None:
    space = study_file(tmp_path, study(WRITES, f'working_folder="{kind}"', trials=2))
    finished = tuner("run", space, folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "runs")
    assert not Path(run.path, "files").exists()
    assert (tmp_path / "results").exists() == (kind == "shared")


def test_a_file_of_the_folder_where_the_search_started_is_found_by_what_the_message_says(tmp_path: Path) -> None:
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers/loss.txt").write_text("0.5")
    failed = tuner("run", study_file(tmp_path, study(READS, trials=2)), folder=tmp_path)
    assert failed.code != 0
    (trial, *_) = load_run(tmp_path / "runs").record.trials.values()
    assert trial.message == (
        "FileNotFoundError: [Errno 2] No such file or directory: 'numbers/loss.txt'; it is in the folder where the "
        "search was started, but a trial works in a folder of its own: write Path('numbers/loss.txt').absolute() "
        "outside of the function, or working_folder='shared' in the study"
    )
    named = READS.replace("import Path\n", "import Path\nNUMBERS = Path('numbers/loss.txt').absolute()\n").replace(
        '"numbers/loss.txt"', "NUMBERS"
    )
    for body, settings in ((named, ""), (READS, 'working_folder="shared"')):
        finished = tuner("run", study_file(tmp_path, study(body, settings, trials=2)), folder=tmp_path)
        assert finished.code == 0, finished.err


def test_a_path_made_outside_of_functions_is_the_same_in_processes_that_a_trial_starts(tmp_path: Path) -> None:
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers/loss.txt").write_text("0.5")
    finished = tuner("run", study_file(tmp_path, study(SPAWNS, trials=1)), folder=tmp_path)
    assert finished.code == 0, finished.err


@pytest.mark.slow
def test_files_are_kept_on_object_storage(tmp_path: Path) -> None:
    with s3_endpoint("bucket") as endpoint:
        storage = f"s3://bucket/runs?endpoint_override={endpoint}&scheme=http"
        settings = "scheduler=ASHA(grace_epochs=1, reduction_factor=3)"
        finished = tuner("run", study_file(tmp_path, study(WRITES, settings)), "--storage", storage, folder=tmp_path)
        assert finished.code == 0, finished.err
        (run,) = find_runs(storage)
        assert any(len(trial.stays) > 1 for trial in run.record.trials.values())
        for trial in run.record.trials.values():
            assert run.folder.read(f"files/{trial.trial}/log.csv").split() == [
                str(epoch).encode() for epoch in trial.epochs
            ]
