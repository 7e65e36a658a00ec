"""Searches under Ray on a small file system that fills up: paused in time, and gone on with where there is room."""

import json
import sys
from pathlib import Path

import pytest

from tests.commands import environment, study_file
from tests.mounts import needs_mounts, run_on_tmpfs

pytestmark = pytest.mark.ray

SAVING = """
import tempfile
from pathlib import Path

def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 10):
        time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            (Path(folder) / "weights").write_bytes(bytes(SIZE))
            tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / epoch, first=first, checkpoint=folder)

study = Study(
    "saving", trial=train, space={"x": uniform(0, 1)}, metric="loss", mode="min", scheduler=ASHA(1, 3),
    budget=Budget(trials=9, max_epochs=9, disk_gb=LIMIT), warm_start=None,
)
"""
DRIVE = """
import json, subprocess, sys
from pathlib import Path
from tuner import load_run

here, free = Path(sys.argv[1]), int(sys.argv[2])
(here / "filler").write_bytes(bytes(64 * 2**20 - free))
tuner = [sys.executable, "-m", "tuner"]
driving = ["--quiet", "--wandb", "off", "--concurrency", "1"]
first = subprocess.run([*tuner, "run", sys.argv[3], "--storage", str(here), *driving], stderr=subprocess.PIPE, text=True)
run = load_run(here)
known = {f"{t.trial}/{epoch}" for t in run.record.trials.values() for epoch in t.epochs}
told = {"first": first.returncode, "err": first.stderr, "status": run.status, "reason": run.info["interrupted_by"]}
(here / "filler").unlink()
more = ["--disk", "0.05"] if "--disk" in str(told["reason"]) else []
then = subprocess.run([*tuner, "resume", str(here), *more, *driving], stderr=subprocess.PIPE, text=True)
run = load_run(here)
told |= {"then": then.returncode, "later": then.stderr, "trials": len(run.record.trials)}
told |= {"lost": sorted(known - {f"{t.trial}/{epoch}" for t in run.record.trials.values() for epoch in t.epochs})}
told |= {"losses": sum(t.losses for t in run.record.trials.values()), "failed": run.summary()["trials"]["failed"]}
print(json.dumps(told))
"""


@needs_mounts
@pytest.mark.parametrize(
    ("limit", "size", "free", "told"),
    [
        pytest.param(
            *(None, 1_000_000, 9_000_000, "a search needs room for its next checkpoints and events, 4 MB, got "),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(0.012, 3_000_000, 40_000_000, "disk_gb needs to hold the checkpoints that the search goes on from"),
            marks=pytest.mark.slow,
        ),
        pytest.param(None, 6_000_000, 5_000_000, "got none for that of epoch 1 of trial 00000", marks=pytest.mark.slow),
    ],
    ids=["fills up", "limit", "refuses a checkpoint"],
)
def test_a_search_is_paused_in_time_and_goes_on_when_there_is_room(
    tmp_path: Path, limit: float | None, size: int, free: int, told: str
) -> None:
    space = study_file(tmp_path, SAVING.replace("SIZE", str(size)).replace("LIMIT", str(limit)))
    (disk := tmp_path / "disk").mkdir()
    (drive := tmp_path / "drive.py").write_text(DRIVE)
    command = (sys.executable, drive, disk, str(free), space)
    done = run_on_tmpfs("64m", disk, *command, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["first"], found["status"]) == (130, "interrupted"), found
    assert told in found["reason"]
    assert found["reason"] in found["err"]
    assert (found["then"], found["trials"]) == (0, 9), found
    assert (found["lost"], found["losses"], found["failed"]) == ([], 0, 0)
