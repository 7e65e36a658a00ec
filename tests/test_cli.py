"""The verbs that start no Ray, in a process as a user has it, and their whole output."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, run_main, start, study_file, tuner
from tests.loop.simulation import build, drive, study
from tests.results.kinds_of_runs import all_failed
from tests.results.test_results import make_run
from tuner.cli import main
from tuner.history.run_info import FORMAT, write_info
from tuner.machine.hardware import this_machine
from tuner.storage.folder import LocalFolder

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
        "maximise val_accuracy with Random(sobol=True) and ASHA(grace_epochs=None, reduction_factor=3, rule='promote'), seed 0"
    )
    assert [line.split() for line in lines[2:6]] == [
        ["dimension", "domain", "when"],
        ["lr", "loguniform(0.0001,", "0.1)"],
        ["optimizer", "choice(['adam',", "'sgd'])"],
        ["momentum", "uniform(0.8,", "0.99)", "optimizer", "in", "['sgd']"],
    ]
    start = lines.index("the first 2 configurations:")
    assert " ".join(lines[6:start]).startswith(
        "note: starts with the trainer's defaults; --no-portfolio leaves them out"
    )
    assert len(lines) == start + 3
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["space.py"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek", "space.py"], "tuner: tuner has no verb 'chek'; did you mean check? see `python -m tuner --help`\n"),
        (["check", "nowhere.py"], "tuner: a study file is a Python file that declares `study`, got 'nowhere.py', which is no file; did you mean 'space.py'?\n"),
        (["check", "space.py", "--set", "lr"], "tuner: --set needs NAME=VALUE, got 'lr'; write --set lr=0.001\n"),
        (["check", "space.py", "--set", "lrr=1"], "tuner: 'lrr' is not a hyperparameter of the study; did you mean 'lr'?\n"),
        (["check", "space.py", "--trials", "0"], "tuner: argument --trials: needs a whole number of at least 1, got '0'; see `python -m tuner check --help`\n"),
        (["check", "space.py", "--cpus-per-trial", "9999"], None),
        (["show", "nowhere"], "tuner: a run is a folder with run.json, got 'nowhere', with none in it or below it; `python -m tuner runs` lists all runs\n"),
        (["resume", "nowhere"], "tuner: a run is a folder with run.json, got 'nowhere', with none in it or below it; `python -m tuner runs` lists all runs\n"),
        (["try", "nowhere", "lr=0.1", "lr=0.2"], "tuner: try needs one value for 'lr', got 0.1 and 0.2; leave one out\n"),
        (["set", "nowhere"], "tuner: set needs a limit or --concurrency, got neither; see `python -m tuner set --help`\n"),
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
    assert [line.split()[0] for line in lines[2:8]] == [one.trial.trial for one in run.record.ranked()]
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
    finished = tuner("runs", folder=tmp_path, PYTHONUNBUFFERED="")
    assert (finished.code, finished.out) == (0, "no runs under runs\n")


def test_the_console_script_is_the_module(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "tuner"
    result = subprocess.run([script, "runs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "no runs under runs\n"


def test_threads_and_exit_functions_of_a_study_file_come_to_their_end(space: Path, tmp_path: Path) -> None:
    space.write_text(
        space.read_text()
        + """
import atexit, sys, threading, time
atexit.register(lambda: print("an exit function", file=sys.stderr))
threading.Thread(target=lambda: (time.sleep(0.5), print("a thread", file=sys.stderr))).start()
"""
    )
    assert tuner("check", "space.py", folder=tmp_path).err == "a thread\nan exit function\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["show"], ["runs"], ["show", "--json"]], ids=" ".join)
def test_a_reader_that_goes_early_is_no_mistake(tmp_path: Path, arguments: list[str], unbuffered: str) -> None:
    make_run(tmp_path / "runs" / "simulated" / "1")
    process = start(*arguments, folder=tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait()) == ("", 0)
    process.stderr.close()


def test_help_names_every_verb() -> None:
    assert all(
        f"    {verb} " in tuner("--help", folder=ROOT).out
        for verb in ("run", "check", "resume", "runs", "show", "doctor", "predict")
    )


# The rest in this process: an exit code is what `main` returns, or argparse raises.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "argument --trials: needs a whole number of at least 1, got '0'"),
        (["--trials", "2.5"], "argument --trials: needs a whole number of at least 1, got '2.5'"),
        (["--trials", "many"], "argument --trials: needs a whole number of at least 1, got 'many'"),
        (["--trials", "inf"], "argument --trials: needs a whole number of at least 1, got 'inf'"),
        (["--samples", "-1"], "argument --samples: needs a whole number of at least 1, got '-1'"),
        (["--hours", "0"], "argument --hours: needs a number above 0, got '0'"),
        (["--hours", "nan"], "argument --hours: needs a number above 0, got 'nan'"),
        (["--minutes", "0"], "argument --minutes: needs a number above 0, got '0'"),
        (["--hours", "1", "--minutes", "5"], "argument --minutes: not allowed with argument --hours"),
        (["--cpus-per-trial", "0"], "argument --cpus-per-trial: needs a number above 0, got '0'"),
        (["--gpus-per-trial", "-1"], "argument --gpus-per-trial: needs a number of at least 0, got '-1'"),
        (["--seed", "-1"], "argument --seed: needs a whole number of at least 0, got '-1'"),
        (["--seed"], "argument --seed: expected one argument"),
        (["--frobnicate", "1"], "unrecognized arguments: --frobnicate 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_option_value_is_refused_with_its_rule(
    space: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run_main(capsys, "check", space, *arguments)
    assert (code, out, err) == (2, "", f"tuner: {message}; see `python -m tuner check --help`\n")


def test_minutes_are_hours_in_another_word(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = [run_main(capsys, "check", space, *limit) for limit in (("--minutes", "30"), ("--hours", "0.5"))]
    assert told[0] == told[1]
    assert "30 minutes" in told[0][1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "space.py", "--epochs", "3"],
            "--epochs 3; see `python -m tuner run --help`",
        ),
        (["stop", "RUN", "--trails=7"], "--trails=7; did you mean --trial? see `python -m tuner stop --help`"),
        (["stop", "RUN", "7"], "7; see `python -m tuner stop --help`"),
        (["set", "RUN", "-x"], "-x; see `python -m tuner set --help`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_unknown_option_is_refused_with_the_nearest_one_and_the_help_of_its_verb(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_main(capsys, *arguments) == (2, "", f"tuner: unrecognized arguments: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "=1"], "--set needs NAME=VALUE, got '=1'; write --set lr=0.001"),
        (["--set", "lr=fast"], "lr must be a float from 1e-08 to 10, got 'fast'; write a number in that range"),
        (["--set", "lr={[]: 1}"], "lr must be a float from 1e-08 to 10, got '{[]: 1}'; write a number in that range"),
        (["--set", "lr="], "lr must be a float from 1e-08 to 10, got ''; write a number in that range"),
        (["--gpus-per-trial", "Auto"], "Resources.gpus needs a number or 'auto', got 'Auto'; write 'auto'"),
        (["--gpus-per-trial", "1.5"], "Resources.gpus above 1 needs a whole number, got 1.5; use 1 or 2"),
        (["--placement", "apart"], "Resources.placement needs 'pack' or 'spread', got 'apart'; choose one"),
        (
            ["--placement", "spread"],
            "placement='spread' needs a process for each device, got strategy=None; use strategy='ddp' or 'pipeline', "
            "or leave placement out",
        ),
        (
            ["--name", "my study"],
            "a study's name becomes a folder: letters, digits, '.', '_' and '-' only, got 'my study'; try 'my-study'",
        ),
        (
            ["--cpus-per-trial", "4096"],
            f"a trial can have at most the CPUs that this machine has ({this_machine().cpus}), "
            f"got Resources(cpus=4096); use at most {this_machine().cpus} (also --cpus-per-trial)",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_does_not_fit_the_study_is_refused(
    space: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_main(capsys, "check", space, *arguments) == (2, "", f"tuner: {message}\n")


def test_check_prints_one_json_object_of_what_would_be_tried(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("check", space, "--json", "--samples", "2", "--trials", "7", "--name", "other", "--set", "lr=0.5")
    code, out, err = run_main(capsys, *arguments, "--set", "optimizer=sgd", "--set", "image_size=16")
    assert (code, err, out.count("\n")) == (0, "", 1)
    found = json.loads(out)
    assert (found["study"], found["trials"], len(found["samples"])) == ("other", 7, 2)
    for config in found["samples"]:
        assert list(config) == ["lr", "optimizer", "momentum", "image_size"]
        assert (config["lr"], config["optimizer"], config["image_size"]) == (0.5, "sgd", 16)
        assert 0.8 <= config["momentum"] <= 0.99


def test_check_shows_starting_points_first_and_no_more_than_the_space_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.py").write_text(
        'from tuner import *\nstudy = Study("d", trial=ImageClassifier("digits", weights=None), search=Grid(),\n'
        '    space={"batch_size": grid_search([8, 16, 32])}, start_from=[{"batch_size": 32}])\n'
    )
    _, out, _ = run_main(capsys, "check", tmp_path / "small.py", "--json", "--samples", "9")
    tried = [config["batch_size"] for config in json.loads(out)["samples"]]
    assert (tried[0], sorted(tried)) == (32, [8, 16, 32])


def test_a_seed_gives_the_same_samples_and_another_seed_others(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (run_main(capsys, "check", space, "--json", "--seed", seed)[1] for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


def interrupted_run(folder: Path) -> Path:
    """A run that was cut off after 13 reports, in which the second trial failed."""
    loop = build(study(), folder)
    drive(loop, reports=13)
    loop.failed("00001", "error", "ValueError: [x]", "Traceback (most recent call last):\nValueError: [x]")
    loop.end("Ctrl-C")
    loop.close()
    info = {"format": FORMAT, "study": "simulated", "metric": "loss", "mode": "min", "status": "interrupted"}
    write_info(LocalFolder(folder), {**info, "started": "2026-01-31T09:30:00+00:00"})
    return folder


def test_show_tells_of_failures_and_the_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = interrupted_run(tmp_path)
    code, out, err = run_main(capsys, "show", run)
    assert (code, err) == (0, "")
    shown = re.sub(r"\b\d+ s\b", "0 s", out)  # what the machine took for it
    assert [" ".join(line.split()) for line in shown.splitlines()] == [
        f"simulated in {run}: interrupted, 2 trials, 0 s",
        "trial status epochs loss at time settings",
        "00000 completed 9 0.2316 9 0 s x=0.637",
        "00001 failed: error 4 0.5978 4 0 s x=0.8897",
        "1 trial failed, as trial 00001: ValueError: [x]",
        "best: loss 0.2316 ± 0.0033 over epochs 8 to 9 (trial 00000, epoch 9: x=0.637)",
        "13 epochs: 9 in 1 trial trained to the end, 4 in 1 trial that failed",
        f"run folder: {run}",
    ]


def test_show_of_a_failed_trial_ends_with_its_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = interrupted_run(tmp_path)
    code, out, err = run_main(capsys, "show", run, "--trial", "1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("trial 00001: failed: error, seed ")
    assert re.fullmatch(r".*, \d+ s", lines[0])
    assert lines[1] == "  x = 0.8897387912781343"
    assert [line.split()[0] for line in lines[2:7]] == ["epoch", "1", "2", "3", "4"]
    assert lines[7:] == ["ValueError: [x]", "Traceback (most recent call last):", "ValueError: [x]"]


def test_the_same_as_json_has_the_contracts_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = interrupted_run(tmp_path / "simulated" / "1")
    _, out, _ = run_main(capsys, "show", run, "--json")
    summary = json.loads(out)
    assert list(summary) == ["run", "status", "best", "trials", "failures", "wall_seconds", "report"]
    assert list(summary["best"]) == ["trial_id", "config", "value", "error", "over_epochs", "epoch", "metrics", "refit"]
    assert (summary["run"], summary["status"], summary["failures"]) == (
        str(run),
        "interrupted",
        {"error: ValueError: [x]": 1},
    )
    assert summary["trials"] == {"total": 2, "completed": 1, "stopped": 0, "failed": 1}
    code, out, _ = run_main(capsys, "runs", "--storage", tmp_path, "--json")
    assert (code, json.loads(out)) == (0, [summary])


def test_runs_are_listed_newest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "simulated" / "1", started="2026-01-01T00:00:00+00:00")
    make_run(tmp_path / "simulated" / "2", started="2026-02-01T00:00:00+00:00")
    code, out, err = run_main(capsys, "runs", "--storage", tmp_path)
    assert (code, err) == (0, "")
    assert [line.split()[:4] for line in out.splitlines()] == [
        ["run", "status", "trials", "metric"],
        [str(tmp_path / "simulated" / "2"), "finished", "6", "loss"],
        [str(tmp_path / "simulated" / "1"), "finished", "6", "loss"],
    ]


def test_no_runs_as_json_are_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(capsys, "runs", "--storage", tmp_path / "nowhere", "--json") == (0, "[]\n", "")


@pytest.mark.parametrize("verb", ["show", "resume", "predict"])
def test_a_damaged_run_is_refused_by_every_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    (tmp_path / "run.json").write_text('{"format": 1, "study": "s"}')
    more = ["image.png"] if verb == "predict" else []
    code, out, err = run_main(capsys, verb, tmp_path, *more)
    assert (code, out) == (2, "")
    assert err == (
        "tuner: run.json needs study, metric, mode, status, started, got one without metric, mode, status, started "
        f"in '{tmp_path}'; restore it\n"
    )


def test_what_a_study_file_prints_never_reaches_stdout(space: Path, tmp_path: Path) -> None:
    space.write_text("print('hello from the study file')\n" + SPACE)
    finished = tuner("check", space, "--json", folder=tmp_path)
    assert finished.json["study"] == "lines"
    assert finished.err == "hello from the study file\n"


def test_one_trial_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path)
    trial = next(iter(run.record.trials.values()))
    assert main(["show", run.path, "--trial", "0", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["trial_id"], shown["config"], shown["status"]) == (trial.trial, trial.config, trial.status)
    assert [epoch["epoch"] for epoch in shown["epochs"]] == list(trial.epochs)
    assert main(["show", run.path, "--trial", "99", "--json"]) == 2
    assert capsys.readouterr().err.startswith("tuner: a trial is named by its id, got '99'; this run has 00000 to ")


def test_check_names_the_limits_and_what_a_grace_of_one_epoch_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study_file(
        tmp_path,
        'def train(config): ...\nstudy = Study("ends", trial=train, metric="a", space={"x": uniform(0, 1)}, '
        "budget=Budget(trials=None, hours=2, min_improvement=0.001), scheduler=ASHA(grace_epochs=1))",
    )
    assert main(["check", str(path), "--target", "0.95", "--total-epochs", "300"]) == 0
    out = capsys.readouterr().out
    assert (
        "ends sooner after 2 hours or 300 epochs in all or a 0.95 or no expected improvement of at least 0.001" in out
    )
    assert "note: grace_epochs=1 compares trials after their first epoch" in out


def test_a_copied_run_without_a_winner_names_the_report_that_lies_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It named the one of the machine that it was copied from."""
    run = all_failed(tmp_path)
    _, out, _ = run_main(capsys, "show", Path(run.path))
    assert out.splitlines()[-1] == f"report: {Path(run.path) / 'report.html'}"
