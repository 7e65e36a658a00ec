"""Training on a table: the same as on folders, with the table's groups and weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.train.conftest import small_model, write_colours
from tuner import Folds, ImageClassifier, Table
from tuner.errors import DataError
from tuner.train import Trainer, trainer_of
from tuner.train.data import Splits, load_splits
from tuner.train.tasks.one_label import CrossEntropy

CONFIG: dict[str, Any] = {"batch_size": 8, "lr": 0.01, "optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0}


def write_table(folder: Path, columns: str = "", cells: Any = lambda path: "", images: int = 20) -> Path:
    """A table of noisy images of three colours, the last rows first."""
    paths = sorted(write_colours(folder, images).glob("*/*.png"), reverse=True)
    rows = [f"{path.relative_to(folder)},{path.parent.name}{cells(path)}\n" for path in paths]
    (folder / "labels.csv").write_text(f"file,colour{columns}\n{''.join(rows)}")
    return folder / "labels.csv"


def trial(table: Path, **given: Any) -> ImageClassifier:
    given = {"weights": None, **given}
    return ImageClassifier(Table(table, image="file", label="colour"), given.pop("model", small_model), **given)


def weighted(path: Path) -> str:
    return f",{1 + int(path.stem) % 4}"


def weights_of(splits: Splits) -> list[float]:
    """The weights of the training images in their order; the colours' files come in alphabetical order."""
    assert splits.train.weights is not None
    return splits.train.weights.values.tolist()


@pytest.mark.parametrize("model", ["resnet18", "shufflenet_v2_x0_5"])
def test_losses_are_those_of_folders(tmp_path: Path, model: str) -> None:
    table = write_table(tmp_path / "colours")
    told = []
    for data in (trial(table, model=model), ImageClassifier(f"folder:{tmp_path / 'colours'}", model, None)):
        trainer = Trainer(data, {**CONFIG, "image_size": 32}, epochs=2, seed=3, split_seed=5)
        told.append([(result := trainer.run_epoch()).train_loss, result.validation])
        told[-1] += [trainer.splits.classes, trainer.splits.train.weights]
    assert told[0] == told[1]
    assert told[0][2:] == [("blue", "green", "red"), None]


def test_images_of_a_group_stay_on_one_side_of_a_cut_and_of_folds(tmp_path: Path) -> None:
    table = write_table(tmp_path / "colours", ",group", lambda path: f",{path.parent.name} {int(path.stem) // 2}")
    splits = load_splits(trial(table), seed=0, image_size=8)
    everything = [splits.train, splits.validation, splits.test]
    rows = [{int(row) // 2 for row in split.pool_rows} for split in everything]  # type: ignore[attr-defined]
    assert [len(split) for split in everything] == [48, 6, 6]
    assert sum(map(len, rows)) == len(set.union(*rows)) == 30
    folded = trial(table, validation=Folds(3))
    parts = [load_splits(folded.fold(part), seed=0, image_size=8).validation for part in range(3)]
    rows = [{int(row) // 2 for row in part.pool_rows} for part in parts]  # type: ignore[attr-defined]
    assert sum(map(len, rows)) == len(set.union(*rows)) == 27


def expected(trainer: Trainer, weights: list[float], smoothing: float = 0.0) -> float:
    """The mean weighted loss of an epoch of the trainer's network, which doesn't learn."""
    split = trainer.splits.train
    with torch.inference_mode():
        logits = trainer.module.train()(trainer.splits.normalisation(split.images()))
    losses = F.cross_entropy(logits, split.labels, reduction="none", label_smoothing=smoothing)
    return float((losses * torch.tensor(weights)).sum() / sum(weights))


@pytest.mark.parametrize("changed", [{}, {"label_smoothing": 0.2}])
@pytest.mark.parametrize("data_memory_gb", [None, 0])
def test_weights_are_those_of_the_images_in_the_loss(
    tmp_path: Path, changed: dict[str, float], data_memory_gb: float | None
) -> None:
    table = write_table(tmp_path / "colours", ",weight", weighted)
    trainer = Trainer(
        trial(table, data_memory_gb=data_memory_gb), {**CONFIG, **changed, "lr": 1e-8, "batch_size": 64}, epochs=1
    )
    weights = weights_of(trainer.splits)
    assert sum(weights) / len(weights) == pytest.approx(1)
    assert {round(each / min(weights)) for each in weights} == {1, 2, 3, 4}
    loss = trainer.run_epoch().train_loss
    assert loss == pytest.approx(expected(trainer, weights, **({"smoothing": 0.2} if changed else {})), rel=1e-5)
    assert loss != pytest.approx(expected(trainer, [1.0] * len(weights)), rel=1e-5)


def test_an_image_of_weight_0_teaches_nothing_and_equal_weights_change_nothing(tmp_path: Path) -> None:
    losses = {}
    for name, cells in {
        "none": lambda path: ",",
        "zero": lambda path: f",{int(path.stem) % 2}",
        "seven": lambda path: ",7",
    }.items():
        table = write_table(tmp_path / name, ",weight" if name != "none" else ",note", cells)
        trainer = Trainer(trial(table), CONFIG, epochs=1, split_seed=1)
        losses[name] = trainer.run_epoch().train_loss
        if name == "zero":
            assert set(weights_of(trainer.splits)) == {0.0, max(weights_of(trainer.splits))}
    assert losses["none"] == losses["seven"] != losses["zero"]


def test_only_images_of_weight_0_are_refused(tmp_path: Path) -> None:
    splits = {0: "val", 1: "test"}
    table = write_table(
        tmp_path / "colours",
        ",weight,split",
        lambda path: f",{int(int(path.stem) < 2)},{splits.get(int(path.stem), 'train')}",
    )
    with pytest.raises(
        DataError, match=r"training images need weights of which some are > 0, got 0 for all 54 of table:"
    ):
        load_splits(trial(table), seed=0, image_size=8)


@pytest.mark.parametrize("mixed", ["mixup", "cutmix"])
def test_weights_are_mixed_with_the_labels(tmp_path: Path, mixed: str) -> None:
    table = write_table(tmp_path / "colours", ",weight", weighted)
    trainer = Trainer(trial(table), {**CONFIG, mixed: 0.5, "batch_size": 48}, epochs=1)
    images, labels = next(iter(trainer.splits.train.batches([torch.arange(48)], "cpu")))
    assert labels.shape == (48, 3)
    assert labels.sum(1).tolist() == pytest.approx(weights_of(trainer.splits))
    _, targets = trainer.parts.feed.prepare(images, labels)
    assert float(targets.sum()) == pytest.approx(48, rel=1e-5)
    assert not torch.equal(targets, labels)
    assert trainer.run_epoch().train_loss > 0


def test_kept_features_are_learnt_from_with_the_weights(tmp_path: Path) -> None:
    table = write_table(tmp_path / "colours", ",weight", weighted)
    config = {**CONFIG, "finetune": "head", "image_size": 32}
    losses = []
    for epochs, validation in ((1, None), (2, None), (2, Folds(2))):  # from 2 epochs on, features are kept
        trainer = trainer_of(trial(table, model="resnet18", validation=validation), config, epochs=epochs, seed=1)
        each = trainer.trainers if validation else (trainer,)  # type: ignore[union-attr]
        losses.append([one.run_epoch().train_loss for one in each])
        assert [one.parts.feed.whole for one in each] == [epochs == 1] * len(each)
        assert all(one.parts.feed.train.weights is not None for one in each)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_torch_spreads_smoothed_labels_of_weighted_images_by_their_weights() -> None:
    logits, labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 2, 1, 1])
    weights = torch.tensor([0.5, 2.0, 0.0, 1.5])
    of_classes = torch.tensor([1.0, 3.0, 0.5])
    targets = F.one_hot(labels, 3).float() * weights[:, None]
    told = CrossEntropy(0.3, of_classes, weighted=True).total(logits, targets)
    each = F.cross_entropy(logits, labels, of_classes, label_smoothing=0.3, reduction="none")
    assert float(told) == pytest.approx(float((each * weights).sum()), rel=1e-5)


def test_flowers_as_a_table_are_learnt_from_as_flowers_in_folders(real_data, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = real_data("photos") / "photos" / "flowers"
    rows = ["image,label"]
    for kind in sorted(path.name for path in source.iterdir()):
        (tmp_path / "folders" / kind).mkdir(parents=True)
        for file in sorted((source / kind).iterdir())[:12]:
            (tmp_path / "folders" / kind / file.name).symlink_to(file)
            (tmp_path / f"{kind} {file.name}").symlink_to(file)
            rows.append(f"{kind} {file.name},{kind}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    config = {"image_size": 64, "batch_size": 16, "lr": 0.01}
    told = []
    for data in (Table(tmp_path / "labels.csv"), f"folder:{tmp_path / 'folders'}"):
        trainer = Trainer(ImageClassifier(data, "resnet18", None), config, epochs=2, seed=4)
        results = [trainer.run_epoch() for _ in range(2)]
        told.append([(result.train_loss, result.validation.loss) for result in results if result.validation])
    for one, other in zip(*told, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    assert len(told[0]) == 2
