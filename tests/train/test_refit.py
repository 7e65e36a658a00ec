"""Training a winner again on training and validation images together: the images, the features, the networks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tests.train.conftest import small_model, write_colours
from tuner import Folds
from tuner.errors import DataError
from tuner.inspection import load_model, score, write_best
from tuner.train import Trainer, load_splits, trainer_of
from tuner.train.data.given_data import given_splits
from tuner.train.data.splits import Split
from tuner.train.models import random_network
from tuner.trial import ImageClassifier
from tuner.trial.splitting import Joined

CONFIG: dict[str, Any] = {"lr": 1e-2, "batch_size": 16, "image_size": 12, "schedule": "cosine"}


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))


PUBLISHED = "resnet18-f37072fd.pth"  # the name of a published file: its mean and standard deviation hold


def weights_file(folder: Path, name: str = PUBLISHED) -> Path:
    path = folder / name
    torch.save(random_network("resnet18", channels=3, classes=1000, seed=9).module.state_dict(), path)
    return path


def pixels(split: Split) -> list[bytes]:
    return sorted(image.numpy().tobytes() for image in split.images())


@pytest.mark.parametrize("validation", [None, 0.3, Folds(3), "folder"])
def test_all_images_but_those_of_the_test_split_are_for_training(
    tmp_path: Path, validation: float | str | Folds | None
) -> None:
    root = write_colours(tmp_path / "colours")
    if validation == "folder":
        parts = tmp_path / "parts"
        parts.mkdir()
        for part in ("train", "val", "test"):
            write_colours(parts / part, images={"train": 20, "val": 6, "test": 5}[part], pixels=12 + len(part))
        root = parts
    trial = ImageClassifier(f"folder:{root}", small_model, weights=None, validation=validation)
    before = load_splits(trial, seed=3, image_size=12)
    after = load_splits(trial.refitted(), seed=3, image_size=12)
    assert pixels(after.test) == pixels(before.test)
    assert len(after.validation) == 0
    known = pixels(before.train) if isinstance(validation, Folds) else pixels(before.train) + pixels(before.validation)
    assert pixels(after.train) == sorted(known)
    assert after.key != before.key
    assert not trial.refitted().folds


def test_a_refit_reports_nothing_of_validation_and_keeps_the_schedule(small: ImageClassifier) -> None:
    usual, again = (Trainer(one, CONFIG, epochs=4, seed=1) for one in (small, small.refitted()))
    told = [usual.run_epoch().metrics(), again.run_epoch().metrics()]
    assert {name for name in told[0] if name.startswith("val_")}
    assert not [name for name in told[1] if name.startswith("val_")]
    assert set(told[1]) == {name for name in told[0] if not name.startswith("val_")}
    rates = [[float(trainer.parts.schedule(done)) for done in range(4)] for trainer in (usual, again)]
    assert rates[0] == rates[1]
    assert len(again.splits.train) == len(usual.splits.train) + len(usual.splits.validation)


def test_a_cross_validated_winner_becomes_one_network(tmp_path: Path) -> None:
    root = write_colours(tmp_path / "colours")
    trial = ImageClassifier(f"folder:{root}", small_model, weights=None, validation=Folds(3))
    running = trainer_of(trial.refitted(), CONFIG, epochs=2)
    assert isinstance(running, Trainer)
    assert len(running.splits.train) == len(load_splits(trial, seed=0, image_size=12).train)


@pytest.mark.parametrize(
    ("weights", "config", "validation"),
    [
        (PUBLISHED, {"test_time_flip": True}, None),
        (PUBLISHED, {"test_time_flip": True}, Folds(3)),
        ("own.pt", {}, None),
        (None, {}, None),
    ],
    ids=["both views are answered to", "folds, both views", "other images have another mean", "random weights"],
)
def test_a_head_learns_from_features_of_the_images_as_they_are_where_those_of_trials_do_not_fit(
    colours: ImageClassifier, tmp_path: Path, weights: str | None, config: dict[str, Any], validation: Folds | None
) -> None:
    path = None if weights is None else weights_file(tmp_path, weights)
    trial = replace(colours, weights=path, validation=validation)
    config = CONFIG | {"finetune": "head"} | config
    trainer_of(trial, config, epochs=2, seed=5).run_epoch()  # leaves features behind
    again = Trainer(trial.refitted(), config, epochs=2, seed=5)
    slow = Trainer(trial.refitted(), config, epochs=2, seed=5)
    slow.parts.feeds._looked = True  # and found none
    for _ in range(2):
        assert again.run_epoch().train_loss == pytest.approx(slow.run_epoch().train_loss, abs=1e-5)
    assert not again.parts.feed.whole


@pytest.mark.parametrize("validation", [None, Folds(3)])
def test_features_that_trials_have_found_are_used_again(
    colours: ImageClassifier, tmp_path: Path, validation: Folds | None
) -> None:
    trial = replace(colours, weights=weights_file(tmp_path), validation=validation)
    config = CONFIG | {"finetune": "head"}
    trainer_of(trial, config, epochs=2, seed=5).run_epoch()
    again = Trainer(trial.refitted(), config, epochs=2, seed=5)
    seen: list[int] = []
    again.module.get_submodule("layer4").register_forward_hook(lambda _, inputs, output: seen.append(len(inputs[0])))
    slow = Trainer(trial.refitted(), config, epochs=2, seed=5)
    slow.parts.feeds._looked = True  # and found none
    told = again.run_epoch().train_loss
    assert max(seen, default=0) <= 2  # only whether features can stand for images was asked
    assert told == pytest.approx(slow.run_epoch().train_loss, abs=1e-5)


def test_a_refit_goes_on_from_a_checkpoint_bit_for_bit(small: ImageClassifier, tmp_path: Path) -> None:
    config = CONFIG | {"ema_decay": 0.9}
    through = Trainer(small.refitted(), config, epochs=3, seed=2)
    through.run_epoch()
    through.save(tmp_path / "first")
    resumed = Trainer(small.refitted(), config, epochs=3, seed=2)
    resumed.load(tmp_path / "first")
    assert [resumed.run_epoch().train_loss for _ in range(2)] == [through.run_epoch().train_loss for _ in range(2)]


@pytest.mark.parametrize("validation", [None, Folds(3)])
def test_it_is_scored_on_the_same_test_images_and_loaded_back(tmp_path: Path, validation: Folds | None) -> None:
    root = write_colours(tmp_path / "colours")
    trial = ImageClassifier(f"folder:{root}", small_model, weights=None, validation=validation)
    running = Trainer(trial.refitted(), CONFIG, epochs=2)
    running.run_epoch()
    running.save(tmp_path / "checkpoint")
    scored = score(trial.refitted(), CONFIG, tmp_path / "checkpoint", split_seed=0)
    calibration = scored.files["calibration.json"]
    assert (calibration["temperature"], calibration["scaled_bins"]) == (None, ())
    before = load_splits(trial, seed=0, image_size=12)
    assert scored.images == {"train": len(running.splits.train), "validation": 0, "test": len(before.test)}
    write_best(tmp_path / "best", trial.refitted(), CONFIG, scored, {"trial": "0", "epoch": 1})
    loaded = load_model(tmp_path / "best", trial=trial)
    assert (loaded.card.networks, loaded.card.trained_on) == (1, "train+validation")
    assert loaded.evaluate(before.test)["accuracy"] == pytest.approx(scored.test["accuracy"])


@pytest.mark.parametrize("streamed", [False, True])
def test_images_of_a_function_are_joined(streamed: bool) -> None:
    def parts(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8)
        return images, torch.arange(count) % 2

    class Plain(Dataset[Any]):
        def __init__(self, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
            self.pair = pair

        def __len__(self) -> int:
            return len(self.pair[1])

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return self.pair[0][index], int(self.pair[1][index])

    pairs = [parts(count) for count in (6, 4, 3)]
    found = given_splits(lambda: tuple(map(Plain, pairs)) if streamed else tuple(pairs), None, joined=True)
    assert (len(found.train), len(found.validation), len(found.test)) == (10, 0, 3)
    assert torch.equal(found.train.images(), torch.cat([pairs[0][0], pairs[1][0]]))
    assert found.train.labels.tolist() == [*pairs[0][1].tolist(), *pairs[1][1].tolist()]
    with pytest.raises(DataError, match=r"^refit trains on training and validation images together, got two kinds"):
        given_splits(lambda: (Plain(pairs[0]), pairs[1], pairs[2]), None, joined=True)


def test_what_is_joined_is_cut_as_before() -> None:
    trial = ImageClassifier("digits", weights=None, validation=0.25)
    assert trial.refitted().validation == Joined(0.25)
    assert trial.refit_share == pytest.approx(4 / 3)
    assert replace(trial, validation=Folds(5)).refit_share == pytest.approx(0.25)
