"""A search on unclean images that chooses among models, each with its weights, up to the winner's files; under Ray."""

import json
from pathlib import Path

import pytest
import torch
import torchvision

from tests.commands import Finished, run_main, tuner
from tests.unclean import LEFT_OUT, write_unclean
from tuner import Run, load_model, load_run
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
@pytest.mark.slow
def test_a_search_among_models_on_unclean_images_lists_what_it_left_out_and_ends_in_files_of_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in MODELS:
        path = find_model(name).find_weights("imagenet").path
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torchvision.models.get_model(name, weights=None).state_dict(), path)
    write_unclean(tmp_path / "my photos")
    (tmp_path / "study.py").write_text(STUDY)
    done = tuner("run", "study.py", "--wandb", "off", "--concurrency", "1", "--json", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.json["trials"] == {"total": 2, "completed": 2, "stopped": 0, "failed": 0}
    assert "note: epochs=9 is cut to the budget's max_epochs=1" in done.err
    assert "note: model='vgg11' is never tried" in done.err
    run = load_run(tmp_path / "runs")
    assert_unclean_images_are_listed(run, done, capsys)
    assert {trial.config["model"]: trial.status for trial in run.record.trials.values()} == dict.fromkeys(
        MODELS, "completed"
    )
    assert run.best is not None
    loaded = load_model(run)
    assert loaded.card.model == run.best.config["model"]
    assert (loaded.card.inputs.image_size, loaded.card.inputs.resize) == (224, 256)
    monkeypatch.chdir(tmp_path)
    code, _, err = run_main(capsys, "export", "runs", "--to", "safetensors", "my model")
    assert code == 0, err
    facts = json.loads((tmp_path / "my model" / "model.json").read_text())
    assert (facts["model"], facts["checks"][0]["images"]) == (run.best.config["model"], 64)
    assert facts["checks"][0]["accuracy"] == pytest.approx(run.best_metrics["test_accuracy"])
    card = (tmp_path / "my model" / "README.md").read_text()
    assert f"{run.images['test']} images of the test split and {64 - run.images['test']} random images" in card
    assert "| cat \u732b | 12 | 1 | 1 |" in card


def assert_unclean_images_are_listed(run: Run, done: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    assert "starting Ray, reading 42 images of folder:" in done.err
    written = json.loads((Path(run.path) / "data.json").read_text())
    assert {each["path"]: each["reason"] for each in written["left_out"]} == {
        name: f"it {reason}" for name, reason in LEFT_OUT.items()
    }
    (told,) = [line for line in done.err.splitlines() if "were left out" in line]
    assert told.startswith("note: 9 of 46 files and folders were left out: bird/ (it is a class without images), ")
    assert sum("were left out" in notice for notice in run.record.notices) == 1
    assert "9 of 46 files and folders were left out" in run_main(capsys, "show", run.path)[1]
    assert "dog/photo.psd" in (Path(run.path) / "report.html").read_text()
