"""A search that chooses among models, each with its weights, up to the winner's files; under Ray."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from tests.commands import tuner
from tuner import load_model, load_run
from tuner.trial.models import find_model

MODELS = ("squeezenet1_1", "mobilenet_v3_small")
STUDY = """
from tuner import Budget, Grid, ImageClassifier, Study, grid_search, uniform

study = Study(
    "photos",
    trial=ImageClassifier("folder:my photos", "vgg11"),
    space={"model": grid_search(["squeezenet1_1", "mobilenet_v3_small"]), "finetune": "head", "lr": 1e-2,
           "batch_size": 8, "epochs": 9},
    search=Grid(),
    budget=Budget(max_epochs=1),
)
"""


@pytest.mark.ray
def test_a_search_among_models_ends_in_files_of_the_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in MODELS:
        path = find_model(name).find_weights("imagenet").path
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torchvision.models.get_model(name, weights=None).state_dict(), path)
    generator = np.random.default_rng(0)
    for index in range(24):
        folder = tmp_path / "my photos" / ("dark", "light")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(128 * (index % 2), 128 * (1 + index % 2), (40, 30 + index, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    (tmp_path / "study.py").write_text(STUDY)
    done = tuner("run", "study.py", "--wandb", "off", "--concurrency", "1", folder=tmp_path)
    assert done.code == 0, done.err
    assert "note: epochs=9 is cut to the budget's max_epochs=1" in done.err
    assert "note: model='vgg11' is never tried" in done.err
    run = load_run(tmp_path / "runs")
    assert {trial.config["model"]: trial.status for trial in run.record.trials.values()} == dict.fromkeys(
        MODELS, "completed"
    )
    assert run.best is not None
    loaded = load_model(run)
    assert loaded.card.model == run.best.config["model"]
    assert (loaded.card.inputs.image_size, loaded.card.inputs.resize) == (224, 256)
    exported = tuner("export", "runs", "--to", "safetensors", "my model", folder=tmp_path)
    assert exported.code == 0, exported.err
    facts = json.loads((tmp_path / "my model" / "model.json").read_text())
    assert (facts["model"], facts["checks"][0]["images"]) == (run.best.config["model"], 64)
    assert facts["checks"][0]["accuracy"] == pytest.approx(run.best_metrics["test_accuracy"])
    card = (tmp_path / "my model" / "README.md").read_text()
    assert f"{run.images['test']} images of the test split and {64 - run.images['test']} random images" in card
    assert "| dark | 10 | 1 | 1 |" in card
