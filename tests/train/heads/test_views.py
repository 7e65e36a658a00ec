from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.pretend import pretending
from tests.train.test_features import CONFIG, images_through
from tuner import Study, choice
from tuner.errors import StudyError, TrialError
from tuner.space import Space
from tuner.train import LoneHead, Trainer, trainer_of
from tuner.train.epoch_result import EpochResult
from tuner.train.heads import HeadBatch, HeadTrial
from tuner.train.heads.heads import Heads
from tuner.trial import Folds, ImageClassifier
from tuner.trial.same_backbone import batch_key

MIRRORED = CONFIG | {"flip": 1.0, "views": 1}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))


def batch(trial: ImageClassifier, *configs: dict[str, Any]) -> HeadBatch:
    return HeadBatch(trial, [HeadTrial(one, seed) for seed, one in enumerate(configs)], epochs=3, split_seed=0)


def answered(heads: Heads, images: Tensor) -> Tensor:
    """What the backbone answers to images: the inputs of the head."""
    parts = heads._parts
    seen: list[Tensor] = []
    hook = parts.network.head_layer.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0]))
    with torch.inference_mode():
        parts.module.eval()(parts.splits.normalisation(images))
    hook.remove()
    return seen[0]


@pytest.mark.parametrize("folds", [0, 3])
def test_views_are_features_of_augmented_training_images(pretrained: ImageClassifier, folds: int) -> None:
    trial = replace(pretrained, validation=Folds(folds)) if folds else pretrained
    for heads in batch(trial, MIRRORED)._each:
        images, count = heads._parts.splits.train.images(), len(heads._train)
        values, labels, weights = heads._train.every()
        assert weights is None
        assert torch.equal(labels, heads._parts.splits.train.labels.repeat(2))
        torch.testing.assert_close(values[:count], answered(heads, images), rtol=0, atol=1e-5)
        torch.testing.assert_close(values[count:], answered(heads, images.flip(-1)), rtol=0, atol=1e-5)
        torch.testing.assert_close(
            heads._validation.all(), answered(heads, heads._parts.splits.validation.images()), rtol=0, atol=1e-5
        )
        drawn = torch.tensor([[0, count + 1], [2 * count - 1, 3]])
        found, of_them, _ = heads._train.batch(drawn, heads._train.memory(4))
        assert torch.equal(found, values[drawn])
        assert torch.equal(of_them, labels[drawn])


def test_each_epoch_draws_one_version_of_each_image(pretrained: ImageClassifier) -> None:
    features = batch(pretrained, CONFIG | {"crop_padding": 2, "views": 3})._each[0]._train
    order = torch.randperm(len(features))
    drawn = [features.drawn(order, seed=7, epoch=epoch) for epoch in range(40)]
    assert all(torch.equal(one % len(features), order) for one in drawn)
    versions = torch.stack(drawn) // len(features)
    assert versions.unique().tolist() == [0, 1, 2, 3]
    assert (versions.double().mean(0) - 1.5).abs().max() < 0.9
    assert torch.equal(features.drawn(order, seed=7, epoch=3), drawn[3])
    assert not torch.equal(features.drawn(order, seed=8, epoch=3), drawn[3])
    values = features.every()[0].unflatten(0, (4, len(features)))
    assert all(not torch.equal(values[one], values[other]) for one in range(4) for other in range(one))


def test_the_backbone_sees_each_version_once_in_all_trials_together(pretrained: ImageClassifier) -> None:
    config = CONFIG | {"flip": 0.5, "views": 2}
    assert batch_key(pretrained, config) is not None
    assert batch_key(pretrained, config) != batch_key(pretrained, config | {"flip": 0.4})
    first = trainer_of(pretrained, config, epochs=2)
    assert isinstance(first, LoneHead)
    backbone = first._batch._each[0]._parts.network.module.get_submodule("conv5")
    with images_through(backbone) as sizes:
        results = [first.run_epoch() for _ in range(2)]
    assert sum(sizes) == 0  # features are there before the first epoch
    assert all(isinstance(one, EpochResult) for one in results)
    with torch.no_grad():
        torch.manual_seed(99)  # must not matter
        again = trainer_of(pretrained, config, epochs=2)
    assert isinstance(again, LoneHead)
    left, right = first._batch._each[0]._train.every()[0], again._batch._each[0]._train.every()[0]
    assert torch.equal(left, right)
    other = trainer_of(pretrained, config | {"flip": 0.4}, epochs=2)
    assert isinstance(other, LoneHead)
    assert not torch.equal(left, other._batch._each[0]._train.every()[0])


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
@pytest.mark.parametrize("folds", [0, 3])
def test_a_refit_learns_from_views_of_all_images(pretrained: ImageClassifier, folds: int, optimizer: str) -> None:
    config = MIRRORED | {"optimizer": optimizer, "weight_decay": 0.1}
    trial = replace(pretrained, validation=Folds(folds)) if folds else pretrained
    batch(trial, config).run_epoch([0])
    heads = batch(trial.refitted(), config)._each[0]
    images = heads._parts.splits.train.images()
    assert len(images) == 54
    values = heads._train.every()[0]
    torch.testing.assert_close(values[:54], answered(heads, images), rtol=0, atol=1e-5)
    torch.testing.assert_close(values[54:], answered(heads, images.flip(-1)), rtol=0, atol=1e-5)
    (result,) = heads.run_epoch([0])
    assert isinstance(result, EpochResult)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"finetune": "all"}, "finetune='all'"),
        ({"mixup": 0.2}, "mixup=0.2"),
        ({"precision": "bf16"}, "precision='bf16'"),
    ],
)
def test_views_without_what_they_need_are_refused(
    pretrained: ImageClassifier, config: dict[str, Any], told: str
) -> None:
    message = rf"views=1 needs a library's model with weights.*got {told}"
    with pytest.raises(StudyError, match=message):
        trainer_of(pretrained, MIRRORED | config, epochs=1)
    with pytest.raises(StudyError, match=message):
        Study("refused", trial=pretrained, space=MIRRORED | config | {"lr": choice([0.1, 0.2])})
    with pytest.raises(TrialError, match="takes steps on batches of images, got views=1"):
        Trainer(pretrained, MIRRORED, epochs=1)


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_on_a_gpu_heads_learn_from_the_same_views(pretrained: ImageClassifier, optimizer: str) -> None:
    config = MIRRORED | {"optimizer": optimizer, "weight_decay": 1.0}
    here = batch(pretrained, config)
    expected = here.run_epoch([0])[0]
    with pretending():
        there = HeadBatch(pretrained, [HeadTrial(config, 0)], epochs=3, split_seed=0, device="cuda")
        found = there.run_epoch([0])[0]
        views, labels, *_ = there._each[0]._train.every()
        assert views.is_cuda
        assert labels.tolist() == here._each[0]._train.every()[1].tolist()
        torch.testing.assert_close(views.cpu(), here._each[0]._train.every()[0], rtol=0, atol=1e-4)
    assert isinstance(expected, EpochResult)
    assert isinstance(found, EpochResult)
    assert found.train_loss == pytest.approx(expected.train_loss, rel=0.05)  # lbfgs needs more than 100 steps here


def test_views_that_nothing_augments_are_told(pretrained: ImageClassifier) -> None:
    head: dict[str, Any] = {"finetune": "head", "lr": choice([0.1, 0.2])}

    def told(**space: Any) -> list[str]:
        return [one for one in pretrained.notices(Space(head | space), 3) if "views" in one]

    nothing = "views=8 keeps features of the same image again, as nothing augments it; leave it out"
    assert told(views=8) == told(views=choice([0, 8])) == [nothing]
    assert told(views=8, flip=0.5) == told(views=choice([0, 8]), flip=choice([0.5]).when(views=8)) == []
    assert [one.partition(";")[0] for one in told(flip=0.5)] == [
        "flip changes the images in every epoch, so finetune='head' runs the whole network each time"
    ]
