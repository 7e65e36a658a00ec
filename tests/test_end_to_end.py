"""Whole searches on real Ray, through the command line, as a user runs them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Finished, start, study_file, tuner
from tuner.results import Run, load_run

pytestmark = pytest.mark.ray

KEYS = ["run", "status", "best", "trials", "failures", "wall_seconds", "report"]

CURVE = """
def train(config):
    for epoch in range(1, 10):
        tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / epoch)
"""
RESUMABLE = """
import tempfile
from pathlib import Path

def train(config):
    folder = tuner.checkpoint()
    first = int((folder / "epoch").read_text()) if folder else 0
    for epoch in range(first + 1, 10):
        time.sleep(0.15)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            tuner.report(loss=(config["x"] - 0.3) ** 2 + 1 / epoch, first=first, checkpoint=folder)
"""


def study(body: str, settings: str = "", *, trials: int = 6) -> str:
    return f"""{body}
study = Study(
    "simple", trial=train, space={{"x": uniform(0, 1)}}, metric="loss", mode="min",
    budget=Budget(trials={trials}, max_epochs=9), {settings}
)
"""


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def ray_processes(session: int) -> list[str]:
    """Command lines of the live processes of a session (what `start_new_session` made), the leader left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if state[0] != "Z" and int(state[3]) == session and int(entry.name) != session:
                found.append(command)
    return found


def epochs_reported(storage: Path) -> int:
    files = list(storage.glob("*/*/events/*.jsonl"))  # not into tune/, where checkpoints vanish meanwhile
    return sum(file.read_text().count('"epoch_reported"') for file in files)


# The demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Run]:
    """The search of `make demo`."""
    storage = tmp_path_factory.mktemp("demo")
    finished = tuner("run", ROOT / "search_spaces/digits.py", "--storage", storage, "--json", folder=ROOT, timeout=600)
    assert finished.code == 0, finished.err
    return finished, load_run(storage)


@pytest.mark.slow
def test_the_demo_finds_a_network_that_reads_digits(demo: tuple[Finished, Run]) -> None:
    finished, run = demo
    summary = finished.json
    assert list(summary) == KEYS
    assert Path(summary["report"]).read_text().startswith("<!doctype html>")
    assert summary["status"] == "finished"
    assert summary["best"]["metrics"]["test_accuracy"] >= 0.95
    assert summary["trials"]["total"] == 10
    assert summary["trials"]["stopped"] >= 1
    assert summary["trials"]["failed"] == 0
    assert summary == run.summary()


@pytest.mark.slow
def test_the_demos_winner_is_loaded_back_and_scores_the_same(demo: tuple[Finished, Run]) -> None:
    from tuner import load_model
    from tuner.train import load_splits
    from tuner.trial import ImageClassifier

    finished, run = demo
    metrics = finished.json["best"]["metrics"]
    model = load_model(run)
    splits = load_splits(ImageClassifier("digits", weights=None), seed=0, image_size=16)
    scored = model.evaluate(splits.test)
    assert scored.accuracy == pytest.approx(metrics["test_accuracy"], abs=1e-9)
    assert scored.loss == pytest.approx(metrics["test_loss"], rel=1e-4)
    assert model.evaluate(splits.validation).accuracy == pytest.approx(metrics["val_accuracy"], abs=1e-9)


@pytest.mark.slow
def test_the_demos_run_folder_holds_everything(demo: tuple[Finished, Run]) -> None:
    folder = Path(demo[1].path)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("best", "events", "history.csv", "report.html", "run.json", "study.py", "trials.csv", "tune")
    ]
    assert (folder / "study.py").read_text() == (ROOT / "search_spaces/digits.py").read_text()
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["data_fingerprint"]
    assert info["versions"]["ray"]
    assert sorted(path.name for path in (folder / "best").iterdir()) == [
        *("config.json", "confusion_matrix.json", "metrics.json", "mistakes.json", "model.json", "model.safetensors")
    ]
    kept = list((folder / "tune").rglob("model.safetensors"))
    assert [path.parent.parent.name for path in kept] == [demo[1].best.trial]  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_demos_winner_classifies_an_image_file(demo: tuple[Finished, Run], tmp_path: Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    paths = [tmp_path / f"{index}.png" for index in range(20)]
    for path, image in zip(paths, digits.images, strict=False):
        Image.fromarray((image * 255 / 16).astype("uint8")).save(path)
    finished = tuner("predict", demo[1].path, *paths, "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    labels = [int(prediction["label"]) for prediction in finished.json]
    assert sum(label == truth for label, truth in zip(labels, digits.target, strict=False)) >= 18


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_fashion_mnist_whole_through_the_command_line(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    from tuner import load_model
    from tuner.train import load_splits
    from tuner.trial import ImageClassifier

    data = real_data("FashionMNIST")
    options = ["--trials", "1", "--cpus-per-trial", "2", "--set", "epochs=1", "--set", "batch_size=128"]
    options += ["--set", "image_size=16"]  # a third of the time
    options += ["--weights", "none", "--data-dir", str(data), "--json"]
    space = ROOT / "search_spaces/fashion_resnet18.py"
    finished = tuner("run", space, *options, "--storage", tmp_path, folder=ROOT, timeout=1400)
    assert finished.code == 0, finished.err
    summary = finished.json
    assert list(summary) == KEYS
    assert summary["trials"] == {"total": 1, "completed": 1, "stopped": 0, "failed": 0}
    splits = load_splits(ImageClassifier("fashion-mnist", weights=None, data_dir=data), seed=0, image_size=16)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [54_000, 6_000, 10_000]
    model = load_model(load_run(tmp_path))
    metrics = summary["best"]["metrics"]
    assert model.evaluate(splits.test).accuracy == pytest.approx(metrics["test_accuracy"], abs=2e-4)
    assert model.evaluate(splits.validation).accuracy == pytest.approx(metrics["val_accuracy"], abs=4e-4)
    assert metrics["test_accuracy"] > 0.75


# What a study can be


def test_a_search_is_refined_to_a_grid_that_finds_better(tmp_path: Path) -> None:
    study_file(tmp_path, study(CURVE, "search=Random(sobol=False), scheduler=NoEarlyStopping()", trials=12), "first.py")
    assert tuner("run", "first.py", folder=tmp_path).code == 0
    first = load_run(tmp_path / "runs")
    refined = tuner("refine", "runs", "-o", "grid.py", folder=tmp_path)
    assert refined.code == 0, refined.err
    assert refined.out.splitlines()[-1] == "python -m tuner run grid.py"
    assert "from first import study as original" in (tmp_path / "grid.py").read_text()
    assert tuner("run", "grid.py", "--quiet", folder=tmp_path).code == 0
    second = load_run(tmp_path / "runs")
    assert (second.name, len(second.record.trials)) == ("simple-grid", 5)
    assert first.record.best_value is not None
    assert second.record.best_value <= first.record.best_value

    again = tuner("refine", "runs/simple", "-o", "grid.py", "--as", "narrowed", folder=tmp_path)
    assert (again.code, again.err) == (
        2,
        "tuner: -o names a new file, got 'grid.py', which exists; choose another, or add --force\n",
    )
    forced = tuner("refine", "runs/simple", "-o", "grid.py", "--as", "narrowed", "--force", folder=tmp_path)
    assert forced.code == 0, forced.err
    checked = tuner("check", "grid.py", "--json", folder=tmp_path)
    assert checked.json["samples"][0] == first.best.config
    share = tuner("refine", "runs/simple", "-o", "x.py", "--quantile", "2", folder=tmp_path)
    assert share.err == "tuner: quantile needs a share above 0, 1 at most, got 2.0; use 0.25\n"


def test_a_search_says_why_it_ended_and_goes_on_with_another_limit(tmp_path: Path) -> None:
    study_file(tmp_path, study(CURVE, trials=30))
    first = tuner("run", "space.py", "--total-epochs", "12", "--concurrency", "1", folder=tmp_path)
    assert "the search ended as the limit of 12 epochs was reached\n" in first.out
    run = load_run(tmp_path / "runs")
    assert (run.info["end_reason"], run.record.epochs()) == ("total_epochs", 12)
    refused = tuner("resume", "runs", "--trials", "40", folder=tmp_path)
    assert refused.code == 2
    assert refused.err.splitlines()[-1] == (
        "tuner: --total-epochs is for the run in all and needs to be above the 12 that it has, got 12; "
        "use --total-epochs with another value"
    )
    second = tuner("resume", "runs", "--total-epochs", "1000", "--target", "0.1125", folder=tmp_path)
    assert "the search ended as loss reached the target of 0.1125\n" in second.out
    assert load_run(tmp_path / "runs").record.best_value <= 0.1125


def test_a_function_of_ones_own_is_searched_and_only_json_is_on_stdout(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(CURVE, "search=Random(), scheduler=NoEarlyStopping()"))
    elsewhere = {
        "RAY_ADDRESS": "127.0.0.1:9"
    }  # no address was asked for: Ray starts here, whatever the environment says
    finished = tuner("run", space, "--json", "--storage", "out", folder=tmp_path, **elsewhere)
    assert finished.code == 0, finished.err
    assert finished.out.count("\n") == 1
    assert finished.json["trials"] == {"total": 6, "completed": 6, "stopped": 0, "failed": 0}
    run = load_run(tmp_path / "out")
    assert len(run.history) == 54
    assert finished.json["best"]["config"] == run.best.config  # type: ignore[union-attr]
    assert "trial 00000 started" in finished.err


def test_one_trial_at_a_time_the_same_seed_gives_the_same_search(tmp_path: Path) -> None:
    space = 'space={"x": quniform(0, 1, 0.1), "k": choice(["a", None, True])}'
    body = study(CURVE, "search=HyperOpt(startup_trials=3), scheduler=ASHA()").replace(
        'space={"x": uniform(0, 1)}', space
    )
    path = study_file(tmp_path, body)
    runs = []
    for name in ("one", "two"):
        finished = tuner("run", path, "--concurrency", "1", "--storage", name, "--quiet", folder=tmp_path)
        assert finished.code == 0, finished.err
        runs.append([(t.config, t.epoch, t.status) for t in load_run(tmp_path / name).record.trials.values()])
    assert runs[0] == runs[1]
    assert len(runs[0]) == 6


def test_a_search_starts_where_the_one_before_it_ended(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(CURVE, "search=Random()"))
    assert tuner("run", space, folder=tmp_path).code == 0
    earlier = load_run(tmp_path / "runs")
    second = tuner("run", space, "--seed", "1", folder=tmp_path)
    name = "/".join(Path(earlier.path).parts[-2:])
    assert f"note: starts with 1 configuration learned from earlier runs ({name})" in second.err
    later = load_run(tmp_path / "runs")
    assert earlier.best is not None
    assert later.trial("0").config == earlier.best.config
    third = tuner("run", space, "--seed", "1", "--no-history", folder=tmp_path)
    assert "learned from" not in third.err
    assert load_run(tmp_path / "runs").trial("0").config != earlier.best.config


@pytest.mark.parametrize("search", ["HyperOpt(startup_trials=3)", "MultiFidelityGP()", "BOHB(min_points=2)"])
def test_the_search_under_ray_is_the_search_without_it(tmp_path: Path, search: str) -> None:
    from tests.driver.simulation import build, drive
    from tuner import load_study

    space = study_file(tmp_path, study(RESUMABLE, f"search={search}, scheduler=ASHA(grace_epochs=1)", trials=12))
    assert tuner("run", space, "--concurrency", "1", "--storage", "out", folder=tmp_path).code == 0
    loop = build(load_study(space), tmp_path / "simulated")
    drive(loop)
    under_ray = load_run(tmp_path / "out").record.trials.values()
    simulated = loop.record.trials.values()
    assert [(t.config, t.epoch, t.status) for t in under_ray] == [(t.config, t.epoch, t.status) for t in simulated]


@pytest.mark.parametrize("scheduler", ['ASHA(rule="promote")', "HyperBand()"])
def test_pausing_and_going_on_loses_no_epoch(tmp_path: Path, scheduler: str) -> None:
    space = study_file(tmp_path, study(RESUMABLE, f"search=Random(), scheduler={scheduler}", trials=8))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    assert run.record.notices == []
    assert any(event["event"] == "trial_resumed" for event in run.events)
    for trial in run.record.trials.values():
        reported = [e["epoch"] for e in run.events if e["event"] == "epoch_reported" and e["trial"] == trial.trial]
        assert reported == list(range(1, trial.epoch + 1))
        firsts = [trial.epochs[epoch].metrics["first"] for epoch in reported]
        assert firsts == sorted(firsts)


def test_a_function_that_never_saves_is_stopped_instead_of_paused_with_a_notice(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(CURVE, 'search=Random(), scheduler=ASHA(rule="promote")'))
    finished = tuner("run", space, "--storage", "out", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert finished.err.count("note: this trial saves no checkpoint, so it can't pause") == 1


# One worker, many trials


LEAKY = """
import os
import random

import numpy as np

COUNT = [0]

def train(config):
    import torch

    COUNT[0] += 1
    values = dict(
        x=config["x"], count=COUNT[0], env=os.environ.get("LEAK", ""), threads=torch.get_num_threads(),
        dtype=str(torch.get_default_dtype()), grad=torch.is_grad_enabled(), cwd=os.getcwd(), pid=os.getpid(),
        python=random.random(), numpy=float(np.random.rand()), torch=float(torch.rand(())),
    )
    os.environ["LEAK"] = "yes"
    os.chdir("/")
    torch.set_num_threads(7)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    tuner.report(loss=values["torch"], **values)

study = Study(
    "leaky", trial=train, space={"x": uniform(0, 1)}, metric="loss", mode="min", search=Random(),
    scheduler=NoEarlyStopping(), budget=Budget(trials=5, max_epochs=1),
)
"""


def test_nothing_of_one_trial_reaches_the_next_on_the_same_worker(tmp_path: Path) -> None:
    space = study_file(tmp_path, LEAKY)
    assert tuner("run", space, "--concurrency", "1", "--storage", "out", folder=tmp_path).code == 0
    history = load_run(tmp_path / "out").history
    assert history["pid"].nunique() == 1
    same = history[["count", "env", "threads", "dtype", "grad", "cwd"]].drop_duplicates()
    assert same.to_dict("records") == [
        {"count": 1, "env": "", "threads": 1, "dtype": "torch.float32", "grad": True, "cwd": str(tmp_path)}
    ]
    assert history[["python", "numpy", "torch"]].nunique().tolist() == [5, 5, 5]


def test_a_trial_gives_the_same_result_first_and_fifth_on_a_worker(tmp_path: Path) -> None:
    """The same configuration and seed, alone on a fresh worker and after four others on a used one."""
    from tuner.driver.process import clean_process
    from tuner.train import Trainer
    from tuner.trial import ImageClassifier

    body = """
study = Study(
    "digits", trial=ImageClassifier("digits", "resnet18", weights=None),
    space={"lr": loguniform(1e-4, 1e-2), "image_size": 8}, search=Random(),
    scheduler=NoEarlyStopping(), budget=Budget(trials=5, max_epochs=1),
)
"""
    space = study_file(tmp_path, body)
    assert tuner("run", space, "--concurrency", "1", "--storage", "out", folder=tmp_path).code == 0
    fifth = list(load_run(tmp_path / "out").record.trials.values())[4]
    with clean_process(seed=fifth.seed, threads=1):
        trainer = Trainer(
            ImageClassifier("digits", "resnet18", weights=None), fifth.config, epochs=1, seed=fifth.seed, split_seed=0
        )
        alone = trainer.run_epoch()
    metrics = fifth.epochs[1].metrics
    assert (metrics["train_loss"], metrics["val_loss"], metrics["val_accuracy"]) == (
        *(alone.train_loss, alone.val_loss, alone.val_accuracy),
    )


# What goes wrong


FAILING = """
import math

def train(config):
    if config["x"] > 0.6:
        raise RuntimeError("the third layer fell off")
    if config["x"] > 0.3:
        tuner.report(loss=math.nan)
    tuner.report(loss=config["x"])
"""


def test_trials_that_raise_or_diverge_fail_with_their_cause_and_the_search_goes_on(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(FAILING, "search=HyperOpt(startup_trials=4)", trials=12))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    trials = load_run(tmp_path / "out").record.trials.values()
    causes = {"error" if t.config["x"] > 0.6 else "diverged" if t.config["x"] > 0.3 else None for t in trials}
    assert causes == {"error", "diverged", None}
    for trial in trials:
        expected = "error" if trial.config["x"] > 0.6 else "diverged" if trial.config["x"] > 0.3 else None
        assert trial.cause == expected
        if expected == "error":
            assert trial.message == "RuntimeError: the third layer fell off"
            assert 'raise RuntimeError("the third layer fell off")' in (trial.traceback or "")
    assert sum(finished.json["failures"].values()) == finished.json["trials"]["failed"]


def test_a_search_without_a_winner_exits_1_and_names_the_most_frequent_cause(tmp_path: Path) -> None:
    body = "def train(config):\n    raise ValueError('no such layer')\n"
    finished = tuner("run", study_file(tmp_path, study(body, trials=3)), "--storage", "out", "--quiet", folder=tmp_path)
    assert finished.code == 1
    run = load_run(tmp_path / "out")
    assert run.status == "failed"
    assert finished.out == ""
    assert finished.err == (
        "no trial succeeded: 3 of 3 trials failed with error: ValueError: no such layer\n"
        f"for its traceback: python -m tuner show {run.path} --trial 00000\n"
    )
    shown = tuner("show", run.path, "--trial", "0", folder=tmp_path)
    assert "raise ValueError('no such layer')" in shown.out


def test_a_killed_worker_costs_its_trial_nothing_but_the_epochs_since_its_checkpoint(tmp_path: Path) -> None:
    body = RESUMABLE.replace(
        "        time.sleep(0.15)",
        "        if epoch == 5 and first == 0 and config['x'] > 0.5:\n"
        "            import os, signal\n"
        "            os.kill(os.getpid(), signal.SIGKILL)",
    )
    space = study_file(tmp_path, study(body, "search=Random(), scheduler=NoEarlyStopping()", trials=3))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    trials = load_run(tmp_path / "out").record.trials.values()
    assert [trial.status for trial in trials] == ["completed"] * 3
    assert [trial.losses for trial in trials] == [1 if trial.config["x"] > 0.5 else 0 for trial in trials]
    hurt = next(trial for trial in trials if trial.losses)
    assert [hurt.epochs[epoch].metrics["first"] for epoch in range(1, 10)] == [0] * 4 + [4] * 5


def test_a_worker_that_dies_every_time_is_a_lost_trial(tmp_path: Path) -> None:
    body = "import os\n\ndef train(config):\n    tuner.report(loss=1.0)\n    os._exit(1)\n"
    space = study_file(tmp_path, study(body, "search=Random()", trials=1))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 1, finished.err
    assert finished.json["failures"] == {"lost": 1}


def test_a_trial_that_calls_exit_fails_and_the_worker_lives(tmp_path: Path) -> None:
    body = "import sys\n\ndef train(config):\n    sys.exit(3)\n"
    finished = tuner("run", study_file(tmp_path, study(body, trials=2)), "--storage", "out", folder=tmp_path)
    assert finished.code == 1
    assert "the trial's code called exit(3); raise an exception instead" in finished.err


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ('{"x": loguniform(0.0, 1)}', "loguniform needs low > 0, got low=0.0 for 'x'; use uniform or raise low"),
        ('{"x": choice([])}', "choice needs at least one value, got an empty list for 'x'"),
    ],
)
def test_bad_input_exits_2_with_one_message_and_leaves_nothing(tmp_path: Path, space: str, message: str) -> None:
    path = study_file(tmp_path, study(CURVE).replace('{"x": uniform(0, 1)}', space))
    finished = tuner("run", path, folder=tmp_path)
    assert (finished.code, finished.out) == (2, "")
    assert message in finished.err
    assert finished.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_imagenet_weights_that_cannot_be_had_are_refused_before_the_search(tmp_path: Path) -> None:
    refused = {
        "https_proxy": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "TORCH_HOME": str(tmp_path / "hub"),
    }
    space = ROOT / "search_spaces/digits.py"
    finished = tuner("run", space, "--weights", "imagenet", folder=tmp_path, **refused)
    assert (finished.code, finished.out) == (2, "")
    assert "--weights none" in finished.err
    assert "Traceback" not in finished.err
    assert not (tmp_path / "runs").exists()


# Ctrl-C, and going on


def interrupt(space: Path, folder: Path, signal_number: int, reports: int = 8) -> Finished:
    process = start("run", space, "--storage", "out", folder=folder)
    wait_for(lambda: epochs_reported(folder / "out") >= reports)
    os.kill(process.pid, signal_number)
    out, err = process.communicate(timeout=60)
    if signal_number != signal.SIGKILL:  # Ray's own agents outlive a killed driver by about a minute
        wait_for(lambda: ray_processes(process.pid) == [], 20)
    return Finished(process.returncode, out, err)


def test_a_search_told_to_end_saves_prints_how_to_resume_and_leaves_no_process(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(RESUMABLE, "search=HyperOpt(startup_trials=3)"))
    finished = interrupt(space, tmp_path, signal.SIGTERM)
    run = load_run(tmp_path / "out")
    assert finished.code == 130
    assert finished.err.splitlines()[-1] == f"python -m tuner resume {run.path}"
    assert run.status == "interrupted"
    assert any(trial.status == "interrupted" for trial in run.record.trials.values())
    assert (Path(run.path) / "trials.csv").is_file()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["Ctrl-C", "kill -9"])
def test_an_interrupted_search_goes_on_to_what_it_would_have_been(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    space = study_file(tmp_path, study(RESUMABLE, "search=Random(), scheduler=NoEarlyStopping()"))
    assert interrupt(space, tmp_path, number).code == code
    before = load_run(tmp_path / "out")
    assert before.status == "interrupted"
    saved = {trial.trial: trial.last_checkpoint for trial in before.record.trials.values() if trial.live}
    finished = tuner("resume", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    assert run.path == before.path
    trials = list(run.record.trials.values())
    assert [trial.trial for trial in trials] == [f"{number:05d}" for number in range(6)]
    assert [trial.status for trial in trials] == ["completed"] * 6
    assert all(sorted(trial.epochs) == list(range(1, 10)) for trial in trials)
    for name, checkpoint in saved.items():
        first = checkpoint[0] if checkpoint else 0
        assert run.record.trials[name].epochs[9].metrics["first"] == first
    again = tuner("resume", "out", folder=tmp_path)
    assert again.code == 2
    assert "--trials is the number of trials in all and needs to be above the 6 that the run has" in again.err


# The network


def listening(pids: set[int]) -> list[str]:
    """Local addresses on which processes listen, from the kernel's tables."""
    inodes = set()
    for pid in pids:
        try:
            links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1].rsplit(":", 1)[0] for row in rows if row[3] == "0A" and row[9] in inodes]


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_ray_listens_on_loopback_only_and_leaves_no_token(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    space = study_file(tmp_path, study(RESUMABLE.replace("0.15", "0.5"), "search=Random()"))
    process = start("run", space, "--storage", "out", folder=tmp_path, HOME=str(home))
    wait_for(lambda: epochs_reported(tmp_path / "out") >= 2)
    session = {int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit() and _session_of(e) == process.pid}
    addresses = listening(session)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert len(session) > 4
    assert addresses
    assert set(addresses) <= LOOPBACK
    readable = [path for path in home.rglob("*token*") if path.is_file() and path.stat().st_mode & 0o077]
    assert readable == []


def _session_of(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
    except OSError:
        return -1


# From Python


def test_run_and_resume_from_python_return_the_run(tmp_path: Path) -> None:
    program = """
import sys

import tuner

def train(config):
    for epoch in range(1, 4):
        tuner.report(loss=config["x"] / epoch)

study = tuner.Study(
    "python", trial=train, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min",
    search=tuner.Random(), budget=tuner.Budget(trials=3, max_epochs=3),
)
run = tuner.run(study, storage="out")
print(len(run.trials), run.status, run.best.epoch)
longer = tuner.resume(run.path, study=study, trials=5)
print(len(longer.trials), longer.path == run.path)
print({"torch", "wandb"} & set(sys.modules))  # a second or more of imports that nobody needs here
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.stdout == "3 finished 3\n5 True\nset()\n", result.stderr


def test_a_run_folder_that_was_moved_can_be_read_and_extended(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(CURVE, "search=Random()", trials=2))
    assert tuner("run", space, "--storage", "out", folder=tmp_path).code == 0
    moved = tmp_path / "elsewhere"
    shutil.move(load_run(tmp_path / "out").path, moved)
    space.unlink()
    finished = tuner("resume", moved, "--trials", "3", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert finished.json["trials"]["total"] == 3
