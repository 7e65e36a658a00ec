"""Orders as commands and `Run` send them: to a search that runs, to one that doesn't, and to one that never answers."""

from __future__ import annotations

import json
import platform
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.loop.simulation import build, study
from tests.results.simulated import simulated
from tests.searches import wait_for
from tuner import Run, load_run
from tuner.cli.main import main
from tuner.errors import RunFolderError, StudyError
from tuner.history.events import Event, read_events
from tuner.history.run_info import FORMAT, write_info
from tuner.history.steered import Steered
from tuner.html_report import report_html
from tuner.lifecycle.obedience import Orders, foreseen_study, with_orders
from tuner.loop.search_loop import SearchLoop
from tuner.orders.inbox import put
from tuner.orders.order import Order
from tuner.orders.sending import LOOK_SECONDS
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held


@contextmanager
def running(folder: Path) -> Iterator[SearchLoop]:
    """A search without Ray that holds its run's lease, and obeys in a thread until it has ended."""
    info = {"study": "simulated", "metric": "loss", "mode": "min", "status": "running", "started": "2026"}
    write_info(LocalFolder(folder), {**info, "format": FORMAT, "host": platform.node(), "budget": {"trials": 6}})
    with held(LocalFolder(folder)), Orders(LocalFolder(folder)) as orders:
        loop = build(study(), folder)
        loop.next_action()
        over = threading.Event()

        def drive() -> None:
            while not over.wait(0.02) and not loop.stopped:
                orders.obey(loop)
            orders.obey_the_last(loop, interrupted=False)
            loop.end()
            loop.close()

        thread = threading.Thread(target=drive)
        thread.start()
        try:
            yield loop
        finally:
            over.set()
            thread.join(300)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(simulated(tmp_path_factory.mktemp("searched")).path)


@pytest.fixture
def finished(searched: Path, tmp_path: Path) -> Run:
    """A run of 24 trials whose search is over."""
    return load_run(shutil.copytree(searched, tmp_path / "run"))


def test_a_running_search_answers_each_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path):
        run = load_run(tmp_path)
        assert run.set(trials=9).message == "trials is 9 now, was 6"
        assert main(["try", str(tmp_path), "x=0.25"]) == 0
        assert "the next free worker tries {'x': 0.25}" in capsys.readouterr().out
        assert main(["note", str(tmp_path), "look", "--trial", "0", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["outcome"], told["verb"], told["arguments"]) == ("obeyed", "note", {"text": "look", "trial": "0"})
        assert main(["try", str(tmp_path), "x=7"]) == 2
        assert "outside of uniform(0, 1)" in capsys.readouterr().err
        with pytest.raises(RunFolderError, match="outside of"):
            run.try_({"x": 7})
        assert run.note("soon", wait=False).outcome == "sent"
        assert main(["stop", str(tmp_path), "--trial", "0"]) == 0
        assert main(["stop", str(tmp_path)]) == 0
    record = load_run(tmp_path).record
    assert (record.ended, record.trials["00000"].ended_by) == ("stop", "stop")
    assert [note.text for note in record.steered.notes] == ["look", "soon"]
    assert list((tmp_path / "inbox").iterdir()) == []


def test_an_order_that_comes_too_late_is_taken_back_or_waits(tmp_path: Path) -> None:
    with running(tmp_path) as loop:
        loop.obey(Order("first", "stop", by="me"))
        run = Run(LocalFolder(tmp_path))
        answers: dict[str, object] = {}

        def pause() -> None:
            try:
                answers["pause"] = run.pause().message
            except RunFolderError as error:
                answers["pause"] = str(error)

        thread = threading.Thread(target=pause)
        thread.start()
        thread.join(300)
    assert "ended" in str(answers["pause"])
    assert list((tmp_path / "inbox").iterdir()) == []


def test_a_driver_that_is_about_to_go_on_is_waited_for_or_named(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.orders.sending.LIFE_SECONDS", 0.0)
    with held(finished.folder) as lease, Orders(finished.folder) as orders:
        with pytest.raises(RunFolderError, match=r"driver is starting or ending just now; try again in a few seconds"):
            finished.pause()
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(finished.note("while it starts").outcome))
        thread.start()
        wait_for(lambda: finished.folder.files("inbox") != [], 20)
        time.sleep(3 * LOOK_SECONDS)  # it has looked whether somebody will answer
        loop = build(study(), finished.folder.path, history=finished.events)  # type: ignore[attr-defined]
        while thread.is_alive():
            orders.obey(loop)
            time.sleep(0.02)
        loop.close()
    assert (answers, lease.lost) == (["obeyed"], False)


def test_a_driver_that_takes_a_run_again_is_waited_for_before_its_first_event(finished: Run) -> None:
    write_info(finished.folder, {**finished.info, "status": "running"})  # as `resume` does before it
    time.sleep(1.0)  # a lease names whole seconds
    with held(finished.folder):
        assert finished.note("while it starts", wait=False).outcome == "sent"
        with pytest.raises(RunFolderError, match=r"driver is starting or ending just now; try again in a few seconds"):
            finished.stop()


def test_hours_that_a_run_has_used_already_are_told_at_once(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    used = finished.record.active_seconds
    assert used > 0
    assert main(["set", finished.path, "--hours", str(used / 7200)]) == 0
    assert "so that no further trial would start with a limit of" in capsys.readouterr().out
    assert "that is all 24 that were begun: no further one starts" in finished.set(trials=24).message


def test_a_limit_that_a_run_has_reached_already_is_told_at_once(
    finished: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    used = finished.record.search_epochs()
    told = f"; the run has used {used} epochs already, so that no further trial would start with a limit of {used - 5}"
    assert main(["set", finished.path, "--total-epochs", str(used - 5)]) == 0
    assert capsys.readouterr().out.endswith(f"{told}\n")
    tried = finished.try_({"lr": 0.01}).message
    assert tried.endswith(
        f"{told}, nor this one; set another first: python -m tuner set {finished.path} --total-epochs N"
    )
    assert "already" not in finished.set(total_epochs=used + 5).message
    assert "already" not in finished.try_({"lr": 0.02}).message  # the order before it waits, too
    assert "the run has reached loss" in finished.set(target=1e9).message


def test_what_waits_for_resume_says_so(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["set", finished.path, "--trials", "40", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "waiting"
    assert told["message"].endswith(f"is carried out first by: tuner.resume({finished.path!r}, study=study, trials=40)")
    assert finished.note("mine").message.endswith(
        f"is carried out first by: tuner.resume({finished.path!r}, study=study)"
    )
    assert finished.try_({"lr": 0.01}).outcome == finished.note("later").outcome == "waiting"
    assert len(finished.folder.files("inbox")) == 4


def test_what_waits_is_carried_out_without_more_trials_than_were_ordered(finished: Run) -> None:
    write_info(finished.folder, {**finished.info, "end_reason": "trials", "study_file": "study.py"})
    run = load_run(finished.path)
    resumed = f"is carried out first by: python -m tuner resume {run.path}"
    assert run.note("mine").message.endswith(resumed)
    assert run.set(hours=9).message.endswith(resumed)
    assert run.try_({"lr": 0.01}).message.endswith(f"{resumed} --trials 25")
    assert run.try_({"lr": 0.02}).message.endswith(f"{resumed} --trials 26")


def test_a_try_for_an_interrupted_run_whose_trials_have_all_begun_says_how_many_it_needs(finished: Run) -> None:
    info = {**finished.info, "status": "interrupted", "study_file": "study.py"}
    write_info(finished.folder, {**info, "budget": {"trials": 24, "max_epochs": 9}})
    assert load_run(finished.path).try_({"lr": 0.01}).message.endswith(f"resume {finished.path} --trials 25")
    write_info(finished.folder, {**info, "budget": {"trials": 30, "max_epochs": 9}})
    assert load_run(finished.path).try_({"lr": 0.02}).message.endswith(f"resume {finished.path}")


def test_a_configuration_that_a_trial_has_is_refused_before_it_waits(finished: Run) -> None:
    with pytest.raises(RunFolderError, match=r"try needs a configuration that no trial had, got .*, which trial 00007"):
        finished.try_(finished.trial("7").config)
    assert not (Path(finished.path) / "inbox").exists()


def test_hours_that_are_too_short_are_said_before_a_search_runs(
    finished: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    hours = finished.record.wall_seconds / 3600 * 1.01
    assert "raise hours, too" in finished.set(trials=1000, hours=hours).message
    assert main(["set", finished.path, "--trials", "1000", "--hours", str(hours)]) == 0
    assert "raise hours, too" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stop"], "'stop' needs a search that runs, got"),
        (["stop", "--trial", "3"], "trial 00003 has ended"),
        (["pause"], "'pause' needs a search that runs, got"),
        (["pause"], "which is finished: there is nothing to pause; go on with it by: "),
        (["set"], "set needs a limit or --concurrency"),
        (["set", "--trials", "3"], "trials counts the whole run and needs at least the 24"),
        (["set", "--trials", "0"], "needs a whole number of at least 1"),
        (["try", "lr"], "needs NAME=VALUE, got 'lr'; write lr=0.001"),
        (["try", "lr=7"], "try needs values inside the space, got lr=7"),
        (["try", "rate=7"], "'rate' is not in the space"),
        (["note", ""], "note text needs words"),
        (["note", "look", "--trial", "77"], "a trial is named by its id, got '00077'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    searched: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([arguments[0], str(searched), *arguments[1:]])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (searched / "inbox").exists()


def test_a_trial_that_waits_for_resume_has_not_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = {
        "study": "simulated",
        "metric": "loss",
        "mode": "min",
        "status": "running",
        "started": "2026",
        "format": FORMAT,
    }
    write_info(LocalFolder(tmp_path), info)
    loop = build(study(), tmp_path)
    loop.next_action()
    loop.end(interrupted_by="Ctrl-C")
    loop.close()
    assert load_run(tmp_path).trial("0").live
    assert main(["stop", str(tmp_path), "--trial", "0"]) == 2
    assert "trial 00000 does not run now; go on with it by" in capsys.readouterr().err
    assert main(["stop", str(tmp_path), "--trial", "77"]) == 2
    assert "a trial is named by its id, got '00077'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "limits", "options"),
    [
        ("trials", {}, "--trials 34"),
        ("total_epochs", {"total_epochs": 200}, "--total-epochs 300"),
        ("total_epochs", {"total_epochs": 100}, "--total-epochs 175"),  # it went beyond
        ("total_epochs", {}, ""),
        ("hours", {"hours": 4.0}, "--hours 6"),
        ("device_hours", {"device_hours": 3.0}, "--device-hours 4.5"),
        ("target", {"target": 0.1}, ""),
    ],
)
def test_a_search_that_a_limit_ended_is_gone_on_with_by_a_larger_one(
    finished: Run, reason: str, limits: dict[str, float], options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {
        "study_file": "space.py",
        "status": "finished",
        "end_reason": reason,
        "budget": {**finished.budget, **limits},
    }
    write_info(finished.folder, {**finished.info, **told})
    assert main(["stop", finished.path]) == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith(f"go on with it by: python -m tuner resume {finished.path} {options}".rstrip())


def test_an_unknown_limit_is_named_from_python(finished: Run) -> None:
    with pytest.raises(StudyError, match="a search has no limit 'trails'; did you mean 'trials'"):
        finished.set(trails=3)


def test_options_of_a_run_are_what_was_given_and_set_last() -> None:
    options = {"trials": 4, "seed": 1}
    assert with_orders(options, Steered(limits={"trials": 9})) == {"trials": 9, "seed": 1}
    assert with_orders(options, Steered(given={"hours": 1.0}, limits={"trials": 9})) == {
        "trials": 9,
        "hours": 1.0,
        "seed": 1,
    }


def test_a_resume_foresees_what_waits_for_it() -> None:
    waiting = [Order("a", "set", {"trials": 9}), Order("b", "set", {"min_improvement": 1.0}), Order("c", "note", {})]
    assert foreseen_study(study(), waiting).trials == 9


def test_the_terminal_shows_who_ordered_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path):
        load_run(tmp_path).note("the fan is loud", trial=0)
        load_run(tmp_path).stop()
    assert main(["show", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "trial 00000: the fan is loud" in out
    assert main(["show", str(tmp_path), "--trial", "0"]) == 0
    out = capsys.readouterr().out
    assert "stopped by an order" in out
    assert "the fan is loud" in out


def test_the_report_has_notes_and_runs_no_script_in_them(tmp_path: Path) -> None:
    with running(tmp_path):
        load_run(tmp_path).note("<script>alert(1)</script> loud", trial=0)
        load_run(tmp_path).note("on <b>Monday</b>")
    html = report_html(load_run(tmp_path))
    assert "&lt;script&gt;alert(1)&lt;/script&gt; loud" in html
    assert "on &lt;b&gt;Monday&lt;/b&gt;" in html
    assert "alert(1)</script> loud" not in html


def test_ctrl_c_while_it_waits_leaves_the_order_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = {"study": "simulated", "metric": "loss", "mode": "min", "status": "running", "started": "2026"}
    write_info(LocalFolder(tmp_path), {**info, "format": FORMAT, "host": platform.node()})
    with held(LocalFolder(tmp_path)):  # a driver that starts, and never comes to read
        threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT)).start()
        assert main(["note", str(tmp_path), "look"]) == 130
    assert "the order stays in the run's inbox" in capsys.readouterr().err
    assert len(list((tmp_path / "inbox").iterdir())) == 1


def test_an_order_that_comes_while_those_that_waited_are_answered_is_not_lost(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)

    class Another:
        """Sends a second order when the first one is answered."""

        def on_event(self, event: Event) -> None:
            if event.get("message") == "written down" and event["arguments"]["text"] == "first":
                put(folder, "note", {"text": "second"})

    loop = build(study(), tmp_path, listeners=[Another()])
    put(folder, "note", {"text": "first"})
    put(folder, "pause", {})
    orders = Orders(folder)
    orders.obey_what_waits(loop, ended=False)
    orders.obey(loop)
    assert [note.text for note in loop.record.steered.notes] == ["first", "second"]
    late = [event.get("late") for event in read_events(folder) if event.get("verb") == "pause"]
    assert late == [True]  # it was for the driver before, which is gone


def test_what_comes_as_a_search_ends_is_answered_or_waits_for_resume(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    loop, orders = build(study(), tmp_path), Orders(folder)
    with orders:
        for verb, arguments in {"stop": {}, "note": {"text": "late"}, "set": {"trials": 9}}.items():
            put(folder, verb, arguments)
        orders.obey_the_last(loop, interrupted=False)
    assert not loop.stopped
    assert [note.text for note in loop.record.steered.notes] == ["late"]
    assert [json.loads(path.read_text())["verb"] for path in (tmp_path / "inbox").iterdir()] == ["set"]


def test_what_comes_as_a_search_is_interrupted_waits_for_resume_unless_nothing_is_left_to_do(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    loop, orders = build(study(), tmp_path), Orders(folder)
    with orders:
        for verb, arguments in {"stop": {}, "retry": {}, "note": {"text": "late"}, "pause": {}}.items():
            put(folder, verb, arguments)
        orders.obey_the_last(loop, interrupted=True)
    assert sorted(json.loads(path.read_text())["verb"] for path in (tmp_path / "inbox").iterdir()) == ["retry", "stop"]
    assert {event["verb"] for event in read_events(folder) if event["event"] == "order_obeyed"} == {"note", "pause"}
