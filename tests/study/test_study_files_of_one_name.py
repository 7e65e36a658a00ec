"""Several study files of one name in one process, as a notebook loads them: each keeps its own code."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, environment
from tests.loop.simulation import build, drive
from tests.loop.simulation import study as simulated
from tuner import Study, StudyError, load_run, load_study, refine
from tuner.cli import main
from tuner.history.run_info import FORMAT, write_info
from tuner.space.values import canonical
from tuner.storage.folder import LocalFolder
from tuner.trial.function import source_fingerprint
from tuner.worker.pickling import pickle_trial

STUDY = """
from functools import partial
from tuner import Budget, Random, Study, report, uniform

class Model:
    number = NUMBER

def number(config):
    return Model.number

def train(config):
    report(loss=float(Model.number))

study = Study("mine", trial=TRIAL, space={"x": uniform(0, 1)}, metric="loss", mode="min",
              search=Random(), budget=Budget(trials=12, max_epochs=1))
"""


def written(folder: Path, number: int, *, trial: str = "train", before: str = "", name: str = "study.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(before + STUDY.replace("NUMBER", str(number)).replace("TRIAL", trial))
    return folder / name


def function_of(study: Study) -> Callable[..., Any]:
    (function,) = study.declared_trial.functions
    return function


def model_of(study: Study) -> Any:
    return vars(sys.modules[function_of(study).__module__])["Model"]


def test_each_file_keeps_its_own_code(tmp_path: Path) -> None:
    studies = {number: load_study(written(tmp_path / str(number), number)) for number in (1, 2, 3)}
    for number, study in studies.items():
        assert model_of(study).number == number
        assert f"number = {number}" in inspect.getsource(model_of(study))
    assert len({source_fingerprint(model_of(study)) for study in studies.values()}) == 3
    assert len({study.declared_trial.source_fingerprint() for study in studies.values()}) == 3


def test_neither_a_fingerprint_nor_a_value_says_how_many_files_of_a_name_were_loaded(tmp_path: Path) -> None:
    one, two = (load_study(written(tmp_path / folder, 4)) for folder in ("one", "two"))
    assert function_of(one) is not function_of(two)
    assert one.declared_trial.source_fingerprint() == two.declared_trial.source_fingerprint()
    assert canonical(function_of(one)) == canonical(function_of(two)) == "tuner_study.train"


def test_a_file_that_is_loaded_again_or_was_moved_keeps_the_plain_name(tmp_path: Path) -> None:
    path = written(tmp_path / "first", 5, name="moved_about.py")
    names = [function_of(load_study(path)).__module__ for _ in range(2)]
    path = path.rename(tmp_path / path.name)
    names.append(function_of(load_study(path)).__module__)
    assert names == ["tuner_study_moved_about"] * 3


@pytest.mark.parametrize("trial", ["number", "partial(number)", "lambda config: number(config)"])
def test_the_code_of_each_of_two_files_comes_to_another_process(tmp_path: Path, trial: str) -> None:
    """A partial function doesn't name the file that its function is from."""
    studies = [load_study(written(tmp_path / str(number), number, trial=trial)) for number in (6, 7)]
    calls = "import pickle, sys; print(pickle.load(sys.stdin.buffer).function({}))"
    for number, study in zip((6, 7), studies, strict=True):
        code = pickle_trial(study.declared_trial)
        told = subprocess.run([sys.executable, "-c", calls], input=code, capture_output=True, check=False)
        assert (told.stdout, told.stderr) == (b"%d\n" % number, b"")


# Modules beside them


def test_a_module_beside_a_file_is_never_taken_from_beside_another_one(tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        written(tmp_path / folder, 8, before="import beside_them_all\n", name="of_its_own.py")
        (tmp_path / folder / "beside_them_all.py").write_text(f"WHERE = {folder!r}\n")
    load_study(tmp_path / "one" / "of_its_own.py")
    load_study(tmp_path / "one" / "of_its_own.py")
    with pytest.raises(StudyError) as caught:
        load_study(tmp_path / "two" / "of_its_own.py")
    assert str(caught.value) == (
        "modules beside study files need different names in one process, got 'beside_them_all' in "
        f"'{tmp_path}/two', where '{tmp_path}/one/beside_them_all.py' is known already; rename one, or load "
        "of_its_own.py in a process of its own"
    )
    load_study(written(tmp_path / "three", 8))  # which doesn't import it


# Runs of such files


def ran(folder: Path, number: int) -> Path:
    """The run of a file in the folder, whose study is only played."""
    study, run = written(folder, number), folder / "runs" / "mine" / "1"
    run.mkdir(parents=True)
    (run / "study.py").write_bytes(study.read_bytes())
    declared = simulated(space=load_study(study).space, budget=load_study(study).budget)
    drive(build(declared, run), lambda config, epoch: config["x"])
    info = {"study": "mine", "metric": "loss", "mode": "min", "status": "finished", "started": "2026", "options": {}}
    write_info(LocalFolder(run), {**info, "format": FORMAT, "study_file": str(study)})
    return run


def test_runs_of_two_files_are_checked_loaded_and_refined_in_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [ran(tmp_path / folder, number) for folder, number in (("first", 1), ("second", 2))]
    for number, run in enumerate(runs, start=1):
        assert main(["check", str(run.parents[2] / "study.py")]) == 0
        found = refine(load_run(run))
        assert model_of(found.study).number == number
        next_one = run.parents[2] / "next.py"
        assert "from study import study as original" in found.text(next_one)
    assert capsys.readouterr().err == ""


SEARCHES = """
import sys
from pathlib import Path
import tuner
studies = [tuner.load_study(Path(folder, "study.py")) for folder in ("first", "second")]
runs = [tuner.run(study, storage=study.source.parent / "runs", trials=1, progress=False) for study in studies]
resumed = [tuner.resume(run.path, trials=2, progress=False) for run in runs]
print([sorted(run.trials["loss"]) for run in resumed])
"""


@pytest.mark.ray
@pytest.mark.slow
def test_searches_of_two_files_run_their_own_functions(tmp_path: Path) -> None:
    for number, folder in enumerate(("first", "second"), start=1):
        written(tmp_path / folder, number)
    command = [sys.executable, "-c", SEARCHES]
    variables = environment(PYTHONPATH=str(ROOT))
    told = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert told.stdout == "[[1.0, 1.0], [2.0, 2.0]]\n", told.stderr
