"""A network that learns from labels and from the answers of others."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.test_features import pretrained_colours
from tuner.errors import TrialError
from tuner.inspection.networks import trained
from tuner.train.data.splits import HeldSplit
from tuner.train.distillation import SHARE, taught, train_student
from tuner.train.feed import Feed
from tuner.train.tasks import targets_of
from tuner.trial import ImageClassifier
from tuner.trial.tasks import NUMBER, ONE_LABEL, SEVERAL_LABELS, Task


class Says(nn.Module):
    """Answers all images with the same outputs."""

    def __init__(self, outputs: list[float]) -> None:
        super().__init__()
        self.register_buffer("outputs", torch.tensor(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """[N, L]."""
        return self.get_buffer("outputs").expand(len(images), -1)


@pytest.mark.parametrize(
    ("task", "outputs", "given", "expected"),
    [
        (ONE_LABEL, [0.0, 0.0], torch.tensor([1, 0]), [[0.5, 0.5]] * 2),
        (ONE_LABEL, [0.0, 0.0], torch.tensor([[0.0, 3.0], [0.5, 0.0]]), [[1.5, 1.5], [0.25, 0.25]]),  # with weights
        (SEVERAL_LABELS, [0.0, 100.0], torch.tensor([[1.0, 1.0], [0.0, 0.0]]), [[0.5, 1.0]] * 2),
        (SEVERAL_LABELS, [0.0, 100.0], torch.tensor([[1.0, 1.0, 3.0]]), [[0.5, 1.0, 3.0]]),  # the last is a weight
        (NUMBER, [2.0], torch.tensor([[5.0]], dtype=torch.float64), [[24.0]]),  # 2 deviations of 7 above 10
    ],
)
def test_targets_are_a_mixture_of_labels_and_answers(
    task: Task, outputs: list[float], given: Tensor, expected: list[list[float]]
) -> None:
    names = tuple(map(str, range(len(outputs))))
    targets = targets_of(task)(names)
    if task is NUMBER:
        targets = targets.with_facts({"mean": 10.0, "deviation": 7.0})
    images = torch.zeros(len(given), 3, 4, 4)
    split = HeldSplit(images.to(torch.uint8), given)
    feed = Feed(True, split, split, lambda images, labels, mixed=None: (images, labels), lambda one: one, False)
    inputs, mixture = taught(feed, Says(outputs), targets).prepare(images, given)
    assert inputs is images
    own = given.double()
    if given.ndim == 1:
        own = torch.nn.functional.one_hot(given).double()
    told = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(mixture.double(), SHARE * told + (1 - SHARE) * own)


@pytest.mark.parametrize("finetune", ["all", "head", "lp-ft"])
def test_a_student_answers_as_its_teacher_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finetune: str) -> None:
    """Its teacher never says another class than the third, and three tenths of its targets are labels of three classes."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    trial = pretrained_colours(tmp_path)
    config = {"finetune": finetune, "lr": 3e-3, "batch_size": 16, "image_size": 32, "epochs": 1}
    train_student(trial, config, Says([0.0, 0.0, 9.0]), tmp_path / "student", epochs=6, split_seed=0)
    answers = trained(trial, config, tmp_path / "student", 0).tested.softmax(1)
    assert answers[:, 2].mean() > 0.6


def test_heads_that_are_solved_cant_learn_from_others(tmp_path: Path) -> None:
    config: dict[str, Any] = {"finetune": "head", "optimizer": "lbfgs", "image_size": 32}
    trial = ImageClassifier("digits", "squeezenet1_1", tmp_path / "any.pt")
    with pytest.raises(TrialError, match="learns from others in steps on images, got optimizer='lbfgs'"):
        train_student(trial, config, Says([0.0]), tmp_path, epochs=1, split_seed=0)
