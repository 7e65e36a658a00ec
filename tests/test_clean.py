"""`tuner clean`: the table, what is asked before anything goes, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.commands import run_main
from tests.results.test_cleaning import interrupted
from tuner import load_run
from tuner.history.run_info import write_info
from tuner.storage.lease import held


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    interrupted(tmp_path / "runs" / "study" / "1")
    interrupted(tmp_path / "runs" / "study" / "2")
    return tmp_path / "runs"


def sizes(storage: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in sorted(storage.rglob("*")) if path.is_file()}


def test_it_shows_and_deletes_nothing_by_default(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sizes(storage)
    code, out, _ = run_main(capsys, "clean", "--storage", storage)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == [
        *("run", "(sizes", "in", "MB)", "status", "best/", "front", "checkpoints", "files", "logs", "W&B", "Ray", "other", "total")
    ]  # fmt: skip
    assert len([line for line in lines if "interrupted" in line]) == 2
    assert lines[-2].endswith("left by searches that are dead (--ray)")
    assert lines[-1] == "0.0 MB in tuner's cache of decoded images (--cache)"
    assert sizes(storage) == before


def test_a_dry_run_says_what_would_go(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sizes(storage)
    code, _, err = run_main(capsys, "clean", "--storage", storage, "--checkpoints", "--logs", "--dry-run")
    assert (code, sizes(storage)) == (0, before)
    assert err.startswith("would delete checkpoints, logs of 2 runs: 0.0 MB")
    one = storage / "study" / "1"
    _, _, err = run_main(capsys, "clean", one, "--checkpoints", "--logs", "--keep-best", "--dry-run")
    assert err.startswith("would delete checkpoints but the winner's, logs of 1 run: ")


def test_without_a_terminal_it_deletes_only_with_yes(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sizes(storage)
    code, _, err = run_main(capsys, "clean", "--storage", storage, "--logs")
    assert code == 2
    assert "clean asks before it deletes, got no terminal to ask at; add --yes" in err
    assert sizes(storage) == before
    code, _, err = run_main(capsys, "clean", "--storage", storage, "--logs", "--yes")
    assert (code, err) == (0, "deleted logs of 2 runs: 0.0 MB\n")
    assert before.keys() - sizes(storage).keys() >= {str(storage / "study" / run / "logs/00000.log") for run in "12"}


def test_a_run_that_is_named_goes_alone(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_main(capsys, "clean", storage / "study" / "1", "--run", "--yes", "--json")
    found = json.loads(out)
    assert code == 0
    (one,) = found["runs"]
    assert one["freed_bytes"] == one["bytes"]["total"] == found["freed_bytes"] > 0
    assert not (storage / "study" / "1").exists()
    assert load_run(storage / "study" / "2").status == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run"], "--run needs the runs to delete, or --older, got neither"),
        (["--run", "--older", "1d", "--keep-best"], "--run deletes whole runs, got --keep-best too"),
        (["--older", "soon"], "argument --older: needs a number with m, h, d or w, as in 12h or 30d, got 'soon'"),
        (["nowhere"], "a run is a folder with run.json, got 'nowhere'"),
    ],
)
def test_careless_use_is_refused(
    storage: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_main(capsys, "clean", "--storage", storage, *arguments, "--yes")
    assert code == 2
    assert message in err
    assert len(sizes(storage)) > 4


def test_runs_that_are_too_young_stay(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sizes(storage)
    _, _, err = run_main(capsys, "clean", "--storage", storage, "--run", "--older", "30d", "--yes")
    assert "nothing is to be deleted" in err
    assert sizes(storage) == before


def test_a_storage_without_runs_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_main(capsys, "clean", "--storage", tmp_path / "nowhere")
    assert (code, out.splitlines()[0]) == (0, "no runs")


def test_a_run_that_a_search_works_on_is_named(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = load_run(storage / "study" / "1")
    write_info(run.folder, {**run.info, "status": "running"})
    with held(run.folder):
        code, _, err = run_main(capsys, "clean", run.path, "--checkpoints", "--yes")
    assert code == 0
    assert f"a search works on {run.path}; wait until it ends" in err


def test_what_could_not_be_deleted_is_a_failure_and_no_success_is_told(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load_run(storage / "study" / "1")
    with held(run.folder):  # by a driver that has only just begun
        code, _, err = run_main(capsys, "clean", run.path, "--checkpoints", "--yes")
    assert code == 2
    assert "left alone" in err
    assert "deleted checkpoints" not in err
