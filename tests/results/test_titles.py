"""A run's title: what may be one, where it shows, and that the folder and its files stay as they are."""

from pathlib import Path

import pytest

from tests.commands import run_main
from tests.results.simulated import simulated
from tuner import load_run
from tuner.errors import RunFolderError
from tuner.html_report import report_html
from tuner.results.titles import TITLE_FILE, rename
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held


def test_a_title_shows_in_runs_show_and_report_and_the_folder_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulated(tmp_path / "runs" / "study" / "1")
    simulated(tmp_path / "runs" / "study" / "2")
    assert run.title == "simulated"
    code, out, _ = run_main(capsys, "rename", run.path, "batch norm, größer")
    assert (code, out) == (0, f"{run.path} is called 'batch norm, größer' now\n")
    named = load_run(run.path)
    assert (named.title, named.name, named.path) == ("batch norm, größer", "simulated", run.path)
    assert named.events == run.events
    _, out, _ = run_main(capsys, "runs", "--storage", tmp_path / "runs")
    assert len([line for line in out.splitlines() if "batch norm, größer" in line]) == 1
    _, out, _ = run_main(capsys, "show", run.path)
    assert out.startswith("batch norm, größer in ")
    assert "batch norm, größer" in report_html(named)
    assert "batch norm, größer" in named._repr_html_()


def test_a_run_may_be_renamed_while_it_is_driven_and_the_last_title_counts(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    with held(run.folder):
        rename(run.folder, "first")
        rename(run.folder, "  second ")
    assert load_run(tmp_path).title == "second"


@pytest.mark.parametrize(
    ("title", "got"),
    [
        ("", "''"),
        ("   ", "'   '"),
        ("x" * 101, "101 of them"),
        ("two\nlines", "two"),
        ("\x1b[31mred", "x1b"),
        ("turned \u202e round", "u202e"),
        ("\ud800", "ud800"),
    ],
)
def test_what_cannot_be_shown_is_refused(tmp_path: Path, title: str, got: str) -> None:
    with pytest.raises(RunFolderError, match="a run's name needs 1 to 100 characters that can be shown, got") as raised:
        rename(LocalFolder(tmp_path), title)
    assert got in str(raised.value)
    assert not (tmp_path / TITLE_FILE).exists()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"\x1b[2J", b"x" * 5000])
def test_somebody_elses_file_is_no_title(tmp_path: Path, content: bytes) -> None:
    simulated(tmp_path)
    (tmp_path / TITLE_FILE).write_bytes(content)
    assert load_run(tmp_path).title == "simulated"


def test_a_link_out_of_the_folder_is_no_title(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    simulated(tmp_path / "run")
    (tmp_path / "run" / TITLE_FILE).symlink_to(tmp_path / "secret")
    assert load_run(tmp_path / "run").title == "simulated"
