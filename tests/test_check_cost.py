"""`check --cost`: epochs, minutes and memory, measured; what checkpoints take; what a limit can't hold is refused."""

import json
from pathlib import Path

import pytest

from tests.commands import run_main, study_file
from tests.searches import RESUMABLE, study
from tuner.driver import search_cost

CLASSIFIER = """
study = Study(
    "photos", trial=ImageClassifier("digits", "resnet18", weights=None), budget=Budget(trials=9, max_epochs=9),
    space={"lr": loguniform(1e-4, 1e-2), "optimizer": choice(["sgd", "adam"])}, resources=Resources(cpus=2),
)
"""


def test_the_cost_is_told_for_the_largest_optimizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_cost, "KIND_SECONDS", 0.2)
    space = study_file(tmp_path, CLASSIFIER)
    _, out, err = run_main(capsys, "check", space, "--cost", "--json")
    assert (
        err.count("measuring model=resnet18 finetune=all image_size=24 precision=tf32") == 1
    )  # the optimizer matters little
    cost, disk = json.loads(out)["cost"], json.loads(out)["disk"]
    assert cost["trials"] == [9, 9]
    assert 9 * 3 <= cost["epochs"][0] <= cost["epochs"][1] <= 9 * 9
    assert 0 < cost["minutes"]["low"] < cost["minutes"]["middle"] < cost["minutes"]["high"]
    assert cost["images"] == {"train": 1439, "validation": 179, "test": 179}
    assert cost["memory_bytes"] > 10**8
    assert disk["least_bytes"] == disk["checkpoint_bytes"] * (3 * disk["trials_at_once"] + 3)
    assert disk["most_bytes"] == disk["least_bytes"] + disk["waiting"] * disk["checkpoint_bytes"]


@pytest.mark.slow
def test_the_cost_is_told_in_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_main(capsys, "check", study_file(tmp_path, CLASSIFIER), "--cost", "--storage", tmp_path)
    assert code == 0
    assert out.splitlines()[-1].startswith("disk: a checkpoint takes up to about 134 MB (optimizer=adam); for ")
    told = [line.partition(":")[0] for line in out.splitlines()]
    assert [each for each in told if each != "note"][-5:] == ["epochs", "time", "images", "memory", "disk"]


def test_a_limit_that_cannot_hold_the_least_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_main(capsys, "check", study_file(tmp_path, CLASSIFIER), "--cost", "--disk", "0.3")
    assert (code, out) == (2, "")
    assert "disk_gb needs to hold three checkpoints of about 134 MB for each of" in err
    assert "got 0.3; use --disk " in err


def test_of_a_function_it_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_main(capsys, "check", study_file(tmp_path, study(RESUMABLE)), "--cost")
    assert code == 0
    assert "disk: the size of a checkpoint is unknown until the first one is saved" in out
    assert "time: unknown: what the function 'train' takes is known after its first epochs" in out


@pytest.mark.parametrize("value", ["0", "-1", "nan", "20GB"])
def test_a_limit_needs_a_number_above_0(tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_main(capsys, "check", study_file(tmp_path, CLASSIFIER), "--disk", value)
    assert code == 2
    assert f"argument --disk: needs a number above 0, got '{value}'" in err
