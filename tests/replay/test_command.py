"""`tuner replay` as it prints and exits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.replay.recorded import searched
from tests.replay.test_replaying import FUNCTION, plain, text
from tuner.cli import main

ROW = re.compile(r" +(\d+) +(\S+) +(\S+) +(.*)")


def test_another_curve_is_shown_with_its_differences_and_exit_code_1(tmp_path: Path, capfd: Any) -> None:
    searched(tmp_path / "run", text('{"x": 0.5}', body=FUNCTION.replace("report(loss", "print('said'); report(loss")))
    capfd.readouterr()
    _record_another_loss(tmp_path / "run/events/000001.jsonl", epoch=2, loss=99.5)
    assert main(["replay", str(tmp_path / "run"), "0"]) == 1
    shown = capfd.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "versions, study, data and hardware are as they were"
    assert lines[1] == "epoch  recorded  replayed  (loss)"
    found = [ROW.fullmatch(line) for line in lines[2:6]]
    rows = [row.groups() for row in found if row is not None]
    assert [(row[0], row[3].split(" by ")[0]) for row in rows] == [
        ("1", "equal"),
        ("2", "loss differs"),
        ("3", "equal"),
        ("4", "equal"),
    ]
    assert rows[1][1] == "99.5"
    assert lines[6:] == ["the curve differs from epoch 2 on, in loss; equal curves are not promised here."]
    assert "said" in shown.err  # what the trial prints


@pytest.mark.slow
def test_epochs_and_threads_are_as_asked_for(tmp_path: Path, capfd: Any) -> None:
    searched(tmp_path / "run", plain())
    capfd.readouterr()
    main(["replay", str(tmp_path / "run"), "0", "--epochs", "3", "--cpus", "2", "--json"])
    told = json.loads(capfd.readouterr().out)
    assert told["differences"] == ["the trial had 1 CPU threads, and gets 2"]
    assert [epoch["epoch"] for epoch in told["epochs"]] == [1, 2, 3]


def _record_another_loss(events: Path, *, epoch: int, loss: float) -> None:
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    for event in lines:
        del event["sum"]  # as format 1 has them
        if event["event"] == "epoch_reported" and event["epoch"] == epoch:
            event["metrics"]["loss"] = loss
    events.write_text("".join(json.dumps(event) + "\n" for event in lines))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["9"], "tuner: a trial is named by its id, got '9'; this run has 00000 to 00000"),
        (["0", "--output", "."], "tuner: --output needs a new or an empty folder, got '.'; name another one"),
    ],
)
def test_a_mistake_gets_one_message_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    searched(tmp_path / "run", text('{"x": 0.5}', body=FUNCTION))
    assert main(["replay", str(tmp_path / "run"), *arguments]) == 2
    assert capsys.readouterr().err.splitlines() == [message]


def test_a_trial_that_kills_its_process_is_a_sentence_and_exit_code_1(tmp_path: Path, capfd: Any) -> None:
    searched(tmp_path / "run", text('{"x": 0.5}', body=FUNCTION))
    events = tmp_path / "run/events/000001.jsonl"
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    for line in lines:
        line.pop("sum", None)
        if "study_file" in line:
            killing = "__import__('os').kill(__import__('os').getpid(), 9)"
            line["study_file"] = line["study_file"].replace("report(loss=state)", killing)
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["replay", str(tmp_path / "run"), "0"]) == 1
    assert capfd.readouterr().err.endswith("tuner: a replay's process needs to end by itself, got exit code -9\n")
