"""A refitted network is compared with the winner's own on the same test images."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.conftest import small_model, write_colours
from tuner import Folds
from tuner.inspection.scoring import beside_own, paired_gain, score
from tuner.train import trainer_of
from tuner.trial import ImageClassifier

CONFIG: dict[str, Any] = {"lr": 1e-2, "batch_size": 16, "image_size": 12, "test_time_flip": True}


def test_the_error_is_of_the_differences() -> None:
    before = torch.tensor([1.0, 1.0, 0.0, 0.0])
    after = torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert paired_gain(before, after) == pytest.approx((0.25, (0.25 * 0.75 / 4) ** 0.5))
    assert paired_gain(after, after) == (0.0, 0.0)


@pytest.mark.parametrize("validation", [None, Folds(3)])
def test_both_networks_are_asked_as_they_are_scored(tmp_path: Path, validation: Folds | None) -> None:
    root = write_colours(tmp_path / "colours")
    trial = ImageClassifier(f"folder:{root}", small_model, weights=None, validation=validation)
    for name, one, epochs in (("own", trial, 1), ("refitted", trial.refitted(), 3)):
        running = trainer_of(one, CONFIG, epochs=3)
        for _ in range(epochs):
            running.run_epoch()
        running.save(tmp_path / name)
    told = beside_own(trial, CONFIG, refitted=tmp_path / "refitted", own=tmp_path / "own", split_seed=0)
    own = score(trial, CONFIG, tmp_path / "own", split_seed=0).test
    refitted = score(trial.refitted(), CONFIG, tmp_path / "refitted", split_seed=0).test
    assert {name: told[name] for name in own.by_name("test")} == pytest.approx(own.by_name("test"))
    assert told["validation_images"] == score(trial, CONFIG, tmp_path / "own", split_seed=0).images["validation"] > 0
    assert told["gain"] == pytest.approx(refitted["accuracy"] - own["accuracy"])
