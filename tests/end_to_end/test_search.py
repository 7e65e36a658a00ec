"""Whole searches on real Ray, through the command line, as a user runs them."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.commands import ROOT, Finished, study_file, tuner
from tests.loop.simulation import build, drive
from tests.searches import CURVE, RESUMABLE, study
from tuner import Run, load_run, load_study
from tuner.history.records import TrialRecord
from tuner.space import Config

pytestmark = pytest.mark.ray

KEYS = ["run", "status", "best", "trials", "failures", "wall_seconds", "report"]


# README's search, and the demo


@pytest.fixture(scope="module")
def demo(readme_search: tuple[Finished, Path]) -> tuple[Finished, Run]:
    """A short form of the demo: what README's blocks search."""
    finished, storage = readme_search
    return finished, load_run(storage)


@pytest.mark.slow
@pytest.mark.timeout(1900)
def test_make_demo_finds_a_network_that_reads_digits_well(tmp_path: Path) -> None:
    options = ("--storage", tmp_path, "--json")
    finished = tuner("run", ROOT / "search_spaces/digits.py", *options, folder=ROOT, timeout=1800)
    assert finished.code == 0, finished.err
    summary = finished.json
    assert summary["best"]["metrics"]["test_accuracy"] >= 0.95
    assert (summary["trials"]["total"], summary["trials"]["failed"]) == (10, 0)
    assert summary["trials"]["stopped"] >= 1
    assert Path(load_run(tmp_path).path, "study.py").read_text() == (ROOT / "search_spaces/digits.py").read_text()


def test_the_demo_finds_a_network_that_reads_digits(demo: tuple[Finished, Run]) -> None:
    finished, run = demo
    summary = finished.json
    assert list(summary) == KEYS
    assert Path(summary["report"]).read_text().startswith("<!doctype html>")
    assert summary["status"] == "finished"
    assert summary["best"]["metrics"]["test_accuracy"] >= 0.8
    assert summary["trials"] == {"total": 4, "completed": 4, "stopped": 0, "failed": 0}
    assert summary == run.summary()


def test_the_demos_winner_is_loaded_back_and_scores_the_same(demo: tuple[Finished, Run]) -> None:
    from tuner import load_model
    from tuner.train import load_splits
    from tuner.trial import ImageClassifier

    finished, run = demo
    metrics = finished.json["best"]["metrics"]
    model = load_model(run)
    splits = load_splits(ImageClassifier("digits", weights=None), seed=0, image_size=8)
    scored = model.evaluate(splits.test)
    assert scored["accuracy"] == pytest.approx(metrics["test_accuracy"], abs=1e-9)
    assert scored.loss == pytest.approx(metrics["test_loss"], rel=1e-4)
    assert model.evaluate(splits.validation)["accuracy"] == pytest.approx(metrics["val_accuracy"], abs=1e-9)


def test_the_demos_run_folder_holds_everything(demo: tuple[Finished, Run]) -> None:
    folder = Path(demo[1].path)
    assert sorted(path.name for path in folder.iterdir()) == [
        *(
            "best",
            "checkpoints",
            "events",
            "history.csv",
            "inbox",
            "lease",
            "report.html",
            "run.json",
            "study.py",
            "trials.csv",
            "tune",
        )
    ]
    assert (folder / "study.py").read_text() == (folder.parents[2] / "space.py").read_text()
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["data_fingerprint"]
    assert info["versions"]["ray"]
    assert sorted(path.name for path in (folder / "best").iterdir()) == [
        *(
            "calibration.json",
            "config.json",
            "confusion_matrix.json",
            "least_sure.json",
            "metrics.json",
            "mistakes.json",
        ),
        *("model.json", "model.safetensors"),
    ]
    best = demo[1].best
    assert best is not None
    kept = [str(path.relative_to(folder)) for path in folder.glob("checkpoints/*/*/files/model.safetensors")]
    assert kept == [f"checkpoints/{best.trial}/{demo[1].best_epoch:06d}/files/model.safetensors"]
    assert list((folder / "tune").rglob("model.safetensors")) == []


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
    assert sum(label == truth for label, truth in zip(labels, digits.target, strict=False)) >= 16


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_fashion_mnist_whole_through_the_command_line(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    from tuner import load_model
    from tuner.train import load_splits
    from tuner.trial import ImageClassifier

    data = real_data("FashionMNIST")
    options = ["--trials", "1", "--set", "epochs=1", "--set", "batch_size=128"]
    options += ["--set", "image_size=8"]  # that all images are read is what is tested here
    options += ["--weights", "none", "--data-dir", str(data), "--json"]
    space = ROOT / "search_spaces/fashion_resnet18.py"
    finished = tuner("run", space, *options, "--storage", tmp_path, folder=ROOT, timeout=1400)
    assert finished.code == 0, finished.err
    summary = finished.json
    assert list(summary) == KEYS
    assert summary["trials"] == {"total": 1, "completed": 1, "stopped": 0, "failed": 0}
    splits = load_splits(ImageClassifier("fashion-mnist", weights=None, data_dir=data), seed=0, image_size=8)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [54_000, 6_000, 10_000]
    model = load_model(load_run(tmp_path))
    metrics = summary["best"]["metrics"]
    assert model.evaluate(splits.test)["accuracy"] == pytest.approx(metrics["test_accuracy"], abs=2e-4)
    assert model.evaluate(splits.validation)["accuracy"] == pytest.approx(metrics["val_accuracy"], abs=4e-4)
    assert metrics["test_accuracy"] > 0.75


# What a study can be


@pytest.mark.slow
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
    forced = tuner("refine", "runs/simple", "-o", "grid.py", "--as", "narrowed", "--force", "--json", folder=tmp_path)
    assert forced.code == 0, forced.err
    assert (forced.json["study"], forced.json["summary"][:10]) == ("grid.py", "The region")
    checked = tuner("check", "grid.py", "--json", folder=tmp_path)
    assert checked.json["samples"][0] == first.best.config
    share = tuner("refine", "runs/simple", "-o", "x.py", "--quantile", "2", folder=tmp_path)
    assert share.err == "tuner: quantile needs a share above 0, 1 at most, got 2.0; use 0.25\n"


@pytest.mark.slow
def test_a_search_says_why_it_ended_and_goes_on_with_another_limit(tmp_path: Path) -> None:
    study_file(tmp_path, study(CURVE, trials=30))
    first = tuner("run", "space.py", "--total-epochs", "12", "--concurrency", "1", folder=tmp_path)
    assert "the search ended as the limit of 12 epochs was reached\n" in first.out
    run = load_run(tmp_path / "runs")
    assert (run.info["end_reason"], run.record.epochs()) == ("total_epochs", 12)
    refused = tuner("resume", "runs", "--trials", "40", folder=tmp_path)
    assert refused.code == 2
    assert refused.err.splitlines()[-1] == (
        "tuner: --total-epochs counts the whole run and must be above the 12 that it has already used, got 12; "
        "use --total-epochs 24 for as much again"
    )
    second = tuner("resume", "runs", "--total-epochs", "1000", "--target", "0.1125", folder=tmp_path)
    assert "the search ended as loss reached the target of 0.1125\n" in second.out
    assert load_run(tmp_path / "runs").record.best_value <= 0.1125


def test_a_function_of_ones_own_is_searched_and_only_json_is_on_stdout(tmp_path: Path) -> None:
    body = CURVE.replace("tuner.report(", "tuner.report(niceness=os.nice(0), ")
    space = study_file(tmp_path, "import os\n" + study(body, "search=Random(), scheduler=NoEarlyStopping()"))
    # no address was asked for: Ray starts here, whatever the environment says; and nobody is logged in to W&B
    around = {"RAY_ADDRESS": "127.0.0.1:9", "HOME": str(tmp_path), "WANDB_API_KEY": ""}
    finished = tuner("run", space, "--json", "--storage", "out", "--nice", "7", folder=tmp_path, **around)
    assert finished.code == 0, finished.err
    assert finished.out.count("\n") == 1
    assert finished.json["trials"] == {"total": 6, "completed": 6, "stopped": 0, "failed": 0}
    run = load_run(tmp_path / "out")
    assert len(run.history) == 54
    assert finished.json["best"]["config"] == run.best.config  # type: ignore[union-attr]
    assert "trial 00000 started" in finished.err
    assert set(run.history["niceness"] - os.nice(0)) == {7}
    assert finished.err.count("W&B is off") == 1
    assert run.info["wandb"] == "off"


QUICK = """
import os
from pathlib import Path

def train(config):
    with Path(os.environ["TRAINED"], str(config["x"])).open("a") as trained:
        for epoch in range(1, 41):
            time.sleep(0.004)
            trained.write(".")
            trained.flush()
            tuner.report(loss=config["x"] + 1 / epoch)
"""


@pytest.mark.slow
def test_quick_epochs_are_reported_together_and_none_is_trained_in_vain(tmp_path: Path) -> None:
    trained = tmp_path / "trained"
    trained.mkdir()
    space = study_file(tmp_path, study(QUICK, trials=6).replace("max_epochs=9", "max_epochs=40"))
    finished = tuner("run", space, "--storage", "out", folder=tmp_path, TRAINED=str(trained))
    assert finished.code == 0, finished.err
    run = load_run(tmp_path / "out")
    assert run.record.counts()["stopped"] >= 1
    for trial in run.record.trials.values():
        assert list(trial.epochs) == list(range(1, trial.epoch + 1))
        assert len((trained / str(trial.config["x"])).read_text()) == trial.epoch  # it waited where it might be stopped
        times = [epoch.time for epoch in trial.epochs.values()]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(gaps) >= 0
        assert median(gaps) > 0.003  # each has its own, though they come together
    assert sum("ago" in event for event in run.events) > run.record.epochs() / 2


def outcomes(trials: dict[str, TrialRecord]) -> list[tuple[Config, int, str]]:
    return [(trial.config, trial.epoch, trial.status) for trial in trials.values()]


def simulated(space: Path, folder: Path, *, saves: bool = True) -> list[tuple[Config, int, str]]:
    """What the search of a file comes to in this process, without Ray."""
    loop = build(load_study(space), folder / "simulated")
    drive(loop, saves=saves)
    return outcomes(loop.record.trials)


@pytest.mark.slow
def test_one_trial_at_a_time_the_same_seed_gives_the_same_search(tmp_path: Path) -> None:
    """Also where trials never save, and are stopped instead of paused, with a notice."""
    space = 'space={"x": quniform(0, 1, 0.1), "k": choice(["a", None, True])}'
    body = study(CURVE, "search=HyperOpt(startup_trials=3), scheduler=ASHA()").replace(
        'space={"x": uniform(0, 1)}', space
    )
    path = study_file(tmp_path, body)
    finished = tuner("run", path, "--concurrency", "1", "--storage", "out", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert finished.err.count("note: trials save no checkpoint, so they can't pause") == 1
    under_ray = load_run(tmp_path / "out").record.trials
    assert outcomes(under_ray) == simulated(path, tmp_path, saves=False)
    assert len(under_ray) == 6


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "search",
    [
        "MultiFidelityGP()",
        pytest.param("HyperOpt(startup_trials=3)", marks=pytest.mark.slow),
        pytest.param("BOHB(min_points=2)", marks=pytest.mark.slow),
    ],
)
def test_the_search_under_ray_is_the_search_without_it(tmp_path: Path, search: str) -> None:
    space = study_file(tmp_path, study(RESUMABLE, f"search={search}, scheduler=ASHA(grace_epochs=1)", trials=12))
    options = ("--concurrency", "1", "--storage", "out")
    assert tuner("run", space, *options, folder=tmp_path, EPOCH_SECONDS="0").code == 0
    run = load_run(tmp_path / "out")
    assert outcomes(run.record.trials) == simulated(space, tmp_path)
    assert_no_epoch_was_lost(run)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ['ASHA(rule="promote")', "HyperBand()"])
def test_pausing_and_going_on_two_at_a_time_loses_no_epoch(tmp_path: Path, scheduler: str) -> None:
    space = study_file(tmp_path, study(RESUMABLE, f"search=Random(), scheduler={scheduler}", trials=8))
    finished = tuner("run", space, "--storage", "out", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert_no_epoch_was_lost(load_run(tmp_path / "out"))


def assert_no_epoch_was_lost(run: Run) -> None:
    """By trials that paused and went on from their checkpoints."""
    assert run.record.notices == []
    assert any(event["event"] == "trial_resumed" for event in run.events)
    for trial in run.record.trials.values():
        reported = [e["epoch"] for e in run.events if e["event"] == "epoch_reported" and e["trial"] == trial.trial]
        assert reported == list(range(1, trial.epoch + 1))
        firsts = [trial.epochs[epoch].metrics["first"] for epoch in reported]
        assert firsts == sorted(firsts)


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


@pytest.mark.slow  # tests/worker/test_clean_process.py has its parts
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


@pytest.mark.slow
def test_a_trial_gives_the_same_result_first_and_fifth_on_a_worker(tmp_path: Path) -> None:
    """The same configuration and seed, alone on a fresh worker and after four others on a used one."""
    from tuner.train import Trainer
    from tuner.trial import ImageClassifier
    from tuner.worker.clean_process import clean_process

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
        *(alone.train_loss, alone.validation.loss, alone.validation["accuracy"]),
    )


# From Python


@pytest.mark.slow
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
    result = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.stdout == "3 finished 3\n5 True\nset()\n", result.stderr


@pytest.mark.slow
def test_a_run_folder_that_was_moved_can_be_read_and_extended(tmp_path: Path) -> None:
    space = study_file(tmp_path, study(CURVE, "search=Random()", trials=2))
    assert tuner("run", space, "--storage", "out", folder=tmp_path).code == 0
    moved = tmp_path / "elsewhere"
    shutil.move(load_run(tmp_path / "out").path, moved)
    space.unlink()
    finished = tuner("resume", moved, "--trials", "3", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert finished.json["trials"]["total"] == 3


DECLARED = """
NET = {(8, 16): 0.1, (32, 64): 0.2}

def plus(x):
    return x

def minus(x):
    return -x

def train(config):
    old = tuner.checkpoint()
    epoch = int((old / "epoch").read_text()) if old else 0
    gain = NET[config["layers"]] + config["sign"](0.01)
    while epoch < 9:
        epoch += 1
        with tempfile.TemporaryDirectory() as new:
            (Path(new) / "epoch").write_text(str(epoch))
            tuner.report(acc=config["x"] + gain * epoch, checkpoint=new)

study = Study(
    "declared", trial=train, metric="acc", budget=Budget(trials=6, max_epochs=9),
    space={"x": uniform(0, 1), "layers": choice(list(NET)), "sign": choice([plus, minus])},
)
"""


@pytest.mark.ray
@pytest.mark.slow
def test_promoted_confirmed_and_replayed_trials_get_tuples_and_functions_as_declared(tmp_path: Path) -> None:
    space = study_file(tmp_path, "import tempfile\nfrom pathlib import Path\n" + DECLARED)
    done = tuner("run", space, "--json", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.json["trials"]["failed"] == 0
    confirmed = tuner("confirm", "runs", "--top", "1", "--seeds", "1", folder=tmp_path)
    assert confirmed.code == 0, confirmed.err
    run = load_run(tmp_path / "runs")
    assert {trial.status for trial in run.record.trials.values()} <= {"completed", "stopped"}
    assert any(len(trial.entered) > 1 for trial in run.record.trials.values())  # one was paused, and promoted
    best = run.record.best_trial()
    assert best is not None
    replayed = tuner("replay", "runs", best.trial, folder=tmp_path)
    assert (replayed.code, "the curve is the same in 9 epochs" in replayed.out) == (0, True), replayed.err
