import json
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, study
from tests.results.test_results import make_run
from tuner import Run, find_runs, load_run
from tuner.errors import RunFolderError
from tuner.history.run_info import FORMAT, new_run_folder, write_info
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held

INFO = {
    "format": FORMAT,
    "study": "simulated",
    "metric": "loss",
    "mode": "min",
    "status": "finished",
    "started": "2026-01-31T09:30:00+00:00",
}


def half_a_run(folder: Path, **info: Any) -> Run:
    """A run whose driver was cut off after 13 reports: a trial of 9 epochs, and one of 4."""
    drive(build(study(), folder), reports=13)
    write_info(LocalFolder(folder), {**INFO, "status": "running", "host": platform.node(), **info})
    return load_run(folder)


def refusal(path: Path) -> str:
    with pytest.raises(RunFolderError) as caught:
        load_run(path)
    return str(caught.value)


def test_a_run_tells_its_study_metric_and_mode(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert (run.name, run.metric, run.mode, run.status, run.path) == (
        "simulated",
        "loss",
        "min",
        "finished",
        str(tmp_path),
    )
    assert run.events[0]["event"] == "study_started"
    assert run.events[-1]["event"] == "study_ended"


def test_the_summary_is_the_contracts_and_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    best = run.best
    assert best is not None
    assert run.summary() == {
        "run": str(tmp_path),
        "status": "finished",
        "best": {
            "trial_id": best.trial,
            "config": best.config,
            "value": run.record.winning_value,
            "error": pytest.approx(0.0033, abs=1e-4),
            "over_epochs": [8, 9],
            "epoch": 9,
            "metrics": best.epochs[9].metrics,
            "refit": None,
        },
        "trials": {
            "total": 6,
            "completed": run.record.counts()["completed"],
            "stopped": run.record.counts()["stopped"],
            "failed": 0,
        },
        "failures": {},
        "wall_seconds": round(run.events[-1]["time"] - run.events[0]["time"], 3),
        "report": None,
    }


def test_a_run_in_which_all_failed_has_no_best(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop, lambda config, epoch: float("nan"))
    loop.end()
    loop.close()
    write_info(LocalFolder(tmp_path), {**INFO, "status": "failed"})
    summary = load_run(tmp_path).summary()
    assert (summary["best"], summary["failures"]) == (None, {"diverged": 6})
    assert summary["trials"] == {"total": 6, "completed": 0, "stopped": 0, "failed": 6}
    assert load_run(tmp_path).best_metrics == {}


def test_a_copied_run_names_the_report_beside_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_info(run.folder, {**run.info, "report": "/where/it/was/report.html"})
    moved = load_run(tmp_path)
    assert moved.summary()["report"] == str(tmp_path / "report.html")
    assert run.summary()["report"] is None


def test_test_metrics_of_the_winner_join_those_of_its_best_epoch(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert run.best is not None
    scored = {"trial": run.best.trial, "metrics": {"test_accuracy": 0.9}}
    run.folder.write("best/metrics.json", json.dumps(scored).encode())
    assert run.best_metrics == {**run.best.epochs[9].metrics, "test_accuracy": 0.9}


@pytest.mark.parametrize("content", ['{"trial": "00099", "metrics": {"test_accuracy": 0.9}}', "{", "[]"])
def test_test_metrics_of_another_winner_or_damaged_ones_are_left_aside(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path)
    run.folder.write("best/metrics.json", content.encode())
    assert run.best is not None
    assert run.best_metrics == run.best.epochs[9].metrics


# A run whose driver works, or died


def test_a_run_goes_on_while_its_driver_lives(tmp_path: Path) -> None:
    with held(LocalFolder(tmp_path)):
        run = half_a_run(tmp_path)
        assert (run.alive, run.status) == (True, "running")
        assert [trial.status for trial in run.record.trials.values()] == ["completed", "running"]
        assert run.summary()["wall_seconds"] == round(run.events[-1]["time"] - run.events[0]["time"], 3) > 0


def test_a_run_whose_driver_died_was_interrupted_and_so_were_its_trials(tmp_path: Path) -> None:
    run = half_a_run(tmp_path)
    assert (run.alive, run.status, run.summary()["status"]) == (False, "interrupted", "interrupted")
    assert [trial.status for trial in run.record.trials.values()] == ["completed", "interrupted"]
    assert run.summary()["wall_seconds"] == round(run.events[-1]["time"] - run.events[0]["time"], 3)


def test_a_run_is_interrupted_once_its_lease_is_no_longer_held(tmp_path: Path) -> None:
    run = half_a_run(tmp_path, pid=os.getpid(), host="renamed")
    with held(LocalFolder(tmp_path)):
        assert (run.alive, run.status) == (True, "running")
    assert (run.alive, run.status) == (False, "interrupted")


@pytest.mark.parametrize("status", ["finished", "interrupted", "failed"])
def test_a_run_that_ended_keeps_its_status_whoever_has_the_process_id_now(tmp_path: Path, status: str) -> None:
    run = half_a_run(tmp_path, pid=os.getpid(), status=status)
    assert (run.alive, run.status) == (False, status)


# Finding and refusing


def test_the_newest_run_of_a_storage_or_of_one_study_is_loaded(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "1", started="2026-01-01T00:00:00+00:00")
    make_run(tmp_path / "a" / "2", started="2026-02-01T00:00:00+00:00")
    make_run(tmp_path / "b" / "1", started="2026-03-01T00:00:00+00:00")
    assert [run.path for run in find_runs(tmp_path)] == [str(tmp_path / name) for name in ("b/1", "a/2", "a/1")]
    assert [run.path for run in find_runs(tmp_path / "a")] == [str(tmp_path / "a/2"), str(tmp_path / "a/1")]
    assert load_run(tmp_path / "a").path == str(tmp_path / "a" / "2")
    assert find_runs(tmp_path / "nowhere") == []


def test_runs_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "1")
    for name, content in {
        "damaged": "{",
        "newer": json.dumps({**INFO, "format": FORMAT + 1}),
        "half": json.dumps({name: INFO[name] for name in INFO if name != "started"}),
    }.items():
        (tmp_path / "b" / name).mkdir(parents=True)
        (tmp_path / "b" / name / "run.json").write_text(content)
    assert [run.path for run in find_runs(tmp_path)] == [str(tmp_path / "a" / "1")]


def test_a_damaged_file_is_refused_with_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": 1')
    assert refusal(tmp_path).startswith(f"run.json needs to be JSON, got a damaged one in '{tmp_path}'; restore it (")


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"format": null}', '{"format": "1"}'])
def test_another_programs_file_of_the_name_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    assert refusal(tmp_path) == f"run.json needs to describe a run, got something else in '{tmp_path}'; check the path"


def test_a_file_that_lost_a_part_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT, "study": "s", "metric": "m", "mode": "max"}))
    assert refusal(tmp_path) == (
        f"run.json needs study, metric, mode, status, started, got one without status, started in '{tmp_path}'; "
        "restore it"
    )


def test_a_newer_format_is_refused_whatever_else_it_holds(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT + 1}))
    assert refusal(tmp_path) == (
        f"this tuner reads runs up to format {FORMAT}, got format {FORMAT + 1} in '{tmp_path}'; update tuner"
    )


@pytest.mark.parametrize("name", ["nowhere", "a_file"])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a_file").write_text("")
    assert refusal(tmp_path / name) == (
        f"a run is a folder with run.json, got '{tmp_path / name}', with none in it or below it; "
        "`python -m tuner runs` lists all runs"
    )


def test_a_folder_without_the_file_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError) as caught:
        Run(LocalFolder(tmp_path))
    assert str(caught.value) == f"a run is a folder with run.json, got '{tmp_path}', which has none; check the path"


# Making


def test_a_new_run_is_named_by_its_start_in_utc_and_a_second_one_gets_a_suffix(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    folders = [new_run_folder(tmp_path, "digits") for _ in range(3)]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-[23])?", folder.name) for folder in folders)
    stamp = datetime.strptime(folders[0].name, "%Y-%m-%dT%H-%M-%S").replace(tzinfo=UTC)
    assert before <= stamp <= datetime.now(UTC)
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == sorted(folder.name for folder in folders)
    assert len({folder.name for folder in folders}) == 3


def test_a_storage_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("")
    with pytest.raises(RunFolderError) as caught:
        new_run_folder(tmp_path / "a_file", "digits")
    assert str(caught.value) == (
        f"--storage needs a folder that can be written to, got '{tmp_path / 'a_file'}' (Not a directory); "
        "choose another"
    )


def test_the_info_is_stamped_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_info(LocalFolder(tmp_path), {**INFO, "path": Path("a/b")})
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    info = json.loads((tmp_path / "run.json").read_text())
    assert info["path"] == "a/b"
    assert datetime.fromisoformat(info["updated"]).tzinfo is not None
