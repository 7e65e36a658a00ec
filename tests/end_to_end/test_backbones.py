"""A search among backbones of several libraries, from `check` to ONNX: pinned, resumed and replayed; under Ray."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
import transformers

from tests import hub_cache
from tests.commands import start, tuner
from tests.searches import wait_for
from tests.unclean import write_unclean
from tuner import load_run
from tuner.inspection import load_model
from tuner.storage.regular_files import sha256
from tuner.trial.models import find_model

OTHER = "f" * 40
KILLED_AFTER = 3  # epochs of all trials: in the second trial or just after it
FROM = {
    "timm:test_vit": f"timm's r160_in1k of timm:test_vit (timm/test_vit.r160_in1k on the Hugging Face hub, commit "
    f"{hub_cache.COMMIT}): apache-2.0.",
    "hf:tiny/dinov2": f"hf's main of hf:tiny/dinov2 (tiny/dinov2 on the Hugging Face hub, commit {hub_cache.COMMIT}): "
    "see https://huggingface.co/tiny/dinov2.",
    "squeezenet1_1": "torchvision's IMAGENET1K_V1 of squeezenet1_1: ",
}
STUDY = """
from tuner import Budget, Grid, ImageClassifier, Study, grid_search

study = Study(
    "photos",
    trial=ImageClassifier("folder:photos", "timm:test_vit", weights="pretrained"),
    space={"model": grid_search(["timm:test_vit", "hf:tiny/dinov2", "squeezenet1_1"]), "finetune": "head", "lr": 1e-2, "batch_size": 8},
    search=Grid(),
    budget=Budget(max_epochs=2),
)
"""


POOLED = """
from tuner import Budget, Grid, ImageClassifier, Study, choice, grid_search

transformers = ["timm:test_vit", "hf:tiny/dinov2"]
study = Study(
    "pooled",
    trial=ImageClassifier(
        "folder:photos",
        weights={"timm:test_vit": "r160_in1k", "hf:tiny/dinov2": "pretrained", "squeezenet1_1": "mine.pth"},
    ),
    space={
        "model": grid_search([*transformers, "squeezenet1_1"]),
        "pooling": grid_search(["token", "mean", "token+mean"]).when(model=transformers),
        "blocks": grid_search([1, 4]).when(model=transformers),
        "finetune": "head", "lr": 1e-2, "batch_size": 8,
    },
    search=Grid(),
    budget=Budget(max_epochs=3),
)
"""


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("WANDB_MODE", "disabled")


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_among_backbones_of_three_libraries_goes_from_check_to_onnx(tmp_path: Path) -> None:
    write_unclean(tmp_path / "photos")
    (tmp_path / "study.py").write_text(STUDY)
    put_dinov2(tmp_path, 0, hub_cache.COMMIT)
    put_squeezenet()
    refused = tuner("run", "study.py", "--wandb", "off", folder=tmp_path)
    assert refused.code == 2
    assert f"{tmp_path}/hf/hub/models--timm--test_vit.r160_in1k/snapshots/main/model.safetensors" in refused.err

    hub_cache.put_timms(tmp_path / "hf", "test_vit.r160_in1k")
    checked = tuner("check", "study.py", "--json", folder=tmp_path)
    assert checked.code == 0, checked.err
    options = ("--concurrency", "1", "--json", "--trials")
    done = tuner("run", "study.py", "--wandb", "off", *options, "1", folder=tmp_path)
    assert done.code == 0, done.err
    kept = load_run(tmp_path / "runs").info["weights_fingerprint"]
    assert kept == f"timm/test_vit.r160_in1k@{hub_cache.COMMIT}, tiny/dinov2@{hub_cache.COMMIT}"

    hub_cache.put_timms(tmp_path / "hf", "test_vit.r160_in1k", seed=1, commit=OTHER)  # the hub has others since
    put_dinov2(tmp_path, 1, OTHER, hidden_size=48, image_size=64, patch_size=16)
    driver = start("resume", "runs", *options, "3", folder=tmp_path)
    wait_for(lambda: driver.poll() is not None or load_run(tmp_path / "runs").record.epochs() >= KILLED_AFTER)
    assert driver.poll() is None, driver.communicate()
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert load_run(tmp_path / "runs").status == "interrupted"
    more = tuner("resume", "runs", *options[:-1], folder=tmp_path)
    assert more.code == 0, more.err
    assert (more.json["trials"]["total"], more.json["trials"]["failed"]) == (3, 0)
    run = load_run(tmp_path / "runs")
    assert run.info["weights_fingerprint"] == kept
    for name in run.record.trials:
        again = tuner("replay", "runs", name, "--json", folder=tmp_path)
        assert again.code == 0, again.err + again.out

    assert run.best is not None
    model = run.best.config["model"]
    exported = tuner("export", "runs", "--to", "onnx", "onnx", folder=tmp_path)
    assert exported.code == 0, exported.err
    assert json.loads((tmp_path / "onnx" / "model.json").read_text())["model"] == model
    card = (tmp_path / "onnx" / "README.md").read_text()
    assert FROM[model] in card
    photos = sorted((tmp_path / "photos").rglob("photo *.jpg"))[:3]
    expected = load_model(Path(run.path) / "best").predict(photos)
    predicted = tuner("predict", "runs", *photos, "--json", folder=tmp_path)
    assert predicted.code == 0, predicted.err
    for form in ("onnx", "plain"):
        if form == "plain":
            assert tuner("export", "runs", "--to", "safetensors", "plain", folder=tmp_path).code == 0
        command = [sys.executable, tmp_path / form / "predict.py", *photos]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert [line.split("\t")[1] for line in told] == [one.label for one in expected]


@pytest.mark.ray
@pytest.mark.slow
def test_what_heads_see_is_searched_for_by_a_driver_that_is_killed(tmp_path: Path) -> None:
    write_unclean(tmp_path / "photos")
    (tmp_path / "study.py").write_text(POOLED)
    torch.save(torchvision.models.get_model("squeezenet1_1", num_classes=5).state_dict(), tmp_path / "mine.pth")
    put_dinov2(tmp_path, 0, hub_cache.COMMIT, num_hidden_layers=5)
    hub_cache.put_timms(tmp_path / "hf", "test_vit.r160_in1k")
    checked = tuner("check", "study.py", "--json", folder=tmp_path)
    assert checked.code == 0, checked.err

    driver = start("run", "study.py", "--concurrency", "1", folder=tmp_path)
    wait_for(lambda: driver.poll() is not None or reported(tmp_path) >= 8)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert load_run(tmp_path / "runs").status == "interrupted"
    done = tuner("resume", "runs", "--concurrency", "1", "--json", folder=tmp_path)
    assert done.code == 0, done.err
    assert (done.json["trials"]["total"], done.json["trials"]["failed"]) == (13, 0)
    run = load_run(tmp_path / "runs")
    assert run.info["weights_fingerprint"] == (
        f"squeezenet1_1@{sha256(tmp_path / 'mine.pth')[:16]}, timm/test_vit.r160_in1k@{hub_cache.COMMIT}, "
        f"tiny/dinov2@{hub_cache.COMMIT}"
    )
    pooled = [trial for trial in run.record.trials.values() if "pooling" in trial.config]
    assert len({(trial.config["model"], trial.config["pooling"], trial.config["blocks"]) for trial in pooled}) == 12
    for trial in (pooled[0], pooled[3], pooled[-1]):
        again = tuner("replay", "runs", trial.trial, "--json", folder=tmp_path)
        assert again.code == 0, again.err + again.out

    for trial in (pooled[-1], pooled[3]):  # whichever won, both libraries' wide heads can be chosen and shipped
        taken = tuner("run", "study.py", *flags_of(trial.config), "--storage", trial.trial, folder=tmp_path)
        assert taken.code == 0, taken.err
        exported = tuner("export", trial.trial, "--to", "onnx", f"onnx-{trial.trial}", folder=tmp_path)
        assert exported.code == 0, exported.err
        image = next((tmp_path / "photos").rglob("*.png"))
        told = tuner("predict", trial.trial, image, "--json", folder=tmp_path)
        assert told.code == 0, told.err
        assert f"pooling={trial.config['pooling']}" in (tmp_path / f"onnx-{trial.trial}" / "README.md").read_text()


def flags_of(config: dict[str, Any]) -> list[str]:
    """`--set` of a configuration's values."""
    return [part for name, value in config.items() for part in ("--set", f"{name}={value}")]


def reported(folder: Path) -> int:
    try:
        return load_run(folder / "runs").record.epochs()
    except Exception:  # it has not begun
        return 0


def put_squeezenet() -> None:
    path = find_model("squeezenet1_1").find_weights("imagenet").path
    path.parent.mkdir(parents=True)
    torch.save(torchvision.models.get_model("squeezenet1_1", weights=None).state_dict(), path)


def put_dinov2(folder: Path, seed: int, commit: str, **other: int) -> None:
    """A tiny DINOv2 as a repository of the hub."""
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 56,
        "patch_size": 14,
    }
    torch.manual_seed(seed)
    model = transformers.Dinov2Model(transformers.Dinov2Config(**small | other))
    processor = transformers.BitImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 56, "width": 56})
    hub_cache.put_saved(folder / "hf", "tiny/dinov2", folder / f"saved-{seed}", model, processor, commit=commit)
