"""Two processes on the CPU train the same network as one does."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.forked import start_ranks
from tuner import ImageClassifier
from tuner.errors import TrialError
from tuner.train import Trainer
from tuner.train.data import HeldSplit
from tuner.train.parallel.group import ALONE, Group, joined
from tuner.train.parallel.strategy import Replicas

WEIGHTS = "weights.pt"
IMAGES, HELD = 41, 13  # neither of which two processes can halve


def data() -> Any:
    """Small images of three classes, of which one is rarer."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(count) % 3
        labels[::7] = 0
        return torch.randint(0, 256, (count, 1, 12, 12), generator=generator).to(torch.uint8), labels

    return split(IMAGES), split(HELD), split(HELD)


def network(config: dict[str, Any]) -> nn.Module:
    """Without batch norm, whose statistics are those of each process's own images."""
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.GELU(), nn.Conv2d(6, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(384, 3))


def with_batch_norm(config: dict[str, Any]) -> nn.Module:
    """Its second batch norm has no weights of its own."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.GELU(),
        nn.Conv2d(6, 6, 3),
        nn.BatchNorm2d(6, affine=False),
        nn.Flatten(),
        nn.Linear(384, 3),
    )


TRIAL = ImageClassifier(data, network)
NORMALISED = ImageClassifier(data, with_batch_norm)
CASES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "lr": 0.05, "batch_size": 8},
    "odd batches": {"optimizer": "sgd", "lr": 0.05, "batch_size": 7},
    "weighted classes, smooth labels": {
        "optimizer": "sgd",
        "lr": 0.05,
        "batch_size": 9,
        "class_weights": "balanced",
        "label_smoothing": 0.1,
    },
    "clipped": {"optimizer": "sgd", "lr": 0.05, "batch_size": 8, "clip_norm": 0.1},
    "averaged weights": {"optimizer": "sgd", "lr": 0.05, "batch_size": 8, "ema_decay": 0.9},
    "micro-batches": {"optimizer": "sgd", "lr": 0.05, "batch_size": 16},
    "bf16": {"optimizer": "sgd", "lr": 0.05, "batch_size": 8, "precision": "bf16"},
    "fp16": {"optimizer": "sgd", "lr": 0.05, "batch_size": 8, "precision": "fp16", "clip_norm": 0.1},
}


def with_a_spare_layer(config: dict[str, Any]) -> nn.Module:
    """A layer of it is never used."""
    module = network(config)
    module[0].spare = nn.Linear(3, 3)
    return module


SPARE = ImageClassifier(data, with_a_spare_layer)
RECIPES: dict[str, dict[str, Any]] = {  # what is drawn for each image, by each process for its own
    "policies and mixing": {
        "auto_augment": "trivial",
        "random_resized_crop": 0.3,
        "cutmix": 0.5,
        "mixup": 0.2,
        "flip": 0.5,
        "test_time_flip": True,
    },
    "a probe, then all layers": {"finetune": "lp-ft", "probe_epochs": 1, "auto_augment": "rand", "ema_decay": 0.5},
}
OVER_ALL: dict[str, dict[str, Any]] = {  # batch norms that see the images of all processes
    "sgd": {"optimizer": "sgd", "lr": 0.05, "batch_size": 9, "sync_batch_norm": True},
    "micro-batches": {"optimizer": "sgd", "lr": 0.05, "batch_size": 16, "sync_batch_norm": True},
    "bf16": {"optimizer": "sgd", "lr": 0.05, "batch_size": 9, "sync_batch_norm": True, "precision": "bf16"},
    "a rest that joins": {"optimizer": "sgd", "lr": 0.05, "batch_size": IMAGES - 3, "sync_batch_norm": True},
}


def trained(config: dict[str, Any], group: Group, micro_batches: int, trial: ImageClassifier = TRIAL) -> dict[str, Any]:
    """What two epochs lead to."""
    torch.set_num_threads(1)
    trainer = Trainer(trial, config, epochs=2, seed=3, strategy=Replicas(group) if group.size > 1 else None)
    trainer.halve_micro_batch(micro_batches)
    results = [trainer.run_epoch().metrics() for _ in range(2)]
    checkpoint = trainer.snapshot()
    return {"results": results, "model": checkpoint.model, "test": asdict(trainer.evaluate(trainer.splits.test))}


def resnet_steps(group: Group) -> dict[str, Tensor]:
    """A ResNet18 after three steps in which batch norm has its running statistics."""
    torch.set_num_threads(1)
    trial = ImageClassifier("digits", "resnet18", weights=None)
    config = {"optimizer": "sgd", "lr": 0.01, "batch_size": 10, "image_size": 16}
    trainer = Trainer(trial, config, epochs=1, strategy=Replicas(group) if group.size > 1 else None)
    trainer.parts.fine_tuning.set_mode = trainer.module.eval  # type: ignore[method-assign, assignment]
    trainer.train(steps=3)
    return trainer.snapshot().model


def run_rank(rank: int, size: int, folder: str) -> None:
    with joined(rank, size, Path(folder) / "meeting") as group:
        found = {name: trained(config, group, int(name == "micro-batches")) for name, config in CASES.items()}
        over_all = {
            name: trained(given, group, int(name == "micro-batches"), NORMALISED) for name, given in OVER_ALL.items()
        }
        gathered = group.joined(torch.arange(10)[rank * 5 : 5 + rank * 4].float())
        resnet = resnet_steps(group)
        found["own statistics"] = trained({**CASES["averaged weights"], "batch_size": 5}, group, 0, NORMALISED)
        found["spare layer"] = trained(CASES["sgd"], group, 0, SPARE)
        begun = ImageClassifier(data, network, Path(folder) / WEIGHTS)
        for name, recipe in RECIPES.items():
            found[name] = trained({"optimizer": "sgd", "lr": 0.05, "batch_size": 8, **recipe}, group, 0, begun)
    torch.save({**found, "over all": over_all, "gathered": gathered, "resnet": resnet}, Path(folder) / f"{rank}.pt")


@pytest.fixture(scope="module")
def of_two() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(network({}).state_dict(), Path(folder) / WEIGHTS)
        start_ranks(run_rank, 2, folder)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_lead_to_the_same_weights_as_one(of_two: list[dict[str, Any]], name: str) -> None:
    alone = trained(CASES[name], ALONE, int(name == "micro-batches"))
    loose = name in ("bf16", "fp16")
    for rank in range(2):
        for parameter, value in of_two[rank][name]["model"].items():
            torch.testing.assert_close(value, alone["model"][parameter], atol=2e-3 if loose else 1e-5, rtol=1e-5)
    for one, other in zip(of_two[0][name]["results"], alone["results"], strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=5e-3 if loose else 1e-5)
        assert one["val_loss"] == pytest.approx(other["val_loss"], rel=5e-3 if loose else 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_every_process_knows_what_all_images_came_to(of_two: list[dict[str, Any]], name: str) -> None:
    first, second = (found[name] for found in of_two)
    measured = ("train_loss", "val_loss", "val_accuracy", "val_f1")
    for one, other in zip(first["results"], second["results"], strict=True):
        assert {key: one[key] for key in measured} == {key: other[key] for key in measured}
    assert first["test"] == second["test"]
    accuracy = first["results"][-1]["val_accuracy"] * HELD
    assert accuracy == pytest.approx(round(accuracy), abs=1e-4)  # a whole number of images


@pytest.mark.parametrize("name", OVER_ALL)
def test_synchronised_batch_norms_are_those_of_the_whole_batch(of_two: list[dict[str, Any]], name: str) -> None:
    given = {**OVER_ALL[name], **({"batch_size": IMAGES} if name == "a rest that joins" else {})}
    alone = trained(given, ALONE, int(name == "micro-batches"), NORMALISED)
    for found in of_two:
        assert list(found["over all"][name]["model"]) == list(alone["model"])
        for parameter, value in found["over all"][name]["model"].items():
            torch.testing.assert_close(
                value, alone["model"][parameter], atol=1e-2 if name == "bf16" else 1e-5, rtol=1e-5
            )


def test_two_processes_train_a_resnet_as_one_does(of_two: list[dict[str, Any]]) -> None:
    alone = resnet_steps(ALONE)
    for found in of_two:
        for name, value in found["resnet"].items():
            torch.testing.assert_close(value, alone[name], atol=1e-5, rtol=1e-4)


def test_one_model_is_validated_and_kept_though_each_process_has_its_own_statistics(
    of_two: list[dict[str, Any]],
) -> None:
    found = [of["own statistics"] for of in of_two]
    trainer = Trainer(NORMALISED, CASES["averaged weights"], epochs=2, seed=3)
    trainer.parts.best_module.load_state_dict(found[0]["model"])
    assert trainer.validate().loss == pytest.approx(found[0]["results"][-1]["val_loss"], rel=1e-5)
    assert all(torch.equal(value, found[0]["model"][name]) for name, value in found[1]["model"].items())


@pytest.mark.parametrize("name", RECIPES)
def test_processes_that_draw_otherwise_for_their_images_keep_one_network(
    of_two: list[dict[str, Any]], name: str
) -> None:
    first, second = (found[name] for found in of_two)
    assert all(torch.equal(value, second["model"][key]) for key, value in first["model"].items())
    assert first["test"] == second["test"]
    measured = ("train_loss", "val_loss", "val_accuracy")
    for one, other in zip(first["results"], second["results"], strict=True):
        assert {key: one[key] for key in measured} == {key: other[key] for key in measured}


def test_a_layer_that_is_never_used_may_be_there(of_two: list[dict[str, Any]]) -> None:
    alone = trained(CASES["sgd"], ALONE, 0, SPARE)
    for found in of_two:
        for name, value in found["spare layer"]["model"].items():
            torch.testing.assert_close(value, alone["model"][name], atol=1e-5, rtol=1e-5)


def test_a_split_of_fewer_images_than_processes_is_left_to_each() -> None:
    trainer = Trainer(TRIAL, {"batch_size": 19}, epochs=1)
    chosen = HeldSplit(torch.zeros(2, 1, 12, 12, dtype=torch.uint8), torch.arange(2))
    strategy = Replicas(Group(1, 3))  # there are no others: it must not ask for them
    answers = strategy.logits(trainer.parts.evaluator, trainer.module, chosen, trainer.splits.normalisation)
    assert answers.shape == (2, 3)


def test_too_few_images_for_the_processes_spoil_the_trial() -> None:
    with pytest.raises(TrialError, match="need 2 training images each, 60 in total, got 41; use fewer devices"):
        Trainer(TRIAL, {"batch_size": 64}, epochs=1, strategy=Replicas(Group(0, 30)))


def test_a_failure_does_not_part_from_the_others_who_may_wait_for_this_process(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="here"), joined(0, 1, tmp_path / "meeting"):
        raise ValueError("here")
    assert torch.distributed.is_initialized()  # NCCL's parting would wait
    torch.distributed.destroy_process_group()


def test_a_last_batch_that_leaves_a_process_without_two_images_joins_the_one_before() -> None:
    trainer = Trainer(TRIAL, {"batch_size": 19}, epochs=1, strategy=Replicas(Group(0, 2)))
    assert [len(batch) for batch in trainer.batches(0)] == [19, 22]
    assert [len(batch) for batch in Trainer(TRIAL, {"batch_size": 19}, epochs=1).batches(0)] == [19, 19, 3]


def test_rows_are_joined_in_order_whatever_each_process_has(of_two: list[dict[str, Any]]) -> None:
    for found in of_two:
        assert found["gathered"].tolist() == list(range(9))


@pytest.mark.parametrize(("count", "size"), [(10, 3), (7, 2), (3, 3), (64, 4)])
def test_a_batch_is_shared_out_evenly_with_nothing_lost(count: int, size: int) -> None:
    batch = torch.randperm(count)
    parts = [Group(rank, size).share(batch) for rank in range(size)]
    assert torch.cat(parts).tolist() == batch.tolist()
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1


def test_alone_nothing_is_exchanged() -> None:
    values = torch.arange(3.0)
    assert ALONE.sum(values) is values
    assert ALONE.joined(values) is values
