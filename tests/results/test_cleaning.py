"""What runs hold, and what is deleted of it: nothing of a run that is driven, nothing outside, nothing unsaid."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tests.mounts import needs_mounts, run_on_tmpfs
from tests.results.simulated import simulated
from tuner import Run, load_run
from tuner.errors import RunFolderError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.run_info import write_info
from tuner.machine.temporary import OwnedFolder
from tuner.results.cleaning import (
    Request,
    cache_entries,
    chosen_runs,
    clean,
    delete_paths,
    holding,
    parse_age,
    sessions,
    would_free,
)
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held

PARTS: dict[str, Any] = {"logs": ("logs", "00000.log"), "wandb": ("wandb", "run"), "ray": ("tune", "state.json")}


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(bytes(5000))


def interrupted(folder: Path, reports: int = 9) -> Run:
    """A run that was cut off with several checkpoints, and has files of all kinds."""
    declared = study()
    loop = build(declared, folder)
    drive(loop, reports=reports, fill=fill)
    loop.end("Ctrl-C")
    loop.close()
    for number, (name, file) in enumerate(PARTS.values()):
        (folder / name).mkdir()
        (folder / name / file).write_bytes(bytes(1000 + number))
    (folder / "best").mkdir()
    (folder / "best" / "model.safetensors").write_bytes(bytes(700))
    info = {"study": "simulated", "metric": "loss", "mode": "min", "status": "interrupted", "started": "2026-01-31"}
    write_info(LocalFolder(folder), info)
    return load_run(folder)


def test_a_run_holds_what_its_files_are_long(tmp_path: Path) -> None:
    found = holding(interrupted(tmp_path / "run"))
    assert found.parts["logs"] == 1000
    assert found.parts["wandb"] == 1001
    assert found.parts["ray"] == 1002
    assert found.parts["best"] == 700
    places = [path for path in (tmp_path / "run" / "checkpoints").rglob("*") if path.is_file()]
    assert found.parts["checkpoints"] == sum(path.stat().st_size for path in places) > 5000
    assert found.total == sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())


@pytest.mark.parametrize("part", ["logs", "wandb", "ray", "checkpoints"])
def test_what_is_asked_for_goes_and_nothing_else(tmp_path: Path, part: Any) -> None:
    run = interrupted(tmp_path / "run")
    before = holding(run)
    freed = clean(run, Request((part,)))
    after = holding(load_run(run.path))
    gone = {name for name in before.parts if after.parts[name] == 0 and before.parts[name]}
    assert gone == {part}
    assert 0 < freed <= before.parts[part] == would_free(before, Request((part,)))
    if part != "checkpoints":  # whose events say so
        assert [event["event"] for event in events_of(tmp_path / "run")][-1] == "study_interrupted"


def test_events_say_that_checkpoints_go_and_resume_starts_their_trials_again(tmp_path: Path) -> None:
    run = interrupted(tmp_path / "run")
    kept = {(t.trial, epoch) for t in run.record.trials.values() for epoch in t.checkpoints}
    assert len(kept) >= 1
    clean(run, Request(("checkpoints",)))
    told = {(e["trial"], e["epoch"]) for e in events_of(tmp_path / "run") if e["event"] == "checkpoint_deleted"}
    assert kept <= told
    after = load_run(run.path)
    assert all(not trial.checkpoints for trial in after.record.trials.values())
    assert (after.status, after.summary()["best"]) == (run.status, run.summary()["best"])

    loop = build(study(), tmp_path / "run", history=after.events)
    drive(loop)
    loop.end()
    assert [trial.status for trial in loop.record.trials.values()] == ["completed"] * 6
    assert {trial.epoch for trial in loop.record.trials.values()} == {9}


def test_the_winners_checkpoint_may_stay(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run")
    best = run.best
    assert best is not None
    place = (best.trial, (run.record.best_of(best.trial) or (0,))[0])
    request = Request(("checkpoints",), keep_best=True)
    assert would_free(holding(run), request) == 0
    (stray := tmp_path / "run" / "checkpoints" / "00003" / ".unfinished-1-abc").mkdir(parents=True)
    clean(run, request)
    store = CheckpointStore(LocalFolder(tmp_path / "run"))
    assert {(trial, epoch) for trial in store.trials() for epoch in store.epochs(trial)} == {place}
    assert not stray.exists()
    assert load_run(run.path).record.trials[place[0]].checkpoints == {place[1]}


def test_a_whole_run_goes_with_its_folder_and_the_studys_empty_one(tmp_path: Path) -> None:
    first, second = interrupted(tmp_path / "study" / "1"), interrupted(tmp_path / "study" / "2")
    held_before = holding(first).total
    assert clean(first, Request(whole=True)) == held_before > 5000
    assert not Path(first.path).exists()
    assert Path(second.path).exists()
    clean(second, Request(whole=True))
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_a_driver_works_on_is_left_alone(tmp_path: Path) -> None:
    run = interrupted(tmp_path / "run")
    run.info["status"] = "running"
    write_info(run.folder, run.info)
    with held(run.folder):
        for request in (Request(("checkpoints",)), Request(whole=True)):
            assert not request.applies(load_run(run.path))
            with pytest.raises(RunFolderError, match="leaves runs alone that a driver works on"):
                clean(load_run(run.path), request)
    run.info["status"] = "interrupted"  # as a driver that has only just begun finds it
    write_info(run.folder, run.info)
    with held(run.folder), pytest.raises(RunFolderError, match="one driver at a time"):
        clean(load_run(run.path), Request(whole=True))
    assert len(load_run(run.path).events) == len(run.events)


def test_links_are_deleted_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("still here")
    run = interrupted(tmp_path / "runs" / "study" / "1")
    (Path(run.path) / "checkpoints" / "00000" / "link").symlink_to(outside)
    (Path(run.path) / "mine").symlink_to(outside)
    clean(run, Request(("checkpoints",)))
    clean(load_run(run.path), Request(whole=True))
    assert not Path(run.path).exists()
    assert (outside / "precious").read_text() == "still here"


def test_a_part_that_is_a_link_is_refused_and_doesnt_count(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("still here")
    run = simulated(tmp_path / "run")
    (tmp_path / "run" / "logs").symlink_to(outside)
    assert holding(run).parts["logs"] == 0
    with pytest.raises(RunFolderError, match="outside"):
        clean(run, Request(("logs",)))
    assert (outside / "precious").exists()


def test_runs_that_only_a_link_leads_to_are_left_out(tmp_path: Path) -> None:
    elsewhere = simulated(tmp_path / "elsewhere" / "study" / "1")
    own = simulated(tmp_path / "runs" / "study" / "2")
    (tmp_path / "runs" / "other").symlink_to(tmp_path / "elsewhere" / "study")
    runs, left_out = chosen_runs([], str(tmp_path / "runs"))
    assert [run.path for run in runs] == [own.path]
    assert elsewhere.path in left_out[0]
    (tmp_path / "link").symlink_to(elsewhere.path)
    with pytest.raises(RunFolderError, match="got the link"):
        chosen_runs([str(tmp_path / "link")], "runs")


def test_only_what_is_old_enough_applies(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run")
    ended = datetime.now(UTC) - timedelta(days=20)
    run.info["ended"] = ended.isoformat(timespec="seconds")
    assert Request(whole=True, older_seconds=parse_age("12h")).applies(run)
    assert Request(whole=True, older_seconds=parse_age("2w")).applies(run)
    assert not Request(whole=True, older_seconds=parse_age("30d")).applies(run)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "nand", "30 years", "1e9w", "3x"])
def test_an_age_needs_a_number_and_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match="needs a number with m, h, d or w"):
        parse_age(text)


def test_the_cache_is_cleaned_of_what_nobody_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    for name, days in (("old", 40), ("new", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "entry.json").write_bytes(bytes(10))
        then = time.time() - days * 86_400
        os.utime(tmp_path / name / "entry.json", (then, then))
    assert [path.name for path in cache_entries()] == ["new", "old"]
    assert delete_paths(cache_entries(parse_age("30d"))) == 10
    assert [path.name for path in cache_entries()] == ["new"]


def test_sessions_that_a_process_still_has_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "from tuner.machine.temporary import OwnedFolder; print(OwnedFolder('ray').path, flush=True)"
    command = [sys.executable, "-c", f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; {code}"]
    dead = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    with OwnedFolder("ray") as living:
        here = [path for path in sessions() if path.parent == tmp_path]
        assert here == [dead]
        delete_paths(here)
        assert living.exists()
    assert not dead.exists()


FULL = """
import sys
from pathlib import Path
from tests.results.test_cleaning import interrupted
from tuner import load_run
from tuner.results.cleaning import Request, clean

run = interrupted(Path(sys.argv[1]) / "run")
try:
    with (Path(sys.argv[1]) / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1))
except OSError:
    pass
print(clean(load_run(run.path), Request(("checkpoints",))) > 5000, len(list((Path(run.path) / "checkpoints").glob("*/*"))))
"""


@needs_mounts
def test_a_disk_without_room_for_a_lease_or_an_event_is_cleaned_too(tmp_path: Path) -> None:
    done = run_on_tmpfs("400k", tmp_path, sys.executable, "-c", FULL, tmp_path)
    assert done.stdout == "True 0\n", done.stderr
