"""A search whose trials the program itself runs, from its begin to its end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ask_tell.asked import PROMOTING, epoch_of, loss, study, train, train_all
from tests.lifecycle.receiver import receiving
from tests.loop.simulation import build, drive
from tests.loop.simulation import study as simulated_study
from tests.results.simulated import simulated
from tests.schedule.each import EACH
from tuner import (
    ASHA,
    BOHB,
    Budget,
    External,
    Failures,
    Grid,
    History,
    MultiFidelityGP,
    Random,
    Resources,
    Search,
    Study,
    StudyError,
    choice,
    load_run,
    sample_from,
    uniform,
)
from tuner.errors import RunFolderError
from tuner.results import refine
from tuner.results.wording import ending
from tuner.schedule import Scheduler
from tuner.search import SearchAlgorithm, proposals
from tuner.space import GridSearch
from tuner.study.as_json import study_from_json, study_to_json


@pytest.mark.usefixtures("with_report")
def test_a_search_ends_with_its_budget_and_is_concluded(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path) as search:
        assert train_all(search) == 6
        assert search.finished
        run = search.run
        assert (run.status, run.end_reason, len(run.record.trials)) == ("finished", "trials", 6)
        assert Path(run.path, "report.html").is_file()
        assert Path(run.path, "trials.csv").is_file()
        assert search.ask() is None
    assert load_run(tmp_path).record.counts()["completed"] == 6
    assert (run.info["asked"], run.info["concurrency"], run.alive) == (True, None, False)


def test_a_trial_says_all_that_is_needed_to_run_it(tmp_path: Path) -> None:
    with Search(study(scheduler=ASHA(grace_epochs=1, reduction_factor=2)), storage=tmp_path, seed=7) as search:
        trial = search.ask()
        assert trial is not None
        record = search.run.record.trials[trial.id]
        assert (trial.id, trial.number, trial.config, trial.seed) == ("00000", 0, record.config, record.seed)
        assert (trial.epochs, trial.from_epoch, trial.checkpoint, trial.attempt) == (3, 0, None, 1)
        assert (list(trial.epochs_left), trial.rungs, trial.metrics) == ([1, 2, 3], (1, 2), {})


def test_one_value_for_a_trial_ends_it(tmp_path: Path) -> None:
    with Search(study(budget=Budget(trials=3, max_epochs=1)), storage=tmp_path) as search:
        while (trial := search.ask()) is not None:
            search.tell(trial, loss(trial.config, 1))
    assert search.run.record.counts()["completed"] == 3


def test_a_trial_that_ends_by_itself_is_completed(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path) as search:
        trial = search.ask()
        assert trial is not None
        assert epoch_of(search, trial, 1) == "continue"
        search.tell(trial)
        search.tell(trial)
        assert search.run.record.trials[trial.id].status == "completed"


def test_a_search_that_is_left_before_its_end_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path) as search:
        trial = search.ask()
        assert trial is not None
        epoch_of(search, trial, 1)
    run = search.run
    assert (run.status, run.info["interrupted_by"]) == ("interrupted", "its program left the search before its end")
    assert search.finished
    assert search.ask() is None
    assert epoch_of(search, trial, 2) == "pause"
    with Search.resume(run.path, study()) as search:
        again = search.ask()
        assert again is not None
        assert (again.id, again.from_epoch, again.attempt) == (trial.id, 0, 2)
        assert epoch_of(search, trial, 1) == "pause"  # who had it before
        train(search, again)
        assert train_all(search) == 5
    assert search.run.record.counts()["completed"] == 6


def test_an_error_in_the_block_interrupts_the_search_and_is_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Search(study(), storage=tmp_path) as search:
        raise ZeroDivisionError("division by zero")
    assert search.run.info["interrupted_by"] == "ZeroDivisionError: division by zero"
    with pytest.raises(KeyboardInterrupt), Search.resume(search.run.path, study()) as search:
        raise KeyboardInterrupt
    assert search.run.info["interrupted_by"] == "Ctrl-C"


def test_a_search_without_anything_left_to_run_is_concluded_though_nobody_asked(tmp_path: Path) -> None:
    with Search(study(budget=Budget(trials=2, max_epochs=1)), storage=tmp_path) as search:
        for _ in range(2):
            trial = search.ask()
            assert trial is not None
            search.tell(trial, 0.5)
    assert search.run.status == "finished"


def test_a_finished_run_is_extended_and_one_without_anything_left_refused(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path) as search:
        train_all(search)
    with pytest.raises(RunFolderError, match=r"^trials is the total number of .*; use trials=16$"):
        Search.resume(tmp_path, study())
    with Search.resume(tmp_path, study(), trials=8) as search:
        assert train_all(search) == 2
    assert len(search.run.record.trials) == 8


def test_a_limit_that_is_too_low_is_named_as_an_argument(tmp_path: Path) -> None:
    limited = study(budget=Budget(total_epochs=6, max_epochs=3))
    with Search(limited, storage=tmp_path) as search:
        train_all(search)
    told = (
        r"^total_epochs counts the whole run and must be above the 6 that it has already used, got 6; "
        r"use total_epochs=12 for as much again$"
    )
    with pytest.raises(RunFolderError, match=told):
        Search.resume(tmp_path, limited)


def test_a_live_run_is_refused_by_its_lease(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path) as search:
        with pytest.raises(RunFolderError, match="a run has one driver at a time"):
            Search.resume(search.run.path, study())
        assert search.ask() is not None


def test_checkpoints_are_kept_where_a_trial_goes_on_and_where_it_wins(tmp_path: Path) -> None:
    declared = study(scheduler=PROMOTING, budget=Budget(trials=9, max_epochs=9))
    with Search(declared, storage=tmp_path / "runs") as search:
        from_epochs = set()
        while (trial := search.ask()) is not None:
            from_epochs.add(trial.from_epoch)
            if trial.from_epoch:
                assert trial.checkpoint is not None
                assert (trial.checkpoint / "epoch").read_text() == str(trial.from_epoch)
                assert sorted(trial.metrics) == list(range(1, trial.from_epoch + 1))
            train(search, trial, tmp_path / "saved")
    run = search.run
    assert from_epochs == {0, 1, 3}
    assert run.best is not None
    best = Path(run.path, "best")
    assert (best / "checkpoint" / "epoch").read_text() == str(run.best_epoch) == "9"
    assert json.loads((best / "config.json").read_text()) == run.best.config


def test_trials_that_save_nothing_are_not_paused(tmp_path: Path) -> None:
    with Search(study(scheduler=PROMOTING, budget=Budget(trials=9, max_epochs=9)), storage=tmp_path) as search:
        answers = []
        while (trial := search.ask()) is not None:
            answers.append(train(search, trial))
    assert set(answers) == {"stop"}
    assert any("can't pause" in notice for notice in search.run.record.notices)


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path / "runs") as search:
        trial = search.ask()
        assert trial is not None
        epoch_of(search, trial, 1, tmp_path / "saved")
        Path(search.run.path, "checkpoints", trial.id, "000001", "files", "epoch").write_text("9")
        search.lost(trial)
        again = search.ask()
        assert again is not None
        assert (again.id, again.from_epoch, again.checkpoint) == (trial.id, 0, None)
        assert train(search, again) == "stop"
        assert any("a checkpoint is skipped" in notice for notice in search.run.record.notices)


# The same as under `tuner run`


ALGORITHMS = [Random(), MultiFidelityGP(), BOHB(), Grid()]


@pytest.mark.parametrize("scheduler", EACH, ids=repr)
def test_each_scheduler_decides_as_in_a_search_under_ray(tmp_path: Path, scheduler: Scheduler) -> None:
    """The loop alone, driven by hand, has the same trials with the same ends."""
    budget = Budget(trials=9, max_epochs=9)
    with Search(study(scheduler=scheduler, budget=budget), storage=tmp_path / "runs") as search:
        train_all(search, tmp_path / "saved")
    loop = build(study(scheduler=scheduler, budget=budget), tmp_path / "loop")
    drive(loop, loss)
    told = [(t.config, t.status, t.epoch) for t in search.run.record.trials.values()]
    assert told == [(t.config, t.status, t.epoch) for t in loop.record.trials.values()]
    assert len(told) == 9


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_each_search_algorithm_suggests_as_in_a_search_under_ray(tmp_path: Path, algorithm: SearchAlgorithm) -> None:
    space = {"x": choice([0.1, 0.2, 0.3, 0.4, 0.5]), "kind": choice(["a", "b"])}
    declared = study(search=algorithm, space=space, start_from=[{"x": 0.5, "kind": "b"}])
    with Search(declared, storage=tmp_path / "runs") as search:
        train_all(search)
    loop = build(declared, tmp_path / "loop")
    drive(loop, loss, saves=False)
    told = [t.config for t in search.run.record.trials.values()]
    assert told == [t.config for t in loop.record.trials.values()]
    assert told[0] == {"x": 0.5, "kind": "b"}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"total_epochs": 4}, "total_epochs"), ({"target": 0.6}, "target"), ({"hours": 1e-9}, "hours")],
)
def test_each_limit_ends_the_search(tmp_path: Path, limits: dict[str, float], reason: str) -> None:
    with Search(study(), storage=tmp_path, **limits) as search:
        train_all(search)
    assert (search.run.status == "failed") is (reason == "hours")
    assert search.run.end_reason == reason


def test_a_search_learns_from_earlier_runs_of_the_same_name_alone(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path) as search:
        train_all(search)
    best = search.run.best
    assert best is not None
    for name, learns in (("curve", True), ("other", False)):
        again = study(trial=External(name), warm_start=History(), seed=1)
        with Search(again, storage=tmp_path, name=f"later-{name}") as later:
            first = later.ask()
            assert first is not None
            assert (first.config == best.config) is learns
    with Search(study(warm_start=History()), storage=tmp_path, name="without", history=False, seed=1) as later:
        first = later.ask()
        assert first is not None
        assert first.config != best.config


def test_a_configuration_may_be_fixed(tmp_path: Path) -> None:
    with Search(study(), storage=tmp_path, fixed={"kind": "a"}) as search:
        trial = search.ask()
        assert trial is not None
        assert trial.config["kind"] == "a"
        assert "y" not in trial.config


# Several trials out at once


def test_poll_does_not_wait_and_finished_tells_why_it_gave_nothing(tmp_path: Path) -> None:
    with Search(study(budget=Budget(trials=3, max_epochs=1)), storage=tmp_path, concurrency=2) as search:
        first, second = search.poll(), search.poll()
        assert first is not None
        assert second is not None
        assert (search.poll(), search.finished) == (None, False)
        search.tell(first, 0.5)
        third = search.poll()
        assert third is not None
        assert (search.poll(), search.finished) == (None, False)
        search.tell(second, 0.5)
        search.tell(third, 0.5)
        assert (search.poll(), search.finished) == (None, True)


def test_ask_waits_for_what_others_report(tmp_path: Path) -> None:
    with Search(study(budget=Budget(trials=2, max_epochs=1)), storage=tmp_path, concurrency=1) as search:
        first = search.ask()
        assert first is not None
        found: list[str | None] = []

        def work() -> None:
            while (trial := search.ask()) is not None:
                found.append(trial.id)
                search.tell(trial, 0.5)
            found.append(None)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.05)
        assert found == []
        search.tell(first, 0.5)
        thread.join(300)
        assert found == ["00001", None]


def test_32_threads_ask_and_report(tmp_path: Path) -> None:
    declared = study(scheduler=PROMOTING, budget=Budget(trials=96, max_epochs=3))
    with Search(declared, storage=tmp_path / "runs") as search:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                train_all(search, tmp_path / str(number))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    assert failures == []
    run = search.run
    assert (run.status, len(run.record.trials), run.damages) == ("finished", 96, [])
    assert {t.status for t in run.record.trials.values()} <= {"completed", "stopped"}
    assert sorted(t.number for t in run.record.trials.values()) == list(range(96))


def test_a_trial_of_which_nothing_is_heard_is_handed_out_again(tmp_path: Path) -> None:
    failures = Failures(hung_minutes=0.1 / 60)
    with Search(study(failures=failures, budget=Budget(trials=1, max_epochs=2)), storage=tmp_path) as search:
        first = search.ask()
        second = search.ask()  # waits until it is missed
        assert first is not None
        assert second is not None
        assert (second.id, second.attempt) == (first.id, 2)
        assert epoch_of(search, first, 1) == "pause"


# What can't work


def test_a_study_that_tuner_runs_is_refused_with_what_to_declare(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"^Search hands out trials that your own program runs, got the function"):
        Search(simulated_study(), storage=tmp_path)
    with pytest.raises(StudyError, match=r"^concurrency needs a whole number of at least 1, got 0; leave it out"):
        Search(study(), storage=tmp_path, concurrency=0)
    with pytest.raises(StudyError, match=r"^Resources.cpus='auto' needs trials that tuner runs"):
        Search(study(resources=Resources(cpus="auto")), storage=tmp_path)
    with pytest.raises(StudyError, match="trails"):
        Search(study(), storage=tmp_path, trails=3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", " ", None, 3])
def test_an_external_trial_needs_a_name(name: object) -> None:
    with pytest.raises(
        StudyError, match=r"^External needs a name for what is run, got .*; write External\('furnace'\)$"
    ):
        External(name)  # type: ignore[arg-type]


def test_a_run_that_ray_searched_is_refused(tmp_path: Path) -> None:
    simulated(tmp_path / "run")
    with pytest.raises(
        RunFolderError, match=r"^Search.resume needs a run whose trials a program asks for, got .*resume"
    ):
        Search.resume(tmp_path / "run")


def test_a_run_from_python_says_what_it_needs_to_go_on(tmp_path: Path) -> None:
    not_plain = {"x": uniform(0, 1), "z": sample_from(lambda config: 1)}
    with Search(study(space=not_plain), storage=tmp_path) as search:
        search.ask()
    with pytest.raises(RunFolderError, match=r"call tuner.Search.resume\('.*', study=study\)$"):
        Search.resume(tmp_path)


def declared_as_json(**changes: Any) -> Study:
    return study_from_json(study_to_json(study(**changes)))


def test_a_study_of_plain_data_is_kept_with_the_run_so_that_it_goes_on_without_it(tmp_path: Path) -> None:
    with Search(declared_as_json(), storage=tmp_path) as search:
        train_all(search)
    run = search.run
    assert json.loads(run.folder.read("study.json"))["name"] == "asked"
    assert not run.folder.exists("study.py")
    assert run.declared_study().search_space == study().search_space
    with Search.resume(run.path, trials=8) as search:
        assert train_all(search) == 2


def test_what_plain_data_cannot_say_is_not_kept_as_if_it_could(tmp_path: Path) -> None:
    with Search(study(space={"x": uniform(0, 1), "z": sample_from(lambda config: 1)}), storage=tmp_path) as search:
        train_all(search)
    assert not search.run.folder.exists("study.json")
    with pytest.raises(RunFolderError, match="started from Python is resumed from Python"):
        search.run.declared_study()


def test_a_run_of_plain_data_is_refined(tmp_path: Path) -> None:
    with Search(declared_as_json(budget=Budget(trials=20, max_epochs=3)), storage=tmp_path) as search:
        train_all(search)
    found = refine(search.run)
    region = found.study.search_space.dimensions["x"]
    assert isinstance(region, GridSearch)
    assert all(0 < option < 0.7 for option in region.options)  # 0.3 is best
    assert found.study.declared_trial == External("curve")


def test_an_edited_study_of_plain_data_is_noticed(tmp_path: Path) -> None:
    with Search(declared_as_json(), storage=tmp_path) as search:
        train_all(search)
    path = Path(search.run.path, "study.json")
    path.write_text(path.read_text().replace('"Random"', '"HyperOpt"'))
    with Search.resume(search.run.path, trials=7) as search:
        train_all(search)
    assert any("study.json was edited after the run began" in notice for notice in search.run.record.notices)
    assert Path(search.run.path, "study.1.json").exists()


def test_a_study_of_plain_data_that_was_damaged_is_refused_by_name(tmp_path: Path) -> None:
    with Search(declared_as_json(), storage=tmp_path) as search:
        train_all(search)
    Path(search.run.path, "study.json").write_text("{")
    with pytest.raises(StudyError, match=r"study\.json of .* can't be read: a study needs to be JSON"):
        Search.resume(search.run.path, trials=7)


def test_a_replay_is_refused_as_the_program_trained_the_trial(tmp_path: Path) -> None:
    with Search(declared_as_json(), storage=tmp_path) as search:
        train_all(search)
    with pytest.raises(RunFolderError, match="a replay trains a trial that tuner ran, got 00000"):
        search.run.replay("0")


def test_new_bests_and_the_end_are_told_to_whom_the_program_names(tmp_path: Path) -> None:
    with receiving() as server:
        with Search(study(budget=Budget(trials=2, max_epochs=2)), storage=tmp_path, notify=server.url) as search:
            train_all(search)
        server.wait_for(1)
        assert [message["event"] for message in server.messages][-1] == "ended"
        assert server.messages[-1]["run"] == search.run.path
        with Search.resume(search.run.path, trials=3, notify=[server.url]) as search:
            train_all(search)
        assert [message["event"] for message in server.messages].count("ended") == 2
    with pytest.raises(StudyError, match="notify needs a command or an http or https address"):
        Search(study(), storage=tmp_path, notify="\0")


def test_a_study_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text(
        "from tuner import *\nstudy = Study('lab', trial=External('lab'), space={'x': uniform(0, 1)}, metric='loss',"
        " mode='min', search=Random(), budget=Budget(trials=2, max_epochs=1))\n"
    )
    with Search(tmp_path / "lab.py", storage=tmp_path / "runs") as search:
        trial = search.ask()
        assert trial is not None
        search.tell(trial, 0.5)
    with Search.resume(tmp_path / "runs") as search:
        trial = search.ask()
        assert trial is not None
        search.tell(trial, 0.25)
    assert search.run.status == "finished"


def test_neither_ray_nor_torch_is_loaded(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom tests.ask_tell.asked import *\n"
        f"with Search(study(), storage={str(tmp_path)!r}) as search: train_all(search)\n"
        "print(search.run.status, {'ray', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "finished set()\n"


def test_a_space_may_be_anything(tmp_path: Path) -> None:
    declared = Study(
        "nested", trial=External(), space={"a": {"b": uniform(0, 1)}, "c": 3}, metric="loss", search=Random()
    )
    with Search(declared, storage=tmp_path, trials=1) as search:
        trial = search.ask()
        assert trial is not None
        assert set(trial.config) == {"a", "c"}


NEAR: dict[str, Any] = {
    "space": {"x": uniform(0, 1), "y": uniform(0, 1)},
    "constraint": lambda config: bool(abs(config["x"] - config["y"]) < 0.00015),
    "seed": 1,
    "budget": Budget(trials=12, max_epochs=1),
}


def test_a_tight_constraint_ends_no_search_and_a_resumed_one_tries_the_same(tmp_path: Path) -> None:
    with Search(study(**NEAR), storage=tmp_path / "whole") as whole:
        assert train_all(whole) == 12
    assert (whole.run.status, whole.run.end_reason) == ("finished", "trials")
    with Search(study(**NEAR), storage=tmp_path / "two") as first:
        for _ in range(5):
            trial = first.ask()
            assert trial is not None
            train(first, trial)
    with Search.resume(first.run.path, study(**NEAR)) as second:
        assert train_all(second) == 7
    configs = [[trial.config for trial in search.run.record.trials.values()] for search in (whole, second)]
    assert configs[0] == configs[1]


def test_a_search_whose_constraint_allows_nothing_more_is_concluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "RANDOM_DRAWS", 10_000)
    only = float(np.random.default_rng(0).random())  # what `check` draws first
    one = study(
        space={"x": uniform(0, 1)}, constraint=lambda config: bool(config["x"] == only), start_from=[{"x": only}]
    )
    with Search(one, storage=tmp_path) as search:
        assert train_all(search) == 1
    for _ in range(2):  # it ends in the same way again
        run = search.run
        assert (run.status, run.end_reason, run.best and run.best.trial) == ("finished", "constraint", "00000")
        assert "found that the constraint allows" in str(ending(run))
        assert any(event.get("code") == "constraint" for event in run.events)
        with Search.resume(run.path, one) as search:
            assert search.ask() is None
