"""What Python callers get: a line that says what won, an exception where nothing did, and progress where they look."""

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import commands
from tests.history.events_of_a_run import started
from tests.loop.simulation import study as simulated_study
from tests.results.simulated import simulated
from tuner import (
    Comparison,
    External,
    Run,
    Search,
    SearchFailed,
    StudyError,
    compare,
    find_runs,
    load_run,
    load_study,
    start,
)
from tuner.api.run import for_users
from tuner.console.live_table import Plan
from tuner.console.notebook import shown_here
from tuner.lifecycle.targets import listed
from tuner.results import compare as compare_readers
from tuner.results import run_folders
from tuner.results.representing import search_failure
from tuner.results.rest_simulation import Ahead
from tuner.results.run import RecordedRun

PLAN = Plan("digits", "loss", "min", Ahead(trials=4, max_epochs=9))


def test_rooms_read_a_run_and_users_get_it_with_plots_and_orders(tmp_path: Path) -> None:
    simulated(tmp_path / "study" / "one")
    reader = run_folders.load_run(tmp_path)
    assert type(reader) is RecordedRun
    assert not {"plot", "trials", "replay", "confirm", "stop"} & {*dir(reader)}
    with Search(simulated_study(trial=External()), storage=tmp_path / "asked") as search:
        runs = [load_run(tmp_path / "study"), *find_runs(tmp_path / "study"), search.run]
    assert [type(run) for run in runs] == [Run, Run, Run]
    assert isinstance(runs[0], RecordedRun)
    assert runs[0].plot.history().layout.title.text
    assert len(pickle.loads(pickle.dumps(load_run(tmp_path / "study"))).trials) == 24


def test_what_a_reader_has_read_is_not_read_again_for_users(tmp_path: Path) -> None:
    simulated(tmp_path)
    reader = run_folders.load_run(tmp_path)
    record = reader.record
    run = for_users(reader)
    assert type(run) is Run
    assert run.record is record


def test_users_get_a_comparison_with_its_plot(tmp_path: Path) -> None:
    runs = [simulated(tmp_path / name, seed=seed) for name, seed in (("one", 1), ("other", 2))]
    compared = compare(runs)
    assert type(compared) is Comparison
    assert compared.runs == tuple(runs)
    assert compared.plot("trials").name == "comparison against trials"
    assert compared.conclusion == compare_readers(runs).conclusion


def test_a_run_says_in_a_line_what_won(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run")
    best = run.best
    assert best is not None
    line = repr(run)
    assert line.startswith(f"<Run simulated: finished, 24 trials, best loss 0.125 ± 0.0033 by {best.trial} (lr=")
    assert line.endswith(f", {tmp_path}/run>")
    assert "\n" not in line


def test_a_run_below_the_working_directory_names_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = simulated(tmp_path / "runs" / "one")
    assert repr(run).endswith(", runs/one>")
    assert str(tmp_path) not in repr(run) + run._repr_html_()


def test_a_run_without_a_winner_says_so(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", curve=lambda config, epoch: float("nan"))
    run.info["status"] = "failed"
    assert repr(run) == f"<Run simulated: failed, 24 trials, no trial succeeded, {tmp_path}/run>"
    run.info["status"] = "interrupted"
    assert "no winner yet" in repr(run)


def test_a_search_without_any_success_is_an_exception_that_has_its_run(tmp_path: Path) -> None:
    assert search_failure(simulated(tmp_path / "good")) is None
    run = simulated(tmp_path / "bad", reports=0)
    run.info["status"] = "failed"
    failure = search_failure(run)
    assert isinstance(failure, SearchFailed)
    assert failure.run is run
    assert str(failure) == f"no trial reported loss; see {tmp_path}/bad"
    run.info |= {"status": "interrupted", "end_reason": "Ctrl-C"}
    assert search_failure(run) is None
    run.info |= {"end_reason": "error", "interrupted_by": "OSError: disk full"}
    assert str(search_failure(run)) == f"the search was cut off by an error: OSError: disk full; see {tmp_path}/bad"


def test_the_first_failure_and_the_way_to_its_traceback_are_in_the_exception(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", curve=lambda config, epoch: float("nan"))
    run.info["status"] = "failed"
    assert str(search_failure(run)) == (
        "no trial succeeded: 24 of 24 trials failed with diverged: loss = nan; "
        f"for the traceback: python -m tuner show {tmp_path}/run --trial 00000"
    )


def test_progress_goes_to_stderr_unless_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for quiet in (False, True):
        with shown_here(PLAN, quiet=quiet) as shown:
            shown.on_event(started(0))
    assert sys.stderr.getvalue().splitlines()[:2] == ["digits: starting Ray", "trial 00000 started: x=0"]  # type: ignore[attr-defined]
    assert sys.stderr.getvalue().count("starting Ray") == 1  # type: ignore[attr-defined]


def test_progress_is_left_out_where_there_is_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw, and in some services
    with shown_here(PLAN, quiet=False) as shown:
        shown.on_event(started(0))


def test_one_target_may_be_given_as_a_text() -> None:
    assert listed("https://host/a") == ["https://host/a"]
    assert listed(["true", "false"]) == ["true", "false"]


def test_a_study_that_cannot_work_is_refused_before_a_process_is_started(tmp_path: Path) -> None:
    declared = simulated_study()
    with pytest.raises(StudyError, match=r"a trial can have at most the CPUs that this machine has"):
        start(declared, storage=tmp_path, cpus=9999)
    with pytest.raises(StudyError, match=r"notify needs an http or https address, got a ftp address"):
        start(declared, storage=tmp_path, notify="ftp://host/a")
    lock: Any = __import__("threading").Lock()
    with pytest.raises(
        StudyError, match=r"needs a study that can be sent to another process, got TypeError: .*; use tuner.run"
    ):
        start(simulated_study(trial=lambda config: lock), storage=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_check_shows_the_configurations_that_a_search_begins_with(tmp_path: Path) -> None:
    """With those that tuner's own studies suggest, and that an earlier run found."""
    path = tmp_path / "space.py"
    path.write_text(
        "from tuner import *\n"
        'study = Study("asked", trial=External("x"), space={"lr": loguniform(1e-4, 1e-1), "batch_size": choice([16, 32])},\n'
        '    metric="accuracy", mode="max", search=Random(), budget=Budget(trials=6, max_epochs=1))\n'
    )
    for _ in range(2):
        checked = commands.tuner(
            "check", path, "--storage", tmp_path / "runs", "--json", "--samples", "4", folder=tmp_path
        )
        with Search(load_study(path), storage=tmp_path / "runs") as search:
            tried = []
            while (trial := search.ask()) is not None:
                tried.append(trial.config)
                search.tell(trial, trial.config["lr"])
        assert checked.json["samples"] == tried[:4]
