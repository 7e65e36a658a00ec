import csv
import io
import shlex
from pathlib import Path

import pandas as pd
import pytest

from tests.console.test_tables import make
from tests.history.events_of_a_run import ended, event, fold, reported, started
from tests.results.simulated import simulated
from tuner import load_run
from tuner.cli import main
from tuner.console.live_table import Lines, Plan, Progress
from tuner.history.run_info import write_info
from tuner.html_report import write_report
from tuner.results import export
from tuner.results.findings import findings_of
from tuner.results.rest_simulation import Ahead
from tuner.results.tables import history_table, write_tables
from tuner.storage.folder import LocalFolder
from tuner.text import command, in_utf8, printable, spreadsheet_cell, text_of_cell

HOSTILE = "\x1b]0;title\x07\x1b[2J\r\x9b31m\u202egnp.exe\u2066\ud800 end"
SHOWN = r"\x1b]0;title\x07\x1b[2J\r\x9b31m\u202egnp.exe\u2066\ud800 end"
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", "'=1", "''@x", "'plain'", "plain", "", "a=b", "-"]


def is_clean(text: str) -> bool:
    return not any(sign in text for sign in "\x1b\x07\r\x9b\u202e\u2066\ud800")


def test_what_would_command_a_terminal_is_written_out_and_all_else_stays() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("line\n\tnext “quoted” \\ 数字 👩‍💻 é") == "line\n\tnext “quoted” \\ 数字 👩‍💻 é"
    assert printable(Path("a/b")) == "a/b"


def test_all_texts_of_plain_data_can_be_encoded() -> None:
    found = in_utf8({"\udcff": ["a\ud800", 1, None, {"b": "\udfff"}], "c": "é"})
    assert found == {"\\udcff": ["a\\ud800", 1, None, {"b": "\\udfff"}], "c": "é"}


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_is_no_formula_and_reads_back(text: str) -> None:
    cell = spreadsheet_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert text_of_cell(cell) == text


@pytest.mark.parametrize("value", [-1, -0.5, None, True])
def test_numbers_stay_numbers(value: object) -> None:
    assert spreadsheet_cell(value) is value


def hostile_run(folder: Path) -> None:
    """A run with control characters, surrogates and formulas in every text."""
    make(
        folder,
        event("study_started", 100.0, trials=2),
        started(0, 101.0, {HOSTILE: HOSTILE, "=cmd": "=1+1", "lr": -0.5}),
        reported(0, 1, 103.0, HOSTILE, **{"accuracy": 0.5, HOSTILE: 1.0, "=metric": "@x"}),
        ended(0, "completed", 105.0),
        started(1, 106.0, {"=cmd": "-2"}),
        ended(1, "failed", 109.0, cause=HOSTILE, message=HOSTILE, traceback=HOSTILE),
        event("notice", 110.0, message=HOSTILE),
        study=HOSTILE,
        end_reason=HOSTILE,
        report=HOSTILE,
        search=HOSTILE,
        rungs=HOSTILE,
        space={HOSTILE: {"constant": HOSTILE}, "lr": {"domain": "uniform(-1, 1)"}},
    )


@pytest.mark.parametrize(
    "arguments",
    [["show"], ["show", "--trial", "0"], ["show", "--trial", "1"], ["show", "--watch"], ["show", "--trial", HOSTILE],
     ["report"], ["compare"], ["runs"]],
    ids=ascii,
)  # fmt: skip
def test_no_verb_lets_a_control_character_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    folder = tmp_path / "a \x1b[2J\u202e \udcff"
    for name in ("1", "2"):
        hostile_run(folder / name)
    verb, *more = arguments
    runs = (
        ["--storage", str(folder)]
        if verb == "runs"
        else [str(folder / "1"), *([str(folder / "2")] if verb == "compare" else [])]
    )
    code = main([verb, *runs, *more])
    told = capsys.readouterr()
    assert code == (2 if HOSTILE in more else 0)
    assert is_clean(told.out + told.err)
    assert r"\x1b[2J" in told.out + told.err


def test_progress_lines_are_clean() -> None:
    stream = io.StringIO()
    lines = Lines(Progress(Plan(HOSTILE, "accuracy", "max", Ahead(1, 9))), stream)
    with lines:
        for one in (
            started(0, 1.0, {"a": HOSTILE}),
            event("notice", 2.0, message=HOSTILE),
            ended(0, "failed", 3.0, cause="error", message=HOSTILE),
        ):
            lines.on_event(one)
    assert is_clean(stream.getvalue())
    assert stream.getvalue().count(SHOWN) >= 4


def test_tables_hold_any_text_and_run_nothing(tmp_path: Path) -> None:
    hostile_run(tmp_path)
    run = load_run(tmp_path)
    write_tables(LocalFolder(tmp_path), run.record)
    export(run, "csv", tmp_path / "out")
    export(run, "parquet", tmp_path / "out")
    for name in ("trials", "history"):
        content = (tmp_path / f"{name}.csv").read_bytes().decode()
        assert (tmp_path / "out" / f"{name}.csv").read_bytes().decode() == content
        cells = [cell for row in csv.reader(io.StringIO(content, newline="")) for cell in row]
        texts = [cell for cell in cells if not cell.replace(".", "").removeprefix("-").isdigit()]
        assert [cell for cell in texts if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))] == []
    trials = pd.read_csv(tmp_path / "trials.csv")
    assert trials["config/lr"].tolist()[0] == -0.5
    assert [text_of_cell(value) for value in trials["config/=cmd"]] == ["=1+1", "-2"]
    history = pd.read_csv(tmp_path / "history.csv").rename(columns=text_of_cell)
    assert history["=metric"].map(text_of_cell).tolist() == ["@x"]
    assert pd.read_parquet(tmp_path / "out/history.parquet")["=metric"].tolist() == ["@x"]


def test_a_driver_whose_metrics_are_not_utf_8_writes_its_tables(tmp_path: Path) -> None:
    record = fold(started(0, 1.0, {"path": "\udcff.png"}), reported(0, 1, 2.0, **{"accuracy": 0.5, "\udcfe": "\ud800"}))
    write_tables(LocalFolder(tmp_path), record)
    assert "\\udcff.png" in (tmp_path / "trials.csv").read_text(encoding="utf-8")
    assert list(history_table(record).columns) == ["trial", "epoch", "time", "decision", "accuracy", "\\udcfe"]


def test_a_report_of_texts_that_are_not_utf_8_is_written(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    write_info(run.folder, {**run.info, "study": "\udcff", "study_file": "/\udcff.py"})
    write_report(load_run(tmp_path))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>\\udcff</h1>" in page
    assert "/\\udcff.py" in page


def test_a_command_is_typed_as_it_is_printed_whatever_the_path() -> None:
    assert command("resume", "runs/a/1") == "python -m tuner resume runs/a/1"
    for path in ("my runs/a;b/1", "it's", "$HOME", "-x", "a\nb"):
        assert shlex.split(command("resume", path))[-1] == path


def test_the_advice_of_a_run_in_a_folder_with_a_space_can_be_typed(tmp_path: Path) -> None:
    run = simulated(tmp_path / "my runs" / "1")
    commands = [shlex.split(advice.command) for advice in findings_of(run).advice if advice.command]
    assert commands
    for words in commands:
        assert words[:3] == ["python", "-m", "tuner"]
        assert words[4] == run.path
    (show,) = (words for words in commands if words[3] == "show")
    assert main(show[3:]) == 0
