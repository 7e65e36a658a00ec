"""Answers to an image and to its mirror image: in validation, in the winner's score, in predictions and in exports."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from torch import Tensor

from tests.inspection.conftest import CONFIG
from tests.inspection.test_shipping import answers_here
from tuner.inspection import LoadedModel, load_model, score, write_best
from tuner.inspection.saliency import saliency
from tuner.inspection.shipping import forms
from tuner.inspection.shipping.forms import facts_of
from tuner.inspection.shipping.writing import MOST_APART, predict_script
from tuner.train import Trainer
from tuner.train.models import Ensemble, empty_model, networks_of
from tuner.trial import Folds, ImageClassifier

FLIPPED = CONFIG | {"test_time_flip": True}


@pytest.fixture(scope="module")
def flipped(colours: ImageClassifier, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    """A trainer that asks about both views, and its checkpoint."""
    torch.set_num_threads(1)
    running, folder = Trainer(colours, FLIPPED, epochs=1, seed=0, split_seed=0), tmp_path_factory.mktemp("flipped")
    running.run_epoch()
    running.save(folder / "checkpoint")
    scored = score(colours, FLIPPED, folder / "checkpoint", split_seed=0)
    write_best(folder / "best", colours, FLIPPED, scored, {"trial": 0, "epoch": 1})
    return running, folder


@pytest.fixture(scope="module")
def loaded(flipped: tuple[Trainer, Path]) -> LoadedModel:
    return load_model(flipped[1] / "best")


def both_views(running: Trainer, images: Tensor) -> Tensor:
    module, normalised = running.module.eval(), running.splits.normalisation(images)
    with torch.inference_mode():
        return (module(normalised) + module(normalised.flip(-1))) / 2


def test_the_score_is_what_validation_says(flipped: tuple[Trainer, Path], colours: ImageClassifier) -> None:
    running, folder = flipped
    found = score(colours, FLIPPED, folder / "checkpoint", split_seed=0)
    assert found.test == running.evaluate(running.splits.test)
    plain = score(colours, CONFIG, folder / "checkpoint", split_seed=0)
    assert plain.test.loss != found.test.loss


def test_predictions_are_of_both_views(flipped: tuple[Trainer, Path], loaded: LoadedModel) -> None:
    running, _ = flipped
    images = running.splits.test.images()
    expected = both_views(running, images).softmax(1)
    assert loaded.card.test_time_flip is True
    assert torch.allclose(loaded.probabilities(images), expected, atol=1e-6)
    with torch.inference_mode():
        one_view = running.module.eval()(running.splits.normalisation(images)).softmax(1)
    assert float((one_view - expected).abs().max()) > 1e-3


def test_embeddings_are_the_mean_of_both_views(flipped: tuple[Trainer, Path], loaded: LoadedModel) -> None:
    images = flipped[0].splits.test.images()
    probabilities, embeddings = loaded.embedded(images)
    assert torch.allclose(probabilities, loaded.probabilities(images), atol=1e-6)
    head = loaded.module.get_submodule("fc")
    assert embeddings.shape == (len(images), 512)
    with torch.inference_mode():
        assert torch.allclose(head(embeddings).softmax(1), probabilities, atol=1e-5)


@pytest.mark.parametrize("form", [pytest.param("onnx", marks=pytest.mark.slow), "torch-export", "safetensors"])
def test_an_export_answers_for_both_views(loaded: LoadedModel, tmp_path: Path, form: str) -> None:
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    file = tmp_path / forms.SHIPPED[form].file
    {"onnx": forms.write_onnx, "torch-export": forms.write_torch_export, "safetensors": forms.write_safetensors}[form](
        loaded, file
    )
    ask = {
        "onnx": lambda: forms.onnx_answers(file),
        "torch-export": lambda: forms.torch_export_answers(file),
        "safetensors": lambda: forms.safetensors_answers(file, loaded),
    }[form]()
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 12, 12), dtype=np.uint8)
    original = forms.original_answers(loaded)(images)
    assert np.abs(ask(images) - original).max() <= MOST_APART
    assert np.abs(original - forms.original_answers(_of_one_view(loaded))(images)).max() > 10 * MOST_APART


def _of_one_view(loaded: LoadedModel) -> LoadedModel:
    module = torchvision.models.get_model(loaded.card.model, num_classes=len(loaded.classes))
    module.load_state_dict(loaded.module.state_dict())
    return replace(loaded, module=module.eval())


def test_the_script_beside_safetensors_asks_about_both_views(
    loaded: LoadedModel,
    flipped: tuple[Trainer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import json
    import shutil

    from PIL import Image

    from tuner.trial import pixels

    photo = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(photo)
    forms.write_safetensors(loaded, tmp_path / "model.safetensors")
    (tmp_path / "model.json").write_text(json.dumps(facts_of(loaded)), encoding="utf-8")
    script = predict_script("safetensors", loaded)
    assert script is not None
    (tmp_path / "predict.py").write_text(script, encoding="utf-8")
    shutil.copyfile(pixels.__file__, tmp_path / "pixels.py")
    ((_, label, probability),) = answers_here(tmp_path / "predict.py", [photo], monkeypatch, capsys)
    (expected,) = loaded.predict(photo)
    assert (label, probability) == (expected.label, pytest.approx(expected.confidence, abs=1e-3))


def test_maps_of_where_it_looked_are_of_the_image_itself(flipped: tuple[Trainer, Path], loaded: LoadedModel) -> None:
    running, _ = flipped
    images, normalise = running.splits.test.images()[:2], running.splits.normalisation
    asked = torch.tensor([0, 1])
    device = torch.device("cpu")
    larger = torch.nn.functional.interpolate(images.float(), size=128).to(torch.uint8)
    expected = saliency(running.module.eval(), larger, asked, normalise, device)
    found = saliency(loaded.module, larger, asked, normalise, device)
    assert expected is not None
    assert found is not None
    assert torch.allclose(found, expected, atol=1e-5)


def test_each_network_of_a_cross_validation_answers_for_both_views(colours: ImageClassifier) -> None:
    folded = replace(colours, validation=Folds(2))
    chosen = folded.hyperparameters(FLIPPED)
    module = empty_model(folded, channels=3, classes=3, config=chosen).eval()
    assert isinstance(module, Ensemble)
    images = torch.rand(4, 3, 32, 32)
    with torch.inference_mode():
        each = [(one.forward(images) + one.forward(images.flip(-1))) / 2 for one in networks_of(module)]
        assert torch.allclose(module(images).softmax(1), torch.stack(each).softmax(2).mean(0), atol=1e-6)
