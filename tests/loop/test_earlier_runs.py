import re
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tests.results.test_results import make_run
from tests.trial.curve import Curve
from tuner import ASHA, Budget, History, ImageClassifier, Study, choice, loguniform, randint, uniform
from tuner.errors import StudyError
from tuner.history.run_info import write_info
from tuner.lifecycle.description import function_sources
from tuner.loop.earlier_runs import Lesson, describe, learned, lessons, with_model
from tuner.search import Learned


def test_a_run_is_learned_from_by_the_next_study(tmp_path: Path) -> None:
    run = make_run(tmp_path / "simulated" / "1")
    found = learned(study(), tmp_path)
    assert run.best is not None
    assert found == Learned(({"x": run.best.config["x"]},), ("simulated/1",))
    assert learned(study(warm_start=None), tmp_path) == Learned()
    assert learned(study().with_options(history=False), tmp_path) == Learned()
    assert learned(study(), tmp_path / "nowhere") == Learned()
    assert learned(study(warm_start=History(path=str(tmp_path))), tmp_path / "nowhere") == found


def test_runs_of_another_name_metric_or_mode_are_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "simulated" / "1")
    assert learned(study(warm_start=History(studies=("simulated",))), tmp_path).studies == ("simulated/1",)
    assert learned(study(warm_start=History(studies=("another",))), tmp_path).studies == ()
    assert learned(study(mode="max"), tmp_path).studies == ()
    assert learned(study(metric="accuracy"), tmp_path).studies == ()
    assert learned(study(space={"y": uniform(0, 1)}), tmp_path).studies == ()


def test_damaged_runs_are_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "simulated" / "1")
    (tmp_path / "simulated" / "2").mkdir()
    (tmp_path / "simulated" / "2" / "run.json").write_text("{")
    (tmp_path / "simulated" / "notes").mkdir()
    found = learned(study(), tmp_path)
    assert (found.studies, found.passed_over) == (("simulated/1",), 1)
    assert describe(found) == (
        "starts with 1 configuration learned from earlier runs (simulated/1); --no-history leaves them out; "
        "1 earlier run can't be read: `python -m tuner runs` says why"
    )


def test_a_run_that_nothing_can_be_computed_with_is_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "simulated" / "1")
    odd = make_run(tmp_path / "simulated" / "2", started="2026-02-01T00:00:00+00:00")
    lines = (tmp_path / "simulated/2/events/000001.jsonl").read_bytes()
    values = re.sub(rb'"loss":[0-9.e-]+', b'"loss":1e308', re.sub(rb',"sum":"[0-9a-f]+"', b"", lines))
    (tmp_path / "simulated/2/events/000001.jsonl").write_bytes(values)
    assert len(odd.record.trials) == 6
    found = learned(study(), tmp_path)
    assert "simulated/1" in found.studies


def test_a_search_whose_earlier_runs_cannot_be_read_says_so(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, learned=Learned(passed_over=2))
    assert loop.record.notices == [
        "nothing learned from earlier runs: 2 earlier runs can't be read: `python -m tuner runs` says why"
    ]


def test_the_search_tries_what_was_learned_after_the_starting_points_and_says_so(tmp_path: Path) -> None:
    found = Learned(({"x": 0.25}, {"x": 0.75}), ("a/1", "b/1"))
    loop = build(study(start_from=[{"x": 0.5}]), tmp_path, learned=found)
    drive(loop)
    assert [trial.config["x"] for trial in loop.record.trials.values()][:3] == [0.5, 0.25, 0.75]
    assert loop.record.notices == [
        "starts with 2 configurations learned from earlier runs (a/1, b/1); --no-history leaves them out"
    ]


def test_a_resumed_search_keeps_what_it_learned_and_learns_nothing_new(tmp_path: Path) -> None:
    declared = study(
        space={"x": uniform(0, 1), "kind": choice(["a", "b"]), "n": randint(0, 9)},
        scheduler=ASHA(grace_epochs=1),
        budget=Budget(trials=8, max_epochs=9),
    )
    found = Learned(({"x": 0.25}, {"x": 0.75, "kind": "b"}), ("a/1",))
    whole = build(declared, tmp_path / "whole", learned=found)
    drive(whole)
    for reports in (2, 9):
        folder = tmp_path / str(reports)
        drive(build(declared, folder, learned=found), reports=reports)
        again = build(declared, folder, history=events_of(folder), learned=Learned(({"x": 0.99},), ("c/1",)))
        drive(again)
        expected = [(trial.config, trial.epoch) for trial in whole.record.trials.values()]
        assert [(trial.config, trial.epoch) for trial in again.record.trials.values()] == expected
        assert len(again.record.notices) == 1


def test_trials_that_were_learned_pass_the_first_rung(tmp_path: Path) -> None:
    declared = study(scheduler=ASHA(grace_epochs=1), budget=Budget(trials=9, max_epochs=9))
    loop = build(declared, tmp_path, learned=Learned(({"x": 0.9},), ("a/1",)))
    drive(loop)
    assert loop.record.trials["00000"].epoch == 3  # the worst of all


def test_many_runs_are_counted() -> None:
    message = describe(Learned(({"x": 1},), ("a/1", "b/1", "c/1", "d/1", "e/1")))
    assert message == (
        "starts with 1 configuration learned from earlier runs (a/1, b/1, c/1 and 2 more); --no-history leaves them out"
    )


def test_warm_start_is_a_history_or_none() -> None:
    with pytest.raises(StudyError, match=r"warm_start needs History\(...\) or None, got 'runs'; write History\(\)"):
        study(warm_start="runs")


# Which runs teach what


def test_a_function_learns_from_runs_of_itself_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "simulated" / "1")
    make_run(tmp_path / "simulated" / "2", trial=lambda config: "another one")
    make_run(tmp_path / "simulated" / "3", says_function=False)
    found = learned(study(), tmp_path)
    assert found.studies == ("simulated/1",)
    assert describe(found) == (
        "starts with 1 configuration learned from earlier runs (simulated/1); --no-history leaves them out"
    )


def test_a_function_whose_source_cannot_be_read_learns_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "simulated" / "1")
    typed_in: dict[str, Any] = {}
    exec("def train(config): ...", typed_in)
    declared = study(trial=typed_in["train"])
    assert learned(declared, tmp_path) == Learned()
    assert lessons(declared, tmp_path) == [Lesson("simulated/1", 6, "the source of the function 'train' can't be read")]


def test_only_the_trials_of_the_same_code_count_where_it_was_edited(tmp_path: Path) -> None:
    run = make_run(tmp_path / "simulated" / "1")
    code = study().declared_trial.source_fingerprint()
    write_info(run.folder, {**run.info, "function_sources": {"1": "another", "2": code}})
    assert lessons(study(), tmp_path) == [
        Lesson("simulated/1", 6, "it has 0 of this study's 1 hyperparameters, and half of them are needed")
    ]


def test_trials_that_do_not_run_code_alone_learn_as_before(tmp_path: Path) -> None:
    make_run(tmp_path / "simulated" / "1", says_function=False)
    declared = study(trial=Curve(), metric="loss")
    assert learned(declared, tmp_path).studies == ("simulated/1",)


def test_each_run_says_what_it_teaches_or_why_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "simulated" / "1", started="2026-01-01")
    make_run(tmp_path / "simulated" / "2", started="2026-01-02", trial=lambda config: "another one")
    make_run(tmp_path / "simulated" / "3", started="2026-01-03", says_function=False)
    make_run(tmp_path / "simulated" / "4", started="2026-01-04", status="running")
    (tmp_path / "simulated" / "5").mkdir()
    (tmp_path / "simulated" / "5" / "run.json").write_text("{")
    assert lessons(study(), tmp_path) == [
        Lesson("simulated/4", 6, None),  # its driver is dead
        Lesson("simulated/3", 6, "it ran other code"),
        Lesson("simulated/2", 6, "it ran other code"),
        Lesson("simulated/1", 6, None),
    ]
    assert {one.why_not for one in lessons(study(mode="max"), tmp_path)} == {"it minimises loss"}
    elsewhere = study(space={"x": uniform(5, 6)})
    assert "0 of its trials lie in this study's space, and 3 are needed" in {
        one.why_not for one in lessons(elsewhere, tmp_path)
    }
    other_names = study(warm_start=History(studies=("photos",)))
    assert {one.why_not for one in lessons(other_names, tmp_path)} == {
        "its study is 'simulated', which History.studies leaves out"
    }
    assert lessons(study(warm_start=None), tmp_path) == []


def test_what_a_resumed_run_records_of_its_function() -> None:
    declared = study()
    code = declared.declared_trial.source_fingerprint()
    assert code is not None
    assert function_sources(declared) == {"1": code}
    assert function_sources(declared, 1, {"1": code}) == {"1": code}
    assert function_sources(declared, 2, {"1": "another"}) == {"1": "another", "2": code}
    assert function_sources(declared, 1, {"1": "another"}) == {"1": None}  # edited in Python, where no file tells
    assert function_sources(declared, 1, {}) == {"1": None}  # an older version began it
    typed_in: dict[str, Any] = {}
    exec("def train(config): ...", typed_in)
    assert function_sources(study(trial=typed_in["train"]), 1, {"1": code}) == {"1": code}


def test_a_run_of_one_model_says_it_to_a_study_of_several_and_no_other_model_to_one() -> None:
    space: dict[str, Any] = {"lr": loguniform(1e-4, 1e-1)}
    one = Study("one", trial=ImageClassifier("folder:photos", "resnet18"), space=space)
    several = Study("several", trial=one.trial, space={**space, "model": choice(["resnet18", "resnet50"])})
    assert with_model({"lr": 0.1}, "resnet50", several) == {"lr": 0.1, "model": "resnet50"}
    assert with_model({"lr": 0.1}, "vgg11", several) == {"lr": 0.1}  # no value of the space: the search fills it in
    assert with_model({"lr": 0.1, "model": "resnet50"}, "resnet18, resnet50", several) == {
        "lr": 0.1,
        "model": "resnet50",
    }
    assert with_model({"lr": 0.1, "model": "resnet50"}, "resnet18, resnet50", one) is None
    assert with_model({"lr": 0.1, "model": "resnet18"}, "resnet18, resnet50", one) == {"lr": 0.1, "model": "resnet18"}
    assert with_model({"lr": 0.1}, "vgg11", one) == {"lr": 0.1}  # as before there was a choice: rates carry over
