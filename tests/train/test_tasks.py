"""Training with several labels, and with numbers: every part of a trial works with them as with classes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from tuner import Folds, Table
from tuner.errors import DataError, TrialError
from tuner.inspection import load_model, score, write_best
from tuner.inspection.tasks.number import FEWEST
from tuner.train import Trainer, load_splits, trainer_of
from tuner.train.data.images import as_tensor
from tuner.trial import ImageClassifier

CONFIG: dict[str, Any] = {"lr": 1e-2, "batch_size": 16, "momentum": 0.9, "optimizer": "sgd"}
TASKS = {"several": 3, "number": 1}
IMAGES = torch.randint(0, 256, (80, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
BRIGHTNESS = IMAGES.float().mean((2, 3))
LABELS = {
    "several": (BRIGHTNESS.median(0).values < BRIGHTNESS).long(),
    "number": 20 + BRIGHTNESS.mean(1).double() / 10,
}


def model(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(12), nn.Flatten(), nn.BatchNorm1d(3), nn.Linear(3, config["outputs"]))


def trial_of(task: str, **fields: Any) -> ImageClassifier:
    def data() -> Any:
        return tuple((IMAGES[part], LABELS[task][part]) for part in (slice(50), slice(50, 65), slice(65, 80)))

    return ImageClassifier(data, model, weights=None, task=task, **fields)


def trainer(task: str, epochs: int = 3, **config: Any) -> Trainer:
    return Trainer(trial_of(task), CONFIG | {"outputs": TASKS[task]} | config, epochs=epochs)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"mixup": 0.4},
        {"cutmix": 1.0, "mixup": 0.2},
        {"ema_decay": 0.9},
        {"precision": "bf16"},
        {"test_time_flip": True},
        {"optimizer": "adamw", "flip": 0.5, "clip_norm": 1.0},
    ],
    ids=lambda config: "+".join(config) or "plain",
)
def test_every_technique_learns_the_labels(task: str, config: dict[str, Any]) -> None:
    running = trainer(task, epochs=40, **config)
    before = running.validate()
    while not running.finished:
        result = running.run_epoch()
    assert result.validation is not None
    assert result.validation.loss < 0.8 * before.loss
    reported = {name for name in result.metrics() if name.startswith("val_")}
    assert reported == {name for name in running.parts.trial.reports if name.startswith("val_")}


@pytest.mark.parametrize("task", TASKS)
def test_an_epoch_is_that_of_a_plain_loop(task: str) -> None:
    running = trainer(task)
    network, order = running.module, running.batches(0)
    plain = model({"outputs": TASKS[task]})
    plain.load_state_dict(network.state_dict())
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-2, momentum=0.9)
    normalise, labels, losses = running.splits.normalisation, LABELS[task][:50], []
    wanted = labels.float() if task == "several" else ((labels - labels.mean()) / labels.std(correction=0)).float()
    schedule = running.parts.schedule
    for place, batch in enumerate(order):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * schedule((place + 0.5) / len(order))
        outputs = plain.train()(normalise(IMAGES[batch]))
        loss = (
            F.binary_cross_entropy_with_logits(outputs, wanted[batch])
            if task == "several"
            else F.mse_loss(outputs[:, 0], wanted[batch])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()) * len(batch))
    assert running.run_epoch().train_loss == pytest.approx(sum(losses) / 50, rel=1e-5)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], value)


@pytest.mark.parametrize("task", TASKS)
def test_a_trial_goes_on_from_a_checkpoint_and_in_smaller_parts(task: str, tmp_path: Path) -> None:
    whole, cut = trainer(task), trainer(task)
    curve = [whole.run_epoch().validation for _ in range(3)]
    assert cut.run_epoch().validation == curve[0]
    cut.save(tmp_path / "checkpoint")
    again = trainer(task)
    again.load(tmp_path / "checkpoint")
    assert [again.run_epoch().validation for _ in range(2)] == curve[1:]
    parts = trainer(task)
    parts.halve_micro_batch(2)
    small = parts.run_epoch().validation
    assert small is not None
    assert curve[0] is not None
    assert dict(small.values) == pytest.approx(dict(curve[0].values), rel=1e-4)


def items(labels: Tensor) -> Dataset[Any]:
    return TensorDataset(IMAGES[: len(labels)], labels)


class Decoded(Dataset[Any]):
    """A data set without an attribute of labels."""

    def __init__(self, labels: Tensor) -> None:
        self.labels_inside = labels

    def __len__(self) -> int:
        return len(self.labels_inside)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return as_tensor(IMAGES[index]), self.labels_inside[index]


class OtherAttribute(Decoded):
    """A data set whose attribute of that name isn't its labels."""

    targets, labels = None, 7


class Brightened(TensorDataset):
    """Tensors with a transform."""

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        image, label = super().__getitem__(index)
        return image // 2, label


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "made", [items, Decoded, OtherAttribute, lambda labels: Brightened(IMAGES[: len(labels)], labels)]
)
def test_a_functions_data_sets_have_such_labels_too(task: str, made: Any) -> None:
    labels = LABELS[task]
    trial = replace(trial_of(task), data=lambda: (made(labels[:50]), made(labels[:15]), made(labels[:15])))
    splits = load_splits(trial, seed=0)
    assert splits.train.labels.tolist() == labels[:50].reshape(50, -1).tolist()
    result = Trainer(trial, CONFIG | {"outputs": TASKS[task]}, epochs=1).run_epoch()
    assert result.validation is not None


def test_labels_of_a_function_must_fit_its_images() -> None:
    def wrong() -> Any:
        return (IMAGES[:10], LABELS["several"][:9]), (IMAGES, LABELS["several"]), (IMAGES, LABELS["several"])

    with pytest.raises(DataError, match=r"images must be \[N, C, H, W\] and labels \[N\]"):
        load_splits(replace(trial_of("several"), data=wrong), seed=0)

    def other() -> Any:
        return (IMAGES, LABELS["several"]), (IMAGES, LABELS["several"][:, :2]), (IMAGES, LABELS["several"])

    with pytest.raises(DataError, match=r"labels must be \[80, 3\] for as many images, got \[80, 2\] for validation"):
        load_splits(replace(trial_of("several"), data=other), seed=0)


@pytest.mark.parametrize("outputs", [2, 4])
def test_a_model_has_an_output_for_each_label(outputs: int) -> None:
    with pytest.raises(TrialError, match=rf"a model must return logits \[N, 3\], got \[2, {outputs}\] for 2 images"):
        trainer("several", outputs=outputs)


def test_tensors_with_a_transform_are_a_data_set_of_classes_too() -> None:
    labels = torch.arange(30) % 3
    splits = load_splits(ImageClassifier(lambda: (Brightened(IMAGES[:30], labels),) * 3, model), seed=0)
    assert torch.equal(splits.train.images(), IMAGES[:30] // 2)
    assert splits.train.labels.tolist() == labels.tolist()


def test_columns_in_another_order_are_other_outputs(tmp_path: Path) -> None:
    for number, image in enumerate(IMAGES[:40]):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    rows = [f"{number}.png,{number % 2},{1 - number % 2},0\n" for number in range(40)]
    (tmp_path / "labels.csv").write_text("image,a,b,never\n" + "".join(rows))
    for columns in (["a", "b"], ["b", "a"], ["a", "b", "never"]):
        splits = load_splits(ImageClassifier(Table(tmp_path / "labels.csv", label=columns), model), seed=0)
        assert splits.classes == tuple(columns)
        whole = sum(len(getattr(splits, part)) for part in ("train", "validation", "test"))
        of_a = sum(
            float(getattr(splits, part).labels[:, columns.index("a")].sum()) for part in ("train", "validation", "test")
        )
        assert (splits.train.labels.shape[1], whole, of_a) == (len(columns), 40, 20)


@pytest.mark.parametrize("task", TASKS)
def test_a_winner_of_folds_is_loaded_by_its_card_alone(task: str, tmp_path: Path) -> None:
    trial = replace(written(tmp_path, task), model="squeezenet1_1", validation=Folds(2))
    config = {"lr": 1e-3, "batch_size": 16, "image_size": 32}
    running = trainer_of(trial, config, epochs=1)
    running.run_epoch()
    running.save(tmp_path / "checkpoint")
    scored = score(trial, config, tmp_path / "checkpoint", split_seed=0)
    write_best(tmp_path / "best", trial, config, scored, {"trial": "0", "epoch": 1})
    loaded = load_model(tmp_path / "best")
    assert loaded.card.networks == 2
    test = load_splits(trial, seed=0, image_size=32).test
    assert dict(loaded.evaluate(test).values) == pytest.approx(dict(scored.test.values), rel=1e-5)


def written(folder: Path, task: str) -> ImageClassifier:
    """A trial on a table with such labels, a group for each two images, and weights."""
    rows = ["image,label,group,weight"]
    for number, (image, label) in enumerate(zip(IMAGES, LABELS[task].tolist(), strict=True)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
        said = ";".join(name for name, one in zip("abc", label, strict=True) if one) if task == "several" else label
        rows.append(f"{number}.png,{said},{number // 2},{1 + number % 2}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return ImageClassifier(Table(folder / "labels.csv"), model, weights=None)


@pytest.mark.parametrize("validation", [0.2, Folds(3)])
@pytest.mark.parametrize("task", TASKS)
def test_a_winner_answers_as_it_was_scored(task: str, validation: Any, tmp_path: Path) -> None:
    trial = replace(written(tmp_path, task), validation=validation)
    config = CONFIG | {"outputs": TASKS[task], "image_size": 12}
    assert trial.label_task.name == task
    running = trainer_of(trial, config, epochs=2)
    while not running.finished:
        running.run_epoch()
    running.save(tmp_path / "checkpoint")
    scored = score(trial, config, tmp_path / "checkpoint", split_seed=0)
    write_best(tmp_path / "best", trial, config, scored, {"trial": "0", "epoch": 2})
    loaded = load_model(tmp_path / "best", trial=trial)
    test = load_splits(trial, seed=0, image_size=12)
    assert loaded.answers == scored.answers
    assert dict(loaded.evaluate(test.test).values) == pytest.approx(dict(scored.test.values), rel=1e-5)
    told = loaded.predict([tmp_path / name for name in test.files("test")])
    answers = np.array([list(loaded.probabilities(test.test.images())[i]) for i in range(len(told))])
    for one, values in zip(told, answers, strict=True):
        assert one == loaded.prediction(one.path, values.tolist())
    facts = loaded.answers.targets.facts()
    if task == "several":
        assert facts["thresholds"].keys() == {"a", "b", "c"}
        assert loaded.classes == ("a", "b", "c")
    else:
        interval = {"low", "high"} if scored.images["validation"] >= FEWEST else set()
        assert facts.keys() == {"mean", "deviation", *interval}
        assert loaded.classes == ("label",)
