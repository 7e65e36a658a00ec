"""What trials print, from their workers to the command line and the report."""

import re
from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tests.worker.test_log_process import bare
from tuner import load_run

pytestmark = pytest.mark.ray

PRINTING = """
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path


def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 4):
        print("epoch", epoch)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=epoch, checkpoint=folder)
        if config["does"] == "dies" and first == 0:
            print("about to die", end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if config["does"] == "raises":
            subprocess.run(["echo", "a child's \\x1b[2J words"])
            warnings.warn("the third layer is loose")
            raise RuntimeError("the third layer fell off")


study = Study(
    "printing", trial=train, space={"does": choice(["dies", "raises", "ends"])}, metric="loss", mode="min",
    search=Grid(), scheduler=NoEarlyStopping(), budget=Budget(trials=3, max_epochs=3), resources=Resources(cpus=1),
    warm_start=None,
)
"""


def test_what_trials_print_is_kept_with_where_they_ran(tmp_path: Path) -> None:
    finished = tuner("run", study_file(tmp_path, PRINTING), "--concurrency", "1", "--wandb", "off", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "runs")
    trials = {trial.config["does"]: trial for trial in run.record.trials.values()}
    logs = {does: bare(Path(run.path, "logs", f"{one.trial}.log").read_bytes()) for does, one in trials.items()}
    printed = {does: [line for line in log if line[0] != "tuner"] for does, log in logs.items()}
    epochs = [(f"epoch {epoch}", f"epoch {epoch}") for epoch in (1, 2, 3)]
    assert printed["ends"] == epochs
    assert printed["dies"] == [epochs[0], ("epoch 2", "about to die"), *epochs[1:]]
    assert printed["raises"][:2] == [epochs[0], ("epoch 2", "a child's \x1b[2J words")]
    for does, trial in trials.items():
        said = [text for epoch, text in logs[does] if epoch == "tuner"]
        assert len(trial.stays) == len(said) == (1 if does == "ends" else 2)  # an error is tried on a fresh worker, too
        assert all(
            stay.devices == ["1 CPU"] and stay.described in text for stay, text in zip(trial.stays, said, strict=True)
        )
    assert trials["dies"].stays[0].pid != trials["dies"].stays[1].pid

    failed = trials["raises"].trial
    shown = tuner("show", run.path, "--trial", failed, folder=tmp_path)
    assert f"on {trials['raises'].stays[0].described}\n" in shown.out
    assert "| a child's \\x1b[2J words\n" in shown.out.partition("the last lines that it printed")[2]
    assert "the third layer is loose" in run.log(failed)
    page = Path(run.path, "report.html").read_text()
    assert re.search(
        r"The last lines that it printed</summary><pre[^>]*>.*a child&#39;s \\x1b\[2J words", page, re.DOTALL
    )
    assert finished.err.index("copying the winner") < finished.err.index("writing the report")
