"""A third kind of trial, declared in `curve.py`, through all that asks a trial for something."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import cloudpickle

from tests.commands import tuner
from tests.loop.simulation import build, drive
from tests.trial.curve import Curve
from tests.worker.test_saving import ASSIGNMENT
from tuner import Budget, Random, Resources, Study, StudyError, choice, load_run, uniform
from tuner.driver.pipelines import check_splits
from tuner.history.run_info import write_info
from tuner.lifecycle.description import describe_run
from tuner.machine.hardware import Machine
from tuner.results.findings import findings_of
from tuner.storage.folder import LocalFolder
from tuner.study.file import load_study
from tuner.trial import FunctionTrial, ImageClassifier
from tuner.worker.implementation import implementation_of
from tuner.worker.pickling import pickle_trial

BOX = Machine(cpus=4, gpus=2, memory_bytes=2**34, processor="box")


STUDY = """
from curve import Curve
from tuner import *

study = Study(
    "curves", trial=Curve(), space={"x": uniform(0, 1)}, metric="loss", search=Random(),
    scheduler=ASHA(grace_epochs=1, reduction_factor=3, rule="promote"), budget=Budget(trials=10, max_epochs=9),
)
"""


class Session:
    """Takes what the worker's session would hand to Ray."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[tuple[int, dict[str, Any]]] = []

    def checkpoints(self) -> list[Path]:
        return []

    def report_epoch(self, epoch: int, metrics: dict[str, Any], *, fill: Callable[[Path], None]) -> None:
        fill(self.folder)
        assert (self.folder / "epoch").read_text() == str(epoch)
        self.reports.append((epoch, metrics))


def study(space: dict[str, Any] | None = None, **changes: Any) -> Study:
    settings: dict[str, Any] = {"trial": Curve(), "metric": "loss", "search": Random(), **changes}
    return Study(
        "curves", space={"x": uniform(0, 1), **(space or {})}, budget=Budget(trials=12, max_epochs=3), **settings
    )


def searched(folder: Path, declared: Study) -> None:
    """Search without Ray, with the run.json that the driver writes."""
    drive(build(declared, folder), lambda config, epoch: float(config["x"]) + 1 / epoch)
    info = describe_run(declared, {}, Resources(cpus=1, gpus=0), None)
    write_info(LocalFolder(folder), {**info, "status": "finished"})


# What is declared


def test_a_study_asks_the_trial_what_it_checks_and_reports() -> None:
    assert study().mode == "min"
    assert study().uses_gpu
    with pytest.raises(StudyError, match=r"^metric needs to be one that curve at 0.3 reports, got 'accuracy'"):
        study(metric="accuracy")
    with pytest.raises(StudyError, match=r"^a curve is looked at somewhere"):
        Study("none", trial=Curve(), space={"y": uniform(0, 1)}, metric="loss")


def test_command_line_options_are_laid_over_it_or_refused_in_its_words(tmp_path: Path) -> None:
    assert study().with_options(data_dir="elsewhere").declared_trial == Curve(folder="elsewhere")
    assert study().with_options(fixed={"batch_size": 8}).search_space.constants == {"batch_size": 8}
    with pytest.raises(StudyError, match=r"^--weights needs an ImageClassifier, got the curve 'curve at 0.3'; read"):
        study().with_options(weights="none")


def test_it_says_which_strategies_it_knows_and_what_a_batch_is() -> None:
    study(resources=Resources(gpus=2, strategy="ddp")).check_machine(BOX)
    with pytest.raises(StudyError, match=r"each of the 2 devices, got a batch_size of 2; raise it"):
        study({"batch_size": choice([2, 16])}, resources=Resources(gpus=2, strategy="ddp")).check_machine(BOX)
    with pytest.raises(StudyError, match=r"^strategy='dp' needs an ImageClassifier, got the curve 'curve at 0.3'"):
        study(resources=Resources(gpus=2, strategy="dp")).check_machine(BOX)


def test_its_class_is_the_users_code_unless_tuner_brings_it() -> None:
    assert Curve().functions == (Curve,)
    assert ImageClassifier().functions == ()
    assert FunctionTrial(study).functions == (study,)


# What is written, and read again


def test_a_run_of_it_is_described_and_searched(tmp_path: Path) -> None:
    declared = study()
    searched(tmp_path, declared)
    run = load_run(tmp_path)
    assert run.info["started_from"] == "nothing"
    assert run.info["limits"] == {"x": [0, 1]}
    assert run.info["trial"] == "Curve(lowest=0.3, folder='curves')"
    assert len(run.record.trials) == 12
    assert run.best is not None
    assert run.best.config["x"] == min(trial.config["x"] for trial in run.record.trials.values())


def test_a_run_that_does_not_say_its_limits_gets_no_advice_to_pass_them(tmp_path: Path) -> None:
    searched(tmp_path, study({"x": uniform(0.25, 0.75)}))
    run = load_run(tmp_path)
    assert any("border" in one.text for one in findings_of(run).advice)
    write_info(run.folder, {**run.info, "limits": {"x": [0.25, 0.75]}})
    assert not any("border" in one.text for one in findings_of(load_run(tmp_path)).advice)
    write_info(run.folder, {name: value for name, value in run.info.items() if name != "limits"})
    assert not any("border" in one.text for one in findings_of(load_run(tmp_path)).advice)


# What is done


def test_its_implementation_downloads_what_it_needs_and_refuses_a_split(tmp_path: Path) -> None:
    trial = Curve(folder=str(tmp_path / "data"))
    implementation_of(trial).download(trial)
    assert trial.missing_downloads() == []
    piped = study({"pipeline_split": choice(["a", "b"])}, resources=Resources(cpus=3, gpus=0, strategy="pipeline"))
    with pytest.raises(
        StudyError, match=r"^curve at 0.3 is whole, got 3 stages, \['a', 'b'\], \['pipeline_split', 'x'\]"
    ):
        check_splits(piped)


def test_a_worker_does_its_work(tmp_path: Path) -> None:
    session = Session(tmp_path)
    trial = cloudpickle.loads(pickle_trial(Curve(lowest=0.5)))
    implementation_of(trial).train(
        trial, replace(ASSIGNMENT, config={"x": 0.25}, epochs=2), session
    )  # as `perform` does
    assert session.reports == [(1, {"loss": 1.25, "first": 0}), (2, {"loss": 0.75, "first": 0})]


@pytest.mark.slow  # the other tests are without Ray
@pytest.mark.ray
def test_a_search_pauses_it_goes_on_with_it_scores_and_refines_it(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("curve.py"), tmp_path)
    (tmp_path / "space.py").write_text(STUDY)
    done = tuner("run", "space.py", "--storage", "out", folder=tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "curves").is_dir()
    run = load_run(tmp_path / "out")
    assert len(run.record.trials) == 10
    firsts = {epoch.metrics["first"] for trial in run.record.trials.values() for epoch in trial.epochs.values()}
    assert firsts == {0, 1, 3}  # promoted past each rung, from its checkpoint
    assert run.best is not None
    assert run.best_metrics["test_loss"] == run.best.config["x"] + run.best_epoch
    refined = tuner("refine", "out", "-o", "next.py", folder=tmp_path)
    assert refined.code == 0, refined.err
    assert "trial=original.trial" in (tmp_path / "next.py").read_text()
    assert tuner("check", "next.py", folder=tmp_path).code == 0
    shown = tuner("check", "space.py", "--weights", "none", folder=tmp_path)
    assert (shown.code, "got the curve 'curve at 0.3'; read" in shown.err) == (2, True)


@pytest.mark.parametrize(
    "named", ["nowhere.at_all:Reading", "tests.trial.curve:Nobody", "tests.trial.curve:Curve", "Reading", ""]
)
def test_an_implementation_that_is_none_is_refused_before_anything_starts(named: str) -> None:
    @dataclass(frozen=True)
    class Misspelt(Curve):
        implementation: ClassVar[str] = named

    with pytest.raises(
        StudyError, match=rf'^a trial needs implementation = "module:Class" .*, got {named!r} in Misspelt'
    ):
        check_splits(study(trial=Misspelt()))


def test_an_implementation_in_the_study_file_which_workers_cannot_import_is_refused(tmp_path: Path) -> None:
    written = Path(__file__).with_name("curve.py").read_text()
    (tmp_path / "space.py").write_text(written + STUDY.replace("from curve import Curve\n", ""))
    with pytest.raises(StudyError, match=r"got 'tuner_study_space:Reading' in Curve; name one in a module of its own"):
        check_splits(load_study(tmp_path / "space.py"))


def test_an_implementation_whose_module_fails_is_refused_with_what_it_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Failing(Curve):
        implementation: ClassVar[str] = "failing_reading:Reading"

    (tmp_path / "failing_reading.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StudyError, match=r"in Failing; .* \(ZeroDivisionError: division by zero\)$"):
        check_splits(study(trial=Failing()))


def test_the_class_of_a_trial_is_told_from_a_trial() -> None:
    with pytest.raises(StudyError, match=r"^trial must be .*; write Curve\(\.\.\.\)$"):
        study(trial=Curve)
