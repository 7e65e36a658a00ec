"""The usual PyTorch training: `DataLoader`, `ToTensor`, fp32; the baseline for tuner's trainer."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

MEAN, SD = (0.286,), (0.353,)
BATCH = 64


def write_subset(source: Path | None, folder: Path, train: int, test: int) -> None:
    """A Fashion-MNIST of fewer images, in its own four files."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for name, count in (("train", train), ("t10k", test)):
        images = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8, generator=generator)
        labels = torch.arange(count, dtype=torch.uint8) % 10
        if source is not None:
            whole = torchvision.datasets.FashionMNIST(source, train=name == "train")
            images, labels = whole.data[:count], whole.targets[:count].to(torch.uint8)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, count, 28, 28) + images.numpy().tobytes()
        )
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels.numpy().tobytes())


def plain_data(folder: Path, *, train: bool = True, augmented: bool = False) -> Dataset[Any]:
    """The images with the usual transforms."""
    augmentation = [v2.RandomCrop(28, padding=4), v2.RandomHorizontalFlip()] if augmented else []
    transform = torchvision.transforms.Compose(
        [*augmentation, torchvision.transforms.ToTensor(), torchvision.transforms.Normalize(MEAN, SD)]
    )
    data: Dataset[Any] = torchvision.datasets.FashionMNIST(folder, train=train, transform=transform)
    return data


def plain_loader(data: Dataset[Any], workers: int, batches: Iterable[list[int]] | None = None) -> DataLoader[Any]:
    """The usual loader."""
    options: dict[str, Any] = {"num_workers": workers, "pin_memory": torch.cuda.is_available()}
    if workers:
        options["persistent_workers"] = True
    if batches is not None:
        return DataLoader(data, batch_sampler=batches, **options)  # type: ignore[arg-type]
    return DataLoader(data, batch_size=BATCH, shuffle=True, **options)


def plain_model(weights: Path) -> nn.Module:
    """ResNet18 from the benchmark's weights for grey images and ten classes."""
    model = torchvision.models.resnet18(num_classes=10)
    state = torch.load(weights)
    model.conv1 = nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
    state["conv1.weight"] = state["conv1.weight"].sum(1, keepdim=True)
    model.load_state_dict({**model.state_dict(), **{name: value for name, value in state.items() if "fc." not in name}})
    return model


def plain_epoch(
    model: nn.Module,
    loader: Iterable[Any],
    optimizer: torch.optim.Optimizer,
    device: str,
    *,
    frozen: bool,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> float:
    """Train on what the loader gives; the mean loss."""
    model.train(not frozen)
    total, count = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)  # noqa: PLW2901
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if schedule is not None:
            schedule.step()
        total, count = total + loss.item() * len(labels), count + len(labels)
    return total / count


@torch.no_grad()
def plain_accuracy(model: nn.Module, loader: Iterable[Any], device: str) -> float:
    """Share of correct answers."""
    model.eval()
    right = [(model(images.to(device)).argmax(1).cpu() == labels) for images, labels in loader]
    return float(torch.cat(right).double().mean())
