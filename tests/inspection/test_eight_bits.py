"""Networks that answer in 8 bits: one answer in validation, score, loaded model and exported file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner import Folds, Latency, Resources, Study, choice
from tuner.errors import StudyError, TrialDiverged, TrialError
from tuner.inspection import LoadedModel, load_model, score, write_best
from tuner.inspection.shipping.forms import onnx_answers, whole, write_onnx
from tuner.train import Trainer, trainer_of
from tuner.train.evaluation import Evaluator
from tuner.train.models import random_network, single_networks
from tuner.train.models.eight_bits import answering_in_float, eight_bits_of, quantised
from tuner.train.models.onnx_layers import answer_by
from tuner.train.parallel.one_process import OneProcess
from tuner.trial import ImageClassifier
from tuner.worker.network_cost import inference_cost

CONFIG: dict[str, Any] = {"model": "resnet18", "lr": 1e-3, "batch_size": 32, "image_size": 32, "quantization": "int8"}


def weights_file(folder: Path) -> Path:
    torch.save(random_network("resnet18", channels=3, classes=3, seed=3).module.state_dict(), folder / "own.pth")
    return folder / "own.pth"


@pytest.fixture(scope="module")
def trained(colours: ImageClassifier, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("trained")
    trainer = Trainer(colours, CONFIG | {"test_time_flip": True}, epochs=1, seed=0, split_seed=0)
    reported = trainer.run_epoch().metrics()
    trainer.save(folder / "checkpoint")
    return trainer, reported, folder / "checkpoint"


@pytest.fixture(scope="module")
def loaded(
    colours: ImageClassifier, trained: tuple[Trainer, dict[str, Any], Path], tmp_path_factory: pytest.TempPathFactory
) -> LoadedModel:
    best = tmp_path_factory.mktemp("run") / "best"
    _write(best, colours, CONFIG | {"test_time_flip": True}, trained[2])
    return load_model(best)


def _write(best: Path, trial: ImageClassifier, config: dict[str, Any], checkpoint: Path) -> None:
    write_best(best, trial, config, score(trial, config, checkpoint, split_seed=0), {"trial": "00000", "epoch": 1})


def test_what_an_epoch_reports_is_what_the_loaded_winner_answers(
    trained: tuple[Trainer, dict[str, Any], Path], loaded: LoadedModel
) -> None:
    trainer, reported, _ = trained
    assert loaded.evaluate(trainer.splits.validation).loss == pytest.approx(reported["val_loss"], abs=1e-5)
    with answering_in_float(loaded.module):
        assert loaded.evaluate(trainer.splits.validation).loss != pytest.approx(reported["val_loss"], abs=1e-4)
    assert loaded.evaluate(trainer.splits.validation).loss == pytest.approx(reported["val_loss"], abs=1e-5)
    assert eight_bits_of(trainer.module) is None  # it trains in floating point


def test_the_exported_file_answers_the_same_in_a_quarter_of_the_size(loaded: LoadedModel, tmp_path: Path) -> None:
    write_onnx(loaded, tmp_path / "model.onnx")
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    with torch.inference_mode():
        expected = whole(loaded)(torch.from_numpy(images)).numpy()
    assert onnx_answers(tmp_path / "model.onnx")(images) == pytest.approx(expected, abs=1e-5)
    assert 11e6 < (tmp_path / "model.onnx").stat().st_size < 12e6  # 11.2 million weights


def test_embeddings_are_those_in_8_bits(loaded: LoadedModel) -> None:
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    _, features = loaded.embedded(images)
    before = eight_bits_of(loaded.module)
    assert before is not None
    own = before(loaded.card.inputs.normalisation(images))
    assert torch.allclose(features, own)  # such an image and its mirror image are the same


@pytest.mark.parametrize("folds", [0, 2])
def test_a_head_learns_on_features_in_8_bits(colours: ImageClassifier, tmp_path: Path, folds: int) -> None:
    config = CONFIG | {"finetune": "head", "test_time_flip": True}
    trial = replace(colours, weights=weights_file(tmp_path), validation=Folds(folds) if folds else None)
    trainer = trainer_of(trial, config, epochs=2, seed=0, split_seed=0)
    reported = trainer.run_epoch().metrics()
    trainer.save(tmp_path / "checkpoint")
    _write(tmp_path / "best", trial, config, tmp_path / "checkpoint")
    model = load_model(tmp_path / "best")
    networks = [model.module] if not folds else single_networks(model.module)
    assert len(networks) == 1  # of all parts
    assert eight_bits_of(networks[0]) is not None
    if not folds:
        assert isinstance(trainer, Trainer)
        assert not trainer.parts.feed.whole
        assert model.evaluate(trainer.splits.validation).loss == pytest.approx(reported["val_loss"], abs=1e-5)


def test_every_network_of_a_cross_validation_is_in_8_bits(colours: ImageClassifier, tmp_path: Path) -> None:
    trial = replace(colours, validation=Folds(2))
    trainer = trainer_of(trial, CONFIG, epochs=1, seed=0, split_seed=0)
    trainer.run_epoch()
    trainer.save(tmp_path / "checkpoint")
    _write(tmp_path / "best", trial, CONFIG, tmp_path / "checkpoint")
    assert {"int8_0.onnx", "int8_1.onnx"} <= {path.name for path in (tmp_path / "best").iterdir()}
    model = load_model(tmp_path / "best")
    write_onnx(model, tmp_path / "model.onnx")
    images = np.zeros((3, 3, 32, 32), np.uint8)
    with torch.inference_mode():
        assert onnx_answers(tmp_path / "model.onnx")(images) == pytest.approx(
            whole(model)(torch.from_numpy(images)).numpy(), abs=1e-5
        )


def test_costs_are_those_of_the_file_in_8_bits() -> None:
    small, large = (
        inference_cost(
            ImageClassifier("digits", weights=None),
            {"model": "resnet18", "image_size": 32, "quantization": how},
            Latency(),
            channels=1,
            classes=10,
            often=False,
        )
        for how in ("int8", "none")
    )
    assert small.size_mb == pytest.approx(large.size_mb / 4, rel=0.05)
    assert small.flops == large.flops


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), TrialError),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.Softmax(1)), TrialError),
    ],
)
def test_a_network_without_a_linear_end_is_refused(module: nn.Module, error: type[Exception]) -> None:
    with pytest.raises(error, match="ends in a linear layer"):
        quantised(module, torch.rand(2, 3, 8, 8))


def test_a_diverged_network_is_called_so() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.Linear(4, 2))
    nn.init.constant_(module[1].weight, float("nan"))
    with pytest.raises(TrialDiverged, match="finite"):
        quantised(module, torch.rand(2, 3, 8, 8))


def test_other_weights_of_the_same_network_are_not_mistaken() -> None:
    images = torch.rand(16, 3, 8, 8)
    for seed in range(2):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
        before = quantised(module, images)
        expected = module(images).detach()
        answer_by(module, before)
        assert torch.allclose(module(images), expected, atol=0.05)


def test_it_needs_a_model_by_name_on_one_device(colours: ImageClassifier) -> None:
    space = {"quantization": choice(["none", "int8"])}
    with pytest.raises(StudyError, match=r"needs a model by name, got made\(\)"):
        Study("s", trial=ImageClassifier("digits", model=made), space=space)
    with pytest.raises(StudyError, match="none or int8"):
        Study("s", trial=ImageClassifier("digits"), space={"quantization": "int4"})
    with pytest.raises(StudyError, match=r"needs trials on one device, got strategy='ddp'"):
        Study("s", trial=colours, space=space, resources=Resources(cpus=2, strategy="ddp")).check_here()
    with pytest.raises(TrialError, match="on one device"):
        Trainer(colours, CONFIG, epochs=1, strategy=OneProcess(2))


def made(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(1, 1))


def test_the_evaluator_takes_any_batch(loaded: LoadedModel, trained: tuple[Trainer, dict[str, Any], Path]) -> None:
    split = trained[0].splits.validation
    one, all_at_once = Evaluator(), Evaluator()
    one.halve(20)
    normalise = loaded.card.inputs.normalisation
    first = torch.arange(4)
    assert torch.allclose(
        one.logits(loaded.module, split, normalise, first),
        all_at_once.logits(loaded.module, split, normalise, first),
        atol=1e-5,
    )
