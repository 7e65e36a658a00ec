"""Cross-validation as one trial: what it reports, goes on from, shares and comes to."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from scipy import stats

from tests.train.conftest import small_model, write_colours
from tuner import Folds, TrialError
from tuner.inspection import load_model, score, write_best
from tuner.train import CrossValidation, Trainer, load_splits, trainer_of
from tuner.train.checkpoint_size import checkpoint_bytes
from tuner.train.cross_validation import corrected_error, reported_error
from tuner.train.evaluation import Evaluator
from tuner.train.models import Ensemble, networks_of, random_network
from tuner.train.randomness import PARTS, derive_seed
from tuner.trial import ImageClassifier

CONFIG: dict[str, Any] = {"lr": 1e-2, "batch_size": 16, "image_size": 12, "ema_decay": 0.9}
UNSTEADY = ("seconds", "images_per_second", "memory_peak_bytes", "memory_bytes")


@pytest.fixture
def folded(tmp_path: Path) -> ImageClassifier:
    """60 images of three colours, in three parts; a small model."""
    root = write_colours(tmp_path / "colours")
    return ImageClassifier(f"folder:{root}", small_model, weights=None, validation=Folds(3), metrics=["cohen_kappa"])


def cross_validation(trial: ImageClassifier, config: dict[str, Any], **how: Any) -> CrossValidation:
    running = trainer_of(trial, config, **how)
    assert isinstance(running, CrossValidation)
    return running


def validation(trial: ImageClassifier, *, seed: int = 7, epochs: int = 3) -> CrossValidation:
    torch.set_num_threads(1)
    return cross_validation(trial, CONFIG, epochs=epochs, seed=seed)


def steady(running: CrossValidation) -> dict[str, Any]:
    told = running.run_epoch().metrics()
    return {name: value for name, value in told.items() if name not in UNSTEADY and value == value}


def test_an_epoch_reports_the_mean_of_networks_trained_alone_with_its_error(folded: ImageClassifier) -> None:
    told = validation(folded).run_epoch().metrics()
    alone = [
        Trainer(folded.fold(part), CONFIG, epochs=3, seed=derive_seed(7, PARTS, part)).run_epoch() for part in range(3)
    ]
    each = [one.metrics() for one in alone]
    for name in ("val_accuracy", "val_loss", "val_f1", "val_cohen_kappa"):
        values = [float(one[name]) for one in each]
        assert told[name] == fmean(values)
        assert told[f"{name}_se"] == reported_error(values)
    assert told["train_loss"] == fmean([one.train_loss for one in alone])
    assert set(told) - set(each[0]) == {name for name in told if name.endswith("_se")}
    missing = {*folded.reports} - set(told)
    assert {name.removesuffix("_se") for name in missing} == {"val_top5_accuracy"}  # of so few classes
    assert isinstance(trainer_of(folded, CONFIG, epochs=1), CrossValidation)
    assert isinstance(trainer_of(folded.fold(0), CONFIG, epochs=1), Trainer)


def test_the_corrected_error_is_that_of_nadeau_and_bengio() -> None:
    assert corrected_error([0.8, 0.9, 0.85, 0.95, 0.9]) == pytest.approx(math.sqrt((1 / 5 + 1 / 4) * 0.00325))
    assert math.isnan(corrected_error([0.8, math.nan]))


def test_the_spread_of_two_or_three_parts_is_told_by_students_t() -> None:
    for values in ([0.8, 0.9], [0.8, 0.9, 0.85]):
        low, high = stats.t.interval(0.9, len(values) - 1, 0.0, corrected_error(values))
        assert 2 * 1.645 * reported_error(values) == pytest.approx(high - low, rel=1e-3)
    assert reported_error([0.8, 0.9, 0.85, 0.95]) == corrected_error([0.8, 0.9, 0.85, 0.95])
    assert math.isnan(reported_error([0.8, math.nan]))
    assert math.isnan(reported_error([0.8, math.inf, 0.7]))


def test_it_goes_on_from_a_checkpoint_bit_for_bit(folded: ImageClassifier, tmp_path: Path) -> None:
    through = validation(folded)
    steady(through)
    through.save(tmp_path / "first")
    expected = [steady(through), steady(through)]
    resumed = validation(folded)
    resumed.load(tmp_path / "first")
    assert resumed.epoch == 1
    assert [steady(resumed), steady(resumed)] == expected
    assert resumed.finished
    left, right = through.snapshot(), resumed.snapshot()
    assert left.model.keys() == right.model.keys()
    assert all(torch.equal(left.model[name], right.model[name]) for name in left.model)
    assert len(left.model) == 3 * len(through.trainers[0].module.state_dict())
    size, _ = checkpoint_bytes(folded, [CONFIG], epochs=3, channels=3, classes=3)
    resumed.save(tmp_path / "last")
    assert sum(file.stat().st_size for file in (tmp_path / "last").glob("*.safetensors")) == pytest.approx(
        size, rel=0.1
    )


def test_a_checkpoint_of_another_trial_leaves_all_networks_as_they_were(folded: ImageClassifier) -> None:
    running, other = validation(folded), validation(replace(folded, validation=Folds(2)))
    steady(running)
    steady(other)
    before = running.snapshot()
    mixed = other.snapshot()
    with pytest.raises(TrialError, match=r"^a checkpoint must fit the trial, got another trial's, whose training.json"):
        running.restore(mixed)
    broken = replace(
        before, model={name: one for name, one in before.model.items() if not name.startswith("networks.2")}
    )
    first = replace(broken, model={name: one + 1 for name, one in broken.model.items()})
    with pytest.raises(TrialError):
        running.restore(first)
    assert all(torch.equal(one, running.snapshot().model[name]) for name, one in before.model.items())


def test_features_of_a_frozen_backbone_are_computed_once_for_all_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    torch.save(random_network("resnet18", channels=3, classes=7, seed=9).module.state_dict(), tmp_path / "saved.pt")
    root = write_colours(tmp_path / "colours")
    trial = ImageClassifier(f"folder:{root}", "resnet18", weights=tmp_path / "saved.pt", validation=Folds(3))
    head = {"lr": 1e-2, "batch_size": 16, "image_size": 12, "finetune": "head"}
    asked: list[int] = []
    logits = Evaluator.logits

    def counting(self: Evaluator, module: Any, split: Any, *others: Any) -> torch.Tensor:
        asked.append(split.images(torch.zeros(1, dtype=torch.int64)).ndim)  # 4 for images, 2 for features
        return logits(self, module, split, *others)

    monkeypatch.setattr(Evaluator, "logits", counting)
    running = cross_validation(trial, head, epochs=2, seed=0)
    running.run_epoch()
    assert asked.count(4) == 1
    cross_validation(replace(trial, validation=Folds(4)), head, epochs=2, seed=1).run_epoch()
    assert asked.count(4) == 1  # other parts of the same images
    for trainer in running.trainers:
        feed = trainer.parts.feed
        assert not feed.whole
        assert torch.equal(feed.validation.labels, trainer.splits.validation.labels)


def test_the_winner_is_all_networks_whose_probabilities_are_averaged(folded: ImageClassifier, tmp_path: Path) -> None:
    folded = replace(folded, model="shufflenet_v2_x0_5")
    running = validation(folded, epochs=1)
    told = running.run_epoch()
    running.save(tmp_path / "checkpoint")
    scored = score(folded, CONFIG, tmp_path / "checkpoint", split_seed=0)
    sizes = [len(trainer.splits.validation) for trainer in running.trainers]
    right = [one.validation["accuracy"] * size for one, size in zip(told.each, sizes, strict=True)]
    assert scored.images == {"train": 54, "validation": 54, "test": 6}
    write_best(tmp_path / "best", folded, CONFIG, scored, {"trial": "00000", "epoch": 1})
    loaded = load_model(tmp_path / "best")
    assert scored.model.validated is not None
    outputs, labels = scored.model.validated
    accuracy = scored.model.splits.targets.metrics(outputs, labels)["accuracy"]
    assert accuracy == pytest.approx(sum(right) / sum(sizes))  # each by the network that did not see it
    assert loaded.card.networks == 3
    assert isinstance(loaded.module, Ensemble)
    again = loaded.evaluate(load_splits(folded, seed=0, image_size=12).test)
    assert again.values.items() <= scored.test.values.items()  # which also have the study's own
    images = torch.randn(4, 3, 12, 12)
    with torch.inference_mode():
        mean = torch.stack([one(images).softmax(1) for one in networks_of(loaded.module)]).mean(0)
        torch.testing.assert_close(loaded.module(images).softmax(1), mean)
