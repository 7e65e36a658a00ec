"""A search among backbones of several libraries, from `check` to ONNX: pinned, resumed and replayed; under Ray."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_among_backbones_of_three_libraries_goes_from_check_to_onnx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    write_unclean(tmp_path / "photos")
    (tmp_path / "study.py").write_text(STUDY)
    put_dinov2(tmp_path, 0, hub_cache.COMMIT)
    path = find_model("squeezenet1_1").find_weights("imagenet").path
    path.parent.mkdir(parents=True)
    torch.save(torchvision.models.get_model("squeezenet1_1", weights=None).state_dict(), path)
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


def put_dinov2(folder: Path, seed: int, commit: str, **other: int) -> None:
    """A tiny DINOv2 as a repository of the hub."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
    torch.manual_seed(seed)
    model = transformers.Dinov2Model(transformers.Dinov2Config(**small | other))
    processor = transformers.BitImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 56, "width": 56})
    hub_cache.put_saved(folder / "hf", "tiny/dinov2", folder / f"saved-{seed}", model, processor, commit=commit)
