"""What follows a search that is stopped in the moment in which something else cuts it off, or whose disk is full."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tests.mounts import needs_mounts, run_on_tmpfs
from tuner import Run
from tuner.driver.winner import write_winner
from tuner.history.run_info import FORMAT
from tuner.lifecycle.conclusion import Conclusion, Outcome
from tuner.lifecycle.interruption import RAY_IS_GONE, Interruption
from tuner.orders.order import Order
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held
from tuner.study.resources import Resources

INFO = {
    **{"study": "simulated", "metric": "loss", "mode": "min", "status": "running", "started": "2026", "rungs": [9]},
    **{"format": FORMAT, "host": "here", "space": {}, "budget": {"max_epochs": 9}, "options": {}, "limits": {}},
}


def concluded(folder: Path, outcome: Outcome, *, stop: bool) -> Run:
    """A search that is cut off in its first trial's fifth epoch, maybe after a `stop` that it has accepted."""
    loop = build(study(), folder)
    drive(loop, reports=5)
    if stop:
        loop.obey(Order("first", "stop", by="me@here"))
    interrupted = Interruption()
    interrupted.ask(outcome.interrupted_by or "")
    with held(LocalFolder(folder)) as lease:
        write = partial(write_winner, loop.study, loop.folder, loop.record, Resources(), 1)
        Conclusion(loop, dict(INFO), interrupted, lease, write).perform(outcome)
    return Run(LocalFolder(folder))


@pytest.mark.parametrize("reason", ["Ctrl-C", "a search needs room for its next checkpoints and events; free some"])
def test_a_stop_that_was_accepted_before_the_search_was_cut_off_ends_it(tmp_path: Path, reason: str) -> None:
    run = concluded(tmp_path, Outcome(reason), stop=True)
    assert (run.status, run.info["end_reason"], run.info["interrupted_by"]) == ("finished", "stop", None)
    assert (tmp_path / "best" / "metrics.json").is_file()
    ends = [event["event"] for event in events_of(tmp_path) if event["event"].startswith("study_")]
    assert ends == ["study_started", "study_ended"]


def test_a_search_that_is_cut_off_without_one_waits_for_resume(tmp_path: Path) -> None:
    run = concluded(tmp_path, Outcome("Ctrl-C"), stop=False)
    assert (run.status, run.info["interrupted_by"]) == ("interrupted", "Ctrl-C")
    assert not (tmp_path / "best").exists()


def test_a_stopped_search_whose_ray_is_gone_waits_for_resume_to_score_its_winner(tmp_path: Path) -> None:
    run = concluded(tmp_path, Outcome(RAY_IS_GONE), stop=True)
    assert (run.status, run.info["interrupted_by"]) == ("interrupted", RAY_IS_GONE)


def test_an_error_of_the_search_itself_is_told_although_it_was_stopped(tmp_path: Path) -> None:
    run = concluded(tmp_path, Outcome("OSError: gone", OSError("gone")), stop=True)
    assert (run.status, run.info["end_reason"]) == ("interrupted", "error")


FULL = """
import sys
from functools import partial
from pathlib import Path
from tests.driver.test_conclusion import INFO
from tests.loop.simulation import build, drive, events_of, study
from tuner.lifecycle.conclusion import Conclusion, Outcome, is_concluded
from tuner.lifecycle.interruption import Interruption
from tuner.driver.winner import write_winner
from tuner.orders.order import Order
from tuner.study.resources import Resources
from tuner import Run
from tuner.history.run_info import write_info
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held

def fill(folder):
    (folder / "weights").write_bytes(bytes(1_000_000))

def conclude(loop, lease):
    info = dict(INFO)
    write = partial(write_winner, loop.study, loop.folder, loop.record, Resources(), 1)
    outcome = Conclusion(loop, info, Interruption(), lease, write).perform(Outcome())
    print(outcome.finished, outcome.interrupted_by, info["status"], is_concluded(Run(loop.folder)), sep="|")

folder, left = Path(sys.argv[1]) / "run", int(sys.argv[2])
loop = build(study(), folder)
drive(loop, reports=5, fill=fill)
loop.obey(Order("first", "stop", by="me@here"))
write_info(LocalFolder(folder), INFO)
taken = Path(sys.argv[1]) / "taken"
with held(LocalFolder(folder)) as lease:
    with taken.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    with taken.open("r+b") as file:
        file.truncate(taken.stat().st_size - left)
    conclude(loop, lease)
    taken.unlink()
    again = build(study(), folder, history=events_of(folder))
    conclude(again, lease)
print((folder / "best" / "checkpoint" / "weights").stat().st_size)
"""


@needs_mounts
@pytest.mark.parametrize("left", [0, 500_000], ids=["nothing", "no room for the winner"])
def test_a_full_disk_loses_no_winner(tmp_path: Path, left: int) -> None:
    done = run_on_tmpfs("9m", tmp_path, sys.executable, "-c", FULL, tmp_path, str(left))
    assert done.returncode == 0, done.stderr
    first, again, size = done.stdout.splitlines()
    finished, reason, status, concluded_first = first.split("|")
    assert (finished, status, concluded_first) == ("False", "interrupted", "False")
    assert reason.startswith("a search needs room for its next checkpoints and events, got none on the disk of")
    assert again == "True|None|finished|True"
    assert size == "1000000"
