"""Trials of many kinds give the same curve again, bit for bit; what isn't as it was is said."""

import itertools
import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.replay.recorded import resumed, searched
from tuner import Run, TunerError, load_run, load_study
from tuner.errors import RunFolderError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.run_info import write_info
from tuner.replay import Replayed
from tuner.replay.replaying import Plan, Silence, planned
from tuner.replay.training import train
from tuner.results.wording import plural

CLASSIFIER = """
import torch
from torch import nn
from tuner import *

def data():
    generator = torch.Generator().manual_seed(0)
    def split(count):
        return torch.randint(0, 256, (count, 1, 8, 8), generator=generator).to(torch.uint8), torch.arange(count) % 3
    return split(40), split(20), split(20)

def network(config):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 3)
    )

study = Study(
    "small", trial=ImageClassifier(data, network), space={SPACE}, metric="val_loss", search=Random(sobol=False),
    scheduler={SCHEDULER}, budget=Budget(trials={TRIALS}, max_epochs=4), seed=3, warm_start=None,
)
"""
FUNCTION = """
import random
import numpy as np
from tuner import *

def train(config):
    state = config["x"]
    for epoch in range(4):
        state += random.random() + np.random.rand()
        if config["x"] > 2:
            raise ValueError(f"x is {config['x']}")
        report(loss=state)

study = Study(
    "function", trial=train, space={SPACE}, metric="loss", mode="min", search=Random(sobol=False),
    scheduler=NoEarlyStopping(), budget=Budget(trials=1, max_epochs=4), warm_start=None,
)
"""


def text(space: str, scheduler: str = "NoEarlyStopping()", trials: int = 1, body: str = CLASSIFIER) -> str:
    return body.replace("{SPACE}", space).replace("{SCHEDULER}", scheduler).replace("{TRIALS}", str(trials))


def plain(space: str = '{"lr": 0.01, "batch_size": 8}') -> str:
    return text(space)


def replayed(run: Run, trial: str, folder: Path, **options: Any) -> tuple[Replayed, Plan]:
    """As `replay` does it, in this process."""
    folder.mkdir(exist_ok=True)
    plan = planned(run, trial, folder, **options)
    told: list[dict[str, Any]] = []
    train(plan.declared_trial, plan.stays, str(folder), told.append)

    def messages() -> Generator[dict[str, Any]]:
        yield from json.loads(json.dumps(told))

    return plan.follow(messages(), Silence()), plan


def same(found: Replayed, epochs: int) -> None:
    assert found.differences == ()
    assert [epoch.epoch for epoch in found.epochs] == list(range(1, epochs + 1))
    assert all(epoch.recorded == epoch.replayed and epoch.recorded is not None for epoch in found.epochs)
    assert found.equal, found.sentence
    assert found.sentence == f"the curve is the same in {plural(epochs, 'epoch')}"


@pytest.mark.parametrize(
    "space",
    [
        '{"lr": 0.01, "batch_size": 8}',
        '{"lr": 0.05, "batch_size": 20, "optimizer": "sgd", "schedule": "cosine", "warmup_epochs": 1}',
        '{"lr": 0.01, "batch_size": 8, "ema_decay": 0.9}',
        '{"lr": 0.01, "batch_size": 8, "crop_padding": 2, "flip": 0.5, "color_jitter": 0.2, "random_erasing": 0.3}',
        '{"lr": 0.01, "batch_size": 8, "mixup": 0.4}',
        '{"lr": 0.01, "batch_size": 8, "auto_augment": "trivial", "random_resized_crop": 0.3, "cutmix": 1.0}',
        '{"lr": 0.01, "batch_size": 8, "finetune": "gradual", "unfreeze_every": 1}',
        '{"lr": 0.01, "batch_size": 8, "epochs": 3}',
    ],
    ids=[
        "plain",
        "large batches, cosine",
        "EMA",
        "augmentation",
        "mixup",
        "policies",
        "gradual unfreezing",
        "epochs of its own",
    ],
)
def test_a_trial_gives_the_same_curve_again(tmp_path: Path, space: str) -> None:
    run = searched(tmp_path / "run", plain(space))
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*")}
    found, _ = replayed(run, "0", tmp_path / "again")
    same(found, run.trial("0").epoch)
    assert found.promised
    assert set(found.epochs[0].metrics) >= {"val_loss", "train_loss", "val_accuracy", "seconds"}
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*")} == before


@pytest.mark.parametrize(
    "more",
    ["", ', "auto_augment": "rand", "cutmix": 1.0, "mixup": 0.2, "test_time_flip": True'],
    ids=["plain", "recipe"],
)
def test_a_trial_that_was_promoted_gives_the_same_curve_again(tmp_path: Path, more: str) -> None:
    space = f'{{"lr": loguniform(1e-3, 1e-1), "batch_size": 8{more}}}'
    run = searched(tmp_path / "run", text(space, "ASHA(grace_epochs=1, reduction_factor=2)", trials=4))
    promoted = {event["trial"] for event in run.events if event["event"] == "trial_resumed"}
    assert promoted
    for trial in promoted:
        found, plan = replayed(run, trial, tmp_path / trial)
        assert len(plan.stays) == 1
        same(found, run.trial(trial).epoch)


@pytest.mark.parametrize(("lr", "epochs"), [(3e-4, 4), (1e-2, 1)], ids=["whole", "up to the epoch that won"])
def test_a_refit_gives_the_same_curve_again(tmp_path: Path, lr: float, epochs: int) -> None:
    study = plain(f'{{"lr": {lr}, "batch_size": 8, "schedule": "cosine"}}')
    run = searched(tmp_path / "run", study.replace("seed=3", 'seed=3, refit="train+validation"'))
    winner, refit = run.record.trials.values()
    assert refit.refits == winner.trial
    found, _ = replayed(run, refit.trial, tmp_path / "again")
    same(found, epochs)
    assert (found.metric, found.promised) == ("train_loss", True)
    assert not [name for name in found.epochs[0].metrics if name.startswith("val_")]
    assert found.epochs[0].recorded != winner.epochs[1].metrics["train_loss"]


def test_a_trial_whose_driver_was_killed_gives_the_same_curve_again(tmp_path: Path) -> None:
    searched(tmp_path / "run", plain('{"lr": 0.01, "batch_size": 8, "ema_decay": 0.9}'), reports=2)
    run = resumed(tmp_path / "run", load_study(tmp_path / "run.py"))
    assert [event["event"] for event in run.events].count("trial_started") == 2
    same(replayed(run, "0", tmp_path / "again")[0], 4)


def test_a_function_is_called_with_the_same_seed_which_promises_nothing(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", text('{"x": 0.5}', body=FUNCTION))
    found, _ = replayed(run, "0", tmp_path / "again")
    same(found, 4)
    assert not found.promised


def test_a_function_that_ends_by_itself_ends_there_again_whatever_was_asked_for(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", text('{"x": 0.5}', body=FUNCTION.replace("range(4)", "range(2)")))
    same(replayed(run, "0", tmp_path / "again", epochs=4)[0], 2)


# What is not as it was


def test_other_versions_and_hardware_are_listed(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain())
    run.info["versions"]["torch"] = "1.0.0"
    run.info["python"] = "3.1"
    run.info["machine"]["processor"] = "abacus"
    found, _ = replayed(run, "0", tmp_path / "again")
    assert [sentence.split(" was ")[0] for sentence in found.differences] == ["python", "torch", "the processor"]
    assert found.differences[1].startswith("torch was 1.0.0, and is 2.")
    assert found.equal
    assert not found.promised


def test_a_changed_data_file_is_listed(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for split in ("train", "val"):
        for name in ("cats", "dogs"):
            (photos / split / name).mkdir(parents=True)
            for number in range(4):
                _draw(photos / split / name / f"{number}.png", shade=40 * number + 100 * (name == "dogs"))
    run = searched(
        tmp_path / "run",
        plain()
        .replace("ImageClassifier(data,", f"ImageClassifier('folder:{photos}',")
        .replace("Conv2d(1,", "Conv2d(3,")
        .replace('"batch_size": 8', '"batch_size": 8, "image_size": 8'),
    )
    same(replayed(run, "0", tmp_path / "again")[0], 4)
    _draw(photos / "train" / "cats" / "0.png", shade=255)
    _draw(photos / "train" / "cats" / "4.png", shade=250)
    found, _ = replayed(run, "0", tmp_path / "changed")
    assert len(found.differences) == 1
    assert found.differences[0].startswith("the data are other files: their fingerprint was ")
    assert not found.equal
    assert found.sentence.startswith("the curve differs from epoch 1 on, in ")
    assert found.sentence.endswith("; see the differences above")


def test_images_that_an_earlier_version_read_otherwise_are_listed(tmp_path: Path) -> None:
    from PIL import Image

    photos = tmp_path / "photos"
    for split, name in itertools.product(("train", "val"), ("cats", "dogs")):
        (photos / split / name).mkdir(parents=True)
        for number in range(4):
            _draw(photos / split / name / f"{number}.png", shade=40 * number + 100 * (name == "dogs"))
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGBA", (8, 8)).save(photos / "train" / "cats" / "turned.png", exif=turned)
    run = searched(
        tmp_path / "run",
        plain()
        .replace("ImageClassifier(data,", f"ImageClassifier('folder:{photos}',")
        .replace("Conv2d(1,", "Conv2d(3,")
        .replace('"batch_size": 8', '"batch_size": 8, "image_size": 8'),
    )
    assert planned(run, "0", tmp_path).differences == (
        "1 of 17 images have other pixels than when this run began, with a version of tuner that lost their orientation or "
        "guessed the range of each: turned.png; trials are trained with the new ones now; begin a new run for trials that "
        "are all alike",
    )
    run.folder.write("data.json", b'{"scale": {}}')  # as this version writes it
    assert planned(run, "0", tmp_path).differences == ()


def _draw(file: Path, shade: int) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8), (shade % 256, 10, 10)).save(file)


def test_the_text_that_the_trial_was_trained_with_counts_not_what_the_file_says_now(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain())
    (tmp_path / "run" / "study.py").write_text("raise SystemExit('edited')")
    found, _ = replayed(run, "0", tmp_path / "again")
    assert found.differences == (
        "the study file was edited since; the trial is trained with the text that it was started with",
    )
    assert found.equal


@pytest.mark.slow
def test_other_threads_are_listed(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain())
    found, plan = replayed(run, "0", tmp_path / "again", cpus=2)
    assert found.differences == ("the trial had 1 CPU threads, and gets 2",)
    assert found.epochs[0].metrics["threads"] == plan.stays[0].assignment.cpus == 2


# How it was trained


@pytest.mark.slow
def test_smaller_micro_batches_and_other_threads_begin_at_the_epoch_at_which_they_began(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain())
    trial = run.trial("0")
    for epoch in (3, 4):
        trial.epochs[epoch].metrics |= {"micro_batch_size": 2, "threads": 2}
    trial.memory_losses = 1
    found, plan = replayed(run, "0", tmp_path / "again")
    told = [
        (stay.assignment.reported, stay.until, stay.assignment.cpus, stay.assignment.halvings) for stay in plan.stays
    ]
    assert told == [(0, 2, 1, 0), (2, 4, 2, 2)]
    assert [epoch.metrics["micro_batch_size"] for epoch in found.epochs] == [8, 8, 2, 2]
    assert [epoch.metrics["threads"] for epoch in found.epochs] == [1, 1, 2, 2]
    assert [epoch.equal for epoch in found.epochs[:2]] == [True, True]


def test_the_way_of_taking_steps_is_the_trials_own_on_a_gpu(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain())
    for epoch in run.trial("0").epochs.values():
        epoch.metrics["step_path"] = "graph"
    from tuner.replay.stays import Way, stays

    study = load_study(tmp_path / "run.py")
    on_gpu = stays(run, study, run.trial("0"), Way(0, 4, 4), gpus=1)
    on_cpu = stays(run, study, run.trial("0"), Way(0, 4, 4))
    assert [stay.assignment.step_path for stay in (*on_gpu, *on_cpu)] == ["graph", None]


# How far


def test_fewer_epochs_are_the_first_ones(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain('{"lr": 0.01, "batch_size": 8, "schedule": "cosine"}'))
    same(replayed(run, "0", tmp_path / "again", epochs=2)[0], 2)


def test_more_epochs_go_on_from_the_last_checkpoint_or_from_the_beginning(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain('{"lr": 0.01, "batch_size": 8, "schedule": "cosine"}'))
    kept = CheckpointStore(run.folder).epochs("00000")
    assert kept
    found, _ = replayed(run, "0", tmp_path / "again", epochs=6)
    assert [epoch.epoch for epoch in found.epochs] == list(range(kept[-1] + 1, 7))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    whole, plan = replayed(run, "0", tmp_path / "whole", epochs=6)
    assert [(stay.assignment.epochs, stay.until) for stay in plan.stays] == [(4, 4), (6, 6)]
    assert [epoch.equal for epoch in whole.epochs] == [True] * 4 + [None] * 2
    assert whole.equal
    assert [epoch.replayed for epoch in whole.epochs[-2:]] == [epoch.replayed for epoch in found.epochs[-2:]]
    assert whole.epochs[-1].metrics["train_loss"] != whole.epochs[-2].metrics["train_loss"]


def test_a_damaged_checkpoint_is_no_place_to_go_on_from(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain())
    for file in (tmp_path / "run" / "checkpoints").rglob("model.safetensors"):
        file.write_bytes(b"damaged")
    found, plan = replayed(run, "0", tmp_path / "again", epochs=5)
    assert plan.on.start == 0
    assert [epoch.epoch for epoch in found.epochs] == [1, 2, 3, 4, 5]


def test_a_trial_that_failed_fails_again_or_does_not(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", text('{"x": 2.5}', body=FUNCTION))
    found, _ = replayed(run, "0", tmp_path / "again")
    assert found.failure == found.recorded_failure == "ValueError: x is 2.5"
    assert found.equal
    assert found.sentence == "there was no epoch to compare, and it fails again with the same message"
    run.trial("0").message = "ValueError: another one"
    changed, _ = replayed(run, "0", tmp_path / "changed")
    assert not changed.equal
    assert (
        changed.sentence
        == "the trial failed after epoch 0: ValueError: x is 2.5; before it was: ValueError: another one"
    )


def test_a_trial_that_calls_exit_fails_as_in_the_search(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", text('{"x": 2.5}', body=FUNCTION))
    run.trial("0").message = "the trial's code called exit(3); raise an exception instead"
    for event in run.events:
        if "study_file" in event:
            event["study_file"] = event["study_file"].replace("raise ValueError(", "raise SystemExit(3 or ")
    found, _ = replayed(run, "0", tmp_path / "again")
    assert found.failure == found.recorded_failure


def test_a_function_that_reported_nothing_reports_nothing_again(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", text('{"x": 0.5}', body=FUNCTION.replace("range(4)", "range(0)")))
    found, _ = replayed(run, "0", tmp_path / "again")
    assert (found.equal, found.sentence) == (
        True,
        "there was no epoch to compare, and it fails again with the same message",
    )


def test_a_diverged_trial_diverges_again(tmp_path: Path) -> None:
    run = searched(
        tmp_path / "run",
        plain('{"lr": 10.0, "batch_size": 8, "optimizer": "sgd", "momentum": 0.99}')
        .replace("nn.Dropout(0.2)", "nn.Flatten()")
        .replace("nn.Linear(64, 3)", "nn.Linear(64, 640), nn.Linear(640, 3)"),
    )
    if run.trial("0").status != "failed":
        pytest.skip("it converged")
    found, _ = replayed(run, "0", tmp_path / "again")
    assert found.equal, found.sentence


# Careless use


def test_what_cannot_be_replayed_is_refused_with_a_fix(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", plain(), reports=2)
    with pytest.raises(RunFolderError, match=r"a trial is named by its id, got '7'; this run has 00000 to 00000"):
        planned(run, "7", tmp_path)
    with pytest.raises(RunFolderError, match=r"a replay needs at least one epoch, got epochs=0"):
        planned(run, "0", tmp_path, epochs=0)
    with pytest.raises(RunFolderError, match=r"--output needs a new or an empty folder, got '.*run'; name another one"):
        planned(run, "0", tmp_path, output=tmp_path / "run")
    run.trial("0").epochs.clear()
    with pytest.raises(RunFolderError, match=r"a replay needs a trial that has reported an epoch, got 00000 of .*"):
        planned(run, "0", tmp_path)


def test_a_run_from_python_needs_its_study(tmp_path: Path) -> None:
    searched(tmp_path / "run", plain())
    study = load_study(tmp_path / "run.py")
    run = load_run(tmp_path / "run")
    write_info(run.folder, {**run.info, "study_file": None})
    run = load_run(tmp_path / "run")
    with pytest.raises(
        RunFolderError, match=r"started from Python needs its study, .*\.replay\('00000', study=study\)"
    ):
        planned(run, "0", tmp_path)
    same(replayed(run, "0", tmp_path / "again", study=study)[0], 4)


# In a process of its own


def test_a_replay_in_a_process_of_its_own_writes_what_it_is_asked_for(tmp_path: Path) -> None:
    import torch

    run = searched(tmp_path / "run", plain())
    torch.manual_seed(5)
    state = torch.get_rng_state()
    found = run.replay("0", output=tmp_path / "output")
    assert torch.equal(torch.get_rng_state(), state)
    same(found, 4)
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["checkpoint", "metrics.json"]
    assert "model.safetensors" in {path.name for path in (tmp_path / "output/checkpoint").iterdir()}
    written = json.loads((tmp_path / "output/metrics.json").read_text())
    assert [row["val_loss"] for row in written["epochs"]] == [epoch.recorded for epoch in found.epochs]


@pytest.mark.slow
def test_a_process_that_dies_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", text('{"x": 0.5}', body=FUNCTION))
    for event in run.events:
        if "study_file" in event:
            event["study_file"] = event["study_file"].replace(
                "report(loss=state)", "__import__('os').kill(__import__('os').getpid(), 9)"
            )
    with pytest.raises(TunerError, match="a replay's process needs to end by itself, got exit code -9"):
        run.replay("0")


def test_a_trial_that_hangs_is_killed_as_in_the_search(tmp_path: Path) -> None:
    hanging = FUNCTION.replace("import *", "import *\nimport time").replace(
        "report(loss=state)", "report(loss=state)\n        time.sleep(config['x'])"
    )
    watched = hanging.replace("warm_start=None", "failures=Failures(hung_minutes=0.05), warm_start=None")
    run = searched(tmp_path / "run", text('{"x": 0.01}', body=watched))
    for event in run.events:
        if "study_file" in event:
            event["study_file"] = event["study_file"].replace("sleep(config['x'])", "sleep(600)")
    with pytest.raises(
        TunerError, match=r"got exit code 1; one without a report for 0.05 minutes hangs, and is killed"
    ):
        run.replay("0")
