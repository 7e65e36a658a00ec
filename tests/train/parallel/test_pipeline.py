"""A network in stages, each in a process of its own on the CPU, trains as the whole one does."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor
from torch.nn import functional as F

from tests.forked import start_ranks
from tests.train.parallel.test_group import HELD, TRIAL
from tuner.train import Trainer
from tuner.train.checkpoint import write_checkpoint
from tuner.train.epoch_result import EpochResult
from tuner.train.parallel.group import Group, joined
from tuner.train.parallel.pipeline import Pipeline
from tuner.train.parallel.pipeline.chain import find_chain
from tuner.train.parallel.pipeline.pipeline import keep_only
from tuner.train.parallel.pipeline.stage import Link, Stage
from tuner.train.parallel.strategy import Replicas, Strategy

SGD = {"optimizer": "sgd", "lr": 0.05, "batch_size": 9}
OVERFLOWING = "fp16 that overflows at first, here and there"
CASES: dict[str, dict[str, Any]] = {
    "sgd": {**SGD, "batch_size": 8},
    "micro-batches of unequal lengths": {**SGD, "batch_size": 7},
    "fewer micro-batches than stages": {**SGD, "pipeline_micro_batches": 1},
    "a split that is given": {**SGD, "pipeline_split": "2"},
    "weighted classes, smooth labels": {**SGD, "class_weights": "balanced", "label_smoothing": 0.1},
    "mixed images": {**SGD, "mixup": 0.4},
    "policies, images mixed in either way, both views": {
        **{**SGD, "cutmix": 1.0, "mixup": 0.4, "auto_augment": "trivial", "random_resized_crop": 0.2},
        **{"test_time_flip": True, "freeze_batch_norm": True},
    },
    "a probe, then mixed images": {**SGD, "finetune": "lp-ft", "cutmix": 1.0},
    "clipped": {**SGD, "clip_norm": 0.1},
    "adam": {"optimizer": "adam", "lr": 0.01, "batch_size": 9},
    "averaged weights": {**SGD, "ema_decay": 0.9},
    "the head alone, averaged": {**SGD, "finetune": "head", "ema_decay": 0.9},
    "one stage of the network after another": {**SGD, "finetune": "gradual"},
    "bf16": {**SGD, "precision": "bf16"},
    "fp16": {**SGD, "precision": "fp16", "clip_norm": 0.1},
    OVERFLOWING: {**SGD, "precision": "fp16", "pipeline_micro_batches": 1},
    "fp16, one after another": {**SGD, "precision": "fp16", "finetune": "gradual"},
}
LOOSE = {"bf16": 2e-3, "fp16": 2e-4, OVERFLOWING: 2e-4, "fp16, one after another": 2e-4}
MEASURED = ("train_loss", "val_loss", "val_accuracy", "val_f1")


def told(result: EpochResult) -> dict[str, Any]:
    return {"epoch": result.epoch, **result.metrics()}


def trained(config: dict[str, Any], strategy: Strategy, folder: Path | None = None) -> dict[str, Any]:
    """What two epochs lead to; with a folder, in two trainers, of which the second goes on from what the first saved."""
    torch.set_num_threads(1)
    trainer = Trainer(TRIAL, config, epochs=2, seed=3, strategy=strategy)
    if config == CASES[OVERFLOWING]:  # the scale goes down past where some stages still overflow and others don't
        trainer.parts.precision.load({**trainer.parts.precision.state(), "scale": 2.0**20})
    results = [trainer.run_epoch().metrics()]
    if folder is not None:
        checkpoint = trainer.snapshot()
        if strategy.group.rank == 0:
            write_checkpoint(folder, checkpoint)
        strategy.group.sum(torch.zeros(1))  # all wait for the file
        trainer = Trainer(TRIAL, config, epochs=2, seed=3, strategy=type(strategy)(strategy.group))
        trainer.load(folder)
    results.append(trainer.run_epoch().metrics())
    checkpoint = trainer.snapshot()
    held = [name for name, value in trainer.module.state_dict().items() if not value.is_meta]
    return {
        "results": results,
        "model": checkpoint.model,
        "training": {name: value.shape for name, value in checkpoint.training.items()},
        "test": asdict(trainer.evaluate(trainer.splits.test)),
        "held": held,
        "scaler": checkpoint.scalars["scaler"],
    }


def resnet(name: str) -> tuple[torch.nn.Module, Tensor, Tensor]:
    """A ResNet in float64 whose batch norms have running statistics, images and labels."""
    torch.manual_seed(0)
    module = torchvision.models.get_model(name, weights=None, num_classes=5).double().eval()
    return module, torch.randn(8, 3, 32, 32, dtype=torch.float64), torch.arange(8) % 5


def gradients_of_stage(name: str, group: Group) -> dict[str, Tensor]:
    """Of one half of a ResNet, the halves in a process each, with micro-batches of two images."""
    module, images, labels = resnet(name)
    chain = find_chain(module, name)
    half = chain.names.index("layer3.0")
    edges = [0, half, len(chain.blocks)]
    first, last = edges[group.rank], edges[group.rank + 1]
    with torch.no_grad():
        middle = chain.part(0, half)(images[:1])
    links = {0: Link((3, 32, 32), torch.float64), half: Link(tuple(middle.shape[1:]), torch.float64)}
    links[len(chain.blocks)] = Link((5,), torch.float64)
    keep_only(module, chain.tensors(first, last), torch.device("cpu"))
    stage = Stage(
        chain.part(first, last),
        group.rank,
        group.size,
        torch.device("cpu"),
        torch.enable_grad,
        before=links[first],
        after=links[last],
    )
    stage.train(
        images if stage.first else None,
        labels if stage.last else None,
        lambda logits, targets: F.cross_entropy(logits, targets, reduction="sum") / 8,
        size=2,
        chunks=4,
        learns_before=not stage.first,
        learns=True,
    )
    return {name: value.grad for name, value in module.named_parameters() if value.grad is not None}


def run_rank(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    place = Path(folder)
    with joined(rank, size, place / "meeting") as group:
        found: dict[str, Any] = {name: trained(config, Pipeline(group)) for name, config in CASES.items()}
        found["going on"] = trained(CASES["adam"], Pipeline(group), place / "saved")
        found |= {name: gradients_of_stage(name, group) for name in ("resnet18", "resnet50")}
        # a trial that began with another strategy
        other = Trainer(TRIAL, CASES["sgd"], epochs=2, seed=3, strategy=Replicas(group))
        other.load(place / "alone")
        found["ddp goes on"] = told(other.run_epoch())
        other = Trainer(TRIAL, CASES["sgd"], epochs=2, seed=3, strategy=Pipeline(group))
        other.load(place / "alone")
        found["pipeline goes on"] = told(other.run_epoch())
    torch.save(found, place / f"{rank}.pt")


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    return {name: trained(config, Strategy()) for name, config in CASES.items()}


@pytest.fixture(scope="module")
def of_two() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        begun = Trainer(TRIAL, CASES["sgd"], epochs=2, seed=3)
        begun.run_epoch()
        begun.save(Path(folder) / "alone")
        start_ranks(run_rank, 2, folder)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_two_stages_lead_to_the_same_weights_as_the_whole(
    of_two: list[dict[str, Any]], alone: dict[str, dict[str, Any]], name: str
) -> None:
    first, second, whole = of_two[0][name], of_two[1][name], alone[name]
    assert list(first["model"]) == list(whole["model"])  # one plain state_dict
    for parameter, value in first["model"].items():
        torch.testing.assert_close(value, whole["model"][parameter], atol=LOOSE.get(name, 1e-5), rtol=1e-5)
    assert first["training"] == whole["training"]
    assert first["scaler"] == whole["scaler"]
    assert {*first["held"]} | {*second["held"]} == whole["model"].keys()
    assert not {*first["held"]} & {*second["held"]}  # nobody holds what is another's


@pytest.mark.parametrize("name", CASES)
def test_every_stage_knows_what_all_images_came_to(
    of_two: list[dict[str, Any]], alone: dict[str, dict[str, Any]], name: str
) -> None:
    loose = 5e-3 if name in LOOSE else 1e-5
    for one, other, whole in zip(
        of_two[0][name]["results"], of_two[1][name]["results"], alone[name]["results"], strict=True
    ):
        assert {key: one[key] for key in MEASURED} == {key: other[key] for key in MEASURED}
        assert one["train_loss"] == pytest.approx(whole["train_loss"], rel=loose)
        assert one["val_loss"] == pytest.approx(whole["val_loss"], rel=loose)
        counted = one["val_accuracy"] * HELD
        assert counted == pytest.approx(round(counted), abs=1e-4)
    assert of_two[0][name]["test"] == of_two[1][name]["test"]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_gradients_are_those_of_the_whole_network(of_two: list[dict[str, Any]], name: str) -> None:
    module, images, labels = resnet(name)
    F.cross_entropy(module(images), labels).backward()
    found = of_two[0][name] | of_two[1][name]
    assert found.keys() == {parameter for parameter, _ in module.named_parameters()}
    for parameter, value in module.named_parameters():
        torch.testing.assert_close(found[parameter], value.grad, atol=1e-5, rtol=0)


def test_a_checkpoint_of_all_stages_is_gone_on_from(of_two: list[dict[str, Any]]) -> None:
    found, uninterrupted = of_two[0]["going on"], of_two[0]["adam"]
    assert found["results"][1]["val_loss"] == pytest.approx(uninterrupted["results"][1]["val_loss"], rel=1e-6)
    for name, value in found["model"].items():
        torch.testing.assert_close(value, uninterrupted["model"][name], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("strategy", ["ddp", "pipeline"])
def test_what_one_device_saved_any_strategy_goes_on_from(
    of_two: list[dict[str, Any]], alone: dict[str, dict[str, Any]], strategy: str
) -> None:
    whole = alone["sgd"]["results"][1]
    for found in of_two:
        assert found[f"{strategy} goes on"]["epoch"] == 2
        assert found[f"{strategy} goes on"]["val_loss"] == pytest.approx(whole["val_loss"], rel=1e-5)
