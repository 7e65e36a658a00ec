"""Users' orders to a search whose trials its own program runs, and the commands on its run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ask_tell.asked import epoch_of, study, train, train_all
from tuner import Budget, Random, ReportError, Run, Search, StudyError, load_run, uniform
from tuner.ask_tell import AskedTrial
from tuner.cli.main import main
from tuner.lifecycle.writing_best import write_as_saved


@pytest.fixture
def search(tmp_path: Path) -> Iterator[Search]:
    with Search(study(budget=Budget(trials=4, max_epochs=3)), storage=tmp_path) as search:
        yield search


@pytest.fixture
def trial(search: Search) -> AskedTrial:
    trial = search.ask()
    assert trial is not None
    return trial


def test_a_trial_that_is_stopped_by_order_is_told_so(search: Search, trial: AskedTrial) -> None:
    epoch_of(search, trial, 1)
    assert search.run.stop(trial=trial.id).outcome == "obeyed"
    assert epoch_of(search, trial, 2) == "stop"
    assert epoch_of(search, trial, 2) == "stop"
    search.tell(trial)
    assert search.run.record.trials[trial.id].ended_by == "stop"


def test_a_search_that_is_stopped_is_concluded(search: Search, trial: AskedTrial) -> None:
    epoch_of(search, trial, 1)
    assert search.run.stop().outcome == "obeyed"
    assert search.ask() is None
    assert epoch_of(search, trial, 2) == "stop"
    assert (search.run.status, search.run.end_reason) == ("finished", "stop")


def test_a_paused_search_takes_one_more_report_of_each_trial_and_goes_on_later(
    search: Search, trial: AskedTrial, tmp_path: Path
) -> None:
    assert search.run.pause().outcome == "obeyed"
    assert search.poll() is None
    assert epoch_of(search, trial, 1, tmp_path / "saved") == "pause"
    search.tell(trial)
    assert search.ask() is None
    run = search.run
    assert (run.status, run.info["interrupted_by"].startswith("paused by")) == ("interrupted", True)
    with Search.resume(run.path, study(budget=Budget(trials=4, max_epochs=3))) as later:
        again = later.ask()
        assert again is not None
        assert (again.id, again.from_epoch) == (trial.id, 1)
        train(later, again)
        train_all(later)
    assert later.run.record.counts()["completed"] == 4


def test_set_try_and_note_are_obeyed(search: Search, trial: AskedTrial) -> None:
    assert search.run.set(trials=2).outcome == "obeyed"
    assert search.run.note("warm today", trial=trial.id).outcome == "obeyed"
    assert search.run.try_({"x": 0.25, "kind": "a"}).outcome == "obeyed"
    train(search, trial)
    ordered = search.ask()
    assert ordered is not None
    assert ordered.config == {"x": 0.25, "kind": "a"}
    train(search, ordered)
    assert search.ask() is None
    assert len(search.run.record.trials) == 2


def test_concurrency_may_be_set(search: Search, trial: AskedTrial) -> None:
    search.run.set(concurrency=2)
    assert search.poll() is not None
    assert search.poll() is None
    assert not search.finished


@pytest.mark.parametrize("option", [{"trials": 4}, {"concurrency": 3}])
def test_an_option_of_resume_counts_more_than_an_order_that_waited(
    search: Search, trial: AskedTrial, option: dict[str, int]
) -> None:
    train(search, trial)
    search.close()
    assert search.run.set(trials=2, concurrency=2).outcome == "waiting"
    with Search.resume(search.run.path, study(budget=Budget(trials=9, max_epochs=3)), **option) as later:
        study_now, now = later._loop.study, later._loop.concurrency
        assert (study_now.budget.trials, now) == {"trials": (4, 2), "concurrency": (2, 3)}[next(iter(option))]
        (obeyed,) = [each for each in later.run.events if each["event"] == "order_obeyed"]
        assert obeyed["arguments"] == {name: 2 for name in ("trials", "concurrency") if name not in option}


def test_an_order_of_which_nothing_is_left_is_refused(search: Search, trial: AskedTrial) -> None:
    train(search, trial)
    search.close()
    assert search.run.set(trials=1).outcome == "waiting"
    with Search.resume(search.run.path, study(), trials=3) as later:
        assert later.ask() is not None
        (refused,) = [each for each in later.run.events if each["event"] == "order_refused"]
        assert refused["message"] == (
            "set needs a limit or concurrency, got none that options given later have left; order it again"
        )
    with Search.resume(search.run.path, study()) as later:  # what was given stays
        assert later._loop.study.budget.trials == 3


def test_a_failed_trial_is_retried_by_order(search: Search, trial: AskedTrial) -> None:
    search.tell(trial, error="broken")
    with pytest.raises(ReportError, match="which is failed"):
        epoch_of(search, trial, 1)
    assert search.run.retry().outcome == "obeyed"
    again = search.ask()
    assert again is not None
    assert (again.id, again.attempt) == (trial.id, 2)


def test_commands_read_and_export_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Search(study(), storage=tmp_path / "runs") as search:
        train_all(search)
        path = search.run.path
    assert main(["show", path]) == 0
    assert main(["show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["status"] == "finished"
    assert main(["export", path, "--to", "optuna", str(tmp_path / "optuna.db")]) == 0


def test_run_and_resume_say_what_to_do_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Search(study(), storage=tmp_path / "runs") as search:
        search.ask()
    path = search.run.path
    assert main(["resume", path]) == 2
    told = capsys.readouterr().err
    assert "resume needs a run whose trials tuner runs" in told
    assert f"tuner.Search.resume({path!r})" in told
    (tmp_path / "lab.py").write_text(
        "from tuner import *\nstudy = Study('lab', trial=External('lab'), space={'x': uniform(0, 1)}, metric='loss')\n"
    )
    assert main(["run", str(tmp_path / "lab.py"), "--storage", str(tmp_path / "other")]) == 2
    told = capsys.readouterr().err
    assert "got the external trial 'lab'; ask for its trials in your own program with tuner.Search(study)" in told
    assert not (tmp_path / "other").exists()
    assert main(["check", str(tmp_path / "lab.py")]) == 0


@pytest.fixture
def concluding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run whose driver copies the winner until the test has ended."""
    begun, done = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> None:
        begun.set()
        done.wait(60)
        write_as_saved(*arguments)

    monkeypatch.setattr("tuner.ask_tell.driver.write_as_saved", slowly)
    search = Search(study(budget=Budget(trials=2, max_epochs=3)), storage=tmp_path)
    thread = threading.Thread(target=lambda: train_all(search))
    thread.start()
    assert begun.wait(60)
    yield load_run(tmp_path)
    done.set()
    thread.join(60)


def test_what_is_ordered_while_the_winner_is_written_waits_and_says_until_when(
    concluding: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = concluding.path
    assert main(["set", path, "--trials", "3"]) == 0
    assert capsys.readouterr().out == (
        "its search has just ended: the order waits in the run's inbox, and once its winner and report are written, is "
        f"carried out first by: tuner.Search.resume({path!r}, trials=3)\n"
    )
    assert concluding.try_({"x": 0.25, "kind": "a"}).message.endswith(", trials=3)")
    assert concluding.note("seen").outcome == "waiting"


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("stop", "tuner.Search.resume({!r}, trials=12)"),
        ("pause", "tuner.Search.resume({!r}, trials=12)"),
        ("retry", "python -m tuner retry {}"),
        ("confirm", "python -m tuner confirm {}"),
    ],
)
def test_what_needs_a_search_is_refused_while_the_winner_is_written(
    concluding: Run, verb: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, concluding.path]) == 2
    assert (
        "whose search has just ended; once its winner and report are written, go on with it by: "
        f"{instead.format(concluding.path)}\n"
    ) in capsys.readouterr().err
    assert not concluding.folder.files("inbox")


def test_options_of_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="weights"):
        Search(study(search=Random(), space={"x": uniform(0, 1)}), storage=tmp_path, weights="none")  # type: ignore[arg-type]
