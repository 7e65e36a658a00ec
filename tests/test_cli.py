"""The verbs that start no Ray, in a process as a user has it, and their whole output."""

from pathlib import Path

import pytest

from tests.commands import ROOT, tuner
from tests.results.test_results import make_run

SPACE = """
from tuner import *
study = Study(
    "lines", trial=ImageClassifier("digits", weights=None),
    space={"lr": loguniform(1e-4, 1e-1), "optimizer": choice(["adam", "sgd"]), "momentum": uniform(0.8, 0.99).when(optimizer="sgd")},
    search=Random(), scheduler=ASHA(), budget=Budget(trials=3, max_epochs=5),
)
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space.py"
    path.write_text(SPACE)
    return path


def test_check_shows_the_study_and_its_first_configurations_and_leaves_nothing(space: Path, tmp_path: Path) -> None:
    finished = tuner("check", space, "--samples", "2", folder=tmp_path)
    assert (finished.code, finished.err) == (0, "")
    lines = [line.rstrip() for line in finished.out.splitlines()]
    assert lines[0] == "lines: resnet18 on digits, 3 trials, at most 5 epochs each"
    assert lines[1] == (
        "maximise val_accuracy with Random() and ASHA(grace_epochs=None, reduction_factor=3, rule='stop'), seed 0"
    )
    assert [line.split() for line in lines[2:6]] == [
        ["dimension", "domain", "when"],
        ["lr", "loguniform(0.0001,", "0.1)"],
        ["optimizer", "choice(['adam',", "'sgd'])"],
        ["momentum", "uniform(0.8,", "0.99)", "optimizer", "in", "['sgd']"],
    ]
    assert lines[6] == "the first 2 configurations:"
    assert len(lines) == 9
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["space.py"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "nowhere.py"], "tuner: a study file is a Python file that declares `study`, got 'nowhere.py', which is no file; did you mean 'space.py'?\n"),
        (["check", "space.py", "--set", "lr"], "tuner: --set needs NAME=VALUE, got 'lr'; write --set lr=0.001\n"),
        (["check", "space.py", "--set", "lrr=1"], "tuner: 'lrr' is not a hyperparameter of the study; did you mean 'lr'?\n"),
        (["check", "space.py", "--trials", "0"], "tuner: argument --trials: needs a whole number of at least 1, got '0'; see `python -m tuner check --help`\n"),
        (["check", "space.py", "--cpus-per-trial", "9999"], None),
        (["show", "nowhere"], "tuner: a run is a folder with run.json, got 'nowhere', where neither is one nor lies one below; `python -m tuner runs` lists those there are\n"),
        (["resume", "nowhere"], "tuner: a run is a folder with run.json, got 'nowhere', where neither is one nor lies one below; `python -m tuner runs` lists those there are\n"),
        (["frobnicate"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_mistake_gets_one_message_and_exit_code_2(
    space: Path, tmp_path: Path, arguments: list[str], message: str | None
) -> None:
    finished = tuner(*arguments, folder=tmp_path)
    assert (finished.code, finished.out) == (2, "")
    assert "Traceback" not in finished.err
    assert finished.err.count("\n") == 1
    if message is not None:
        assert finished.err == message


def test_check_loads_neither_ray_nor_torch(space: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys; from tuner.cli import main; code = main(['check', 'space.py']); "
        "print(code, {'ray', 'torch', 'pandas'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "0 set()"


def test_runs_and_show_tell_what_happened(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "simulated" / "1")
    assert run.best is not None
    listed = tuner("runs", folder=tmp_path).out.splitlines()
    assert [line.split()[1:3] for line in listed] == [["status", "trials"], ["finished", "6"]]
    assert listed[1].startswith(run.path)
    shown = tuner("show", folder=tmp_path)
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0].startswith(f"simulated in {run.path}: finished, 6 trials, ")
    assert [line.split()[0] for line in lines[2:8]] == [f"{number:05d}" for number in range(6)]
    assert (
        lines[8].startswith(f"best: loss 1.111e-01 (trial {run.best.trial}, epoch 9: x=")
        or "best: loss 0.1" in lines[8]
    )
    assert tuner("show", "--json", folder=tmp_path).json == run.summary()
    assert tuner("runs", "--json", folder=tmp_path).json == [run.summary()]
    trial = tuner("show", "runs", "--trial", "3", folder=tmp_path).out
    assert trial.startswith("trial 00003: ")
    missing = tuner("show", "runs", "--trial", "77", folder=tmp_path)
    assert missing.err == "tuner: a trial is named by its id, got '77'; this run has 00000 to 00005\n"


def test_no_runs_is_no_mistake(tmp_path: Path) -> None:
    finished = tuner("runs", folder=tmp_path)
    assert (finished.code, finished.out) == (0, "no runs under runs\n")


def test_the_console_script_is_the_module(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = Path(sys.executable).parent / "tuner"
    result = subprocess.run([script, "runs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "no runs under runs\n"


def test_help_names_every_verb() -> None:
    assert all(
        f"    {verb} " in tuner("--help", folder=ROOT).out
        for verb in ("run", "check", "resume", "runs", "show", "predict")
    )
