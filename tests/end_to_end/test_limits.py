"""A real search with a limit of what the winner's network may cost."""

import json
from pathlib import Path

import pytest
import torch
from torchvision.models import squeezenet1_1

from tests.commands import tuner
from tests.train.conftest import write_colours
from tuner import load_run

pytestmark = pytest.mark.ray
STUDY = """
from tuner import Budget, ImageClassifier, Latency, Study, choice, loguniform

study = Study(
    "limited",
    trial=ImageClassifier("folder:photos", weights={"squeezenet1_1": "squeezenet.pt", "resnet18": None}),
    budget=Budget(trials=%d, max_epochs=2),
    space={"model": choice(["squeezenet1_1", "resnet18"]), "lr": loguniform(1e-4, 1e-2), "image_size": 17, "batch_size": 8},
    limits={"size_mb": %d}, latency=Latency(threads=2), combine="soup",
)
"""


def test_only_networks_that_keep_the_limit_are_trained_also_by_a_resumed_search(tmp_path: Path) -> None:
    write_colours(tmp_path / "photos")
    torch.save(squeezenet1_1().state_dict(), tmp_path / "squeezenet.pt")  # a soup needs networks that begin alike
    file = tmp_path / "space.py"
    file.write_text(STUDY % (2, 20))
    settings = {"WANDB_MODE": "disabled", "TUNER_CACHE": str(tmp_path / "cache")}
    done = tuner("run", file, "--json", "--no-portfolio", folder=tmp_path, **settings)
    assert done.code == 0, done.err
    assert "1 of 2 networks keep size_mb 20; not trained: model=resnet18 (size_mb 44.8)" in done.err
    best = done.json["best"]
    assert 2.8 < best["cost"]["size_mb"] < 3.2
    assert [one["trial_id"] for one in done.json["front"]] == [best["trial_id"]]
    run = load_run(done.json["run"])
    (run.folder.path / "study.py").write_text(STUDY % (3, 20))
    again = tuner("resume", run.path, "--trials", "3", "--json", folder=tmp_path, **settings)
    assert again.code == 0, again.err
    run = load_run(run.path)
    assert [trial.config["model"] for trial in run.record.trials.values()] == ["squeezenet1_1"] * 3
    assert set(run.trials["cost/size_mb"]) == {best["cost"]["size_mb"]}
    assert run.plot.tradeoff().layout.title.text.startswith("val_accuracy 0.")
    assert "its network answers in" in tuner("show", run.path, folder=tmp_path).out
    report = (run.folder.path / "report.html").read_text()
    assert "plot-tradeoff" in report
    assert json.loads((run.folder.path / "run.json").read_text())["costs"]["limits"] == {"size_mb": 20}

    averaged = tuner("combine", run.path, folder=tmp_path)
    assert averaged.code != 0
    assert "combine averages several networks, which cost more than one" in averaged.err
    assert "ask for 'soup'" in averaged.err
    assert run.average is not None
    assert run.average["asked"] == "soup"  # it costs no more than one
    (run.folder.path / "study.py").write_text(STUDY % (3, 50))
    other = tuner("resume", run.path, "--trials", "4", folder=tmp_path, **settings)
    assert other.code != 0
    assert "a run keeps the limits that it began with" in other.err


FRONT = """
from tuner import Budget, Grid, ImageClassifier, Study, grid_search

study = Study(
    "front", trial=ImageClassifier("folder:photos", weights=None), budget=Budget(max_epochs=1),
    space={"model": "resnet18", "quantization": grid_search(["none", "int8"]), "lr": 1e-3, "image_size": 16,
        "batch_size": 8},
    metric=["val_accuracy", "size_mb"], search=Grid(),
)
"""


def test_the_smallest_network_of_the_front_is_exported_as_it_was_measured(tmp_path: Path) -> None:
    write_colours(tmp_path / "photos")
    file = tmp_path / "space.py"
    file.write_text(FRONT)
    settings = {"WANDB_MODE": "disabled", "TUNER_CACHE": str(tmp_path / "cache")}
    done = tuner("run", file, "--json", "--no-portfolio", folder=tmp_path, timeout=500, **settings)
    assert done.code == 0, done.err
    run = load_run(done.json["run"])
    cheapest = run.trial(done.json["front"][0]["trial_id"])
    assert cheapest.config["quantization"] == "int8"
    exported = tuner("export", run.path, "--to", "onnx", "model", "--point", "cheapest", "--json", folder=tmp_path)
    assert exported.code == 0, exported.err
    cost = run.costs.of(cheapest.config) if run.costs else None
    assert cost is not None
    assert (tmp_path / "model" / "model.onnx").stat().st_size / 1e6 == pytest.approx(cost.size_mb, rel=0.02)
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    best = run.folder.path / ("best" if run.best is cheapest else f"front/{cheapest.trial}")
    scored = json.loads((best / "metrics.json").read_text())
    assert scored["trial"] == cheapest.trial
    assert facts["checks"][0]["accuracy"] == pytest.approx(scored["metrics"]["test_accuracy"], abs=0.01)
    refused = tuner("export", run.path, "--to", "onnx", "other", "--point", "size_mb<=1", folder=tmp_path)
    assert refused.code != 0
    assert "point is knee, cheapest, 'size_mb<=NUMBER', or a trial on the front" in refused.err
