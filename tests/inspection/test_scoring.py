import base64
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tuner.errors import TrialError, WeightsError
from tuner.inspection import score
from tuner.inspection.scoring import ShownImages, png_base64
from tuner.inspection.tasks import answers_of
from tuner.inspection.tasks.one_label import ClassAnswers, confusion_matrix
from tuner.train import Trainer
from tuner.train.tasks.one_label import ClassTargets
from tuner.trial import ImageClassifier

TWO = ClassAnswers(ClassTargets(("a", "b")))
CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 16, "image_size": 12}


def decoded(image: str) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(base64.b64decode(image))))


def test_a_score_is_what_the_trainer_finds_on_the_same_splits(
    colours: ImageClassifier, trainer: Trainer, checkpoint: Path
) -> None:
    result = score(colours, CONFIG, checkpoint, split_seed=0)
    assert result.test == trainer.evaluate(trainer.splits.test)
    confusion, calibration = result.files["confusion_matrix.json"], result.files["calibration.json"]
    assert confusion["classes"] == ["blue", "green", "red"]
    assert [sum(row) for row in confusion["counts"]] == trainer.splits.test.labels.bincount().tolist()
    correct = sum(confusion["counts"][index][index] for index in range(3))
    assert correct / len(trainer.splits.test) == pytest.approx(result.test["accuracy"])
    assert len(result.mistakes) == len(trainer.splits.test) - correct
    assert sum(one["images"] for one in calibration["bins"]) == len(trainer.splits.test)
    assert calibration["accuracy"] == pytest.approx(result.test["accuracy"])
    assert len(result.least_sure) == min(16, len(trainer.splits.test))
    assert (result.inputs.channels, result.inputs.image_size) == (3, 12)


def test_a_damaged_checkpoint_and_one_of_another_model_are_refused(
    colours: ImageClassifier, checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrialError):
        score(colours, CONFIG, tmp_path, split_seed=0)
    with pytest.raises(WeightsError, match=r"^weights must fit shufflenet_v2_x0_5, got "):
        score(replace(colours, model="shufflenet_v2_x0_5"), CONFIG, checkpoint, split_seed=0)


def test_the_confusion_matrix_has_a_row_per_true_class() -> None:
    labels, predicted = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 1, 2, 0, 2])
    assert confusion_matrix(labels, predicted, 3) == [[1, 1, 0], [0, 0, 0], [1, 0, 2]]


def test_the_surest_mistakes_come_first_and_at_most_16() -> None:
    logits = torch.stack([torch.zeros(20), torch.arange(20.0) - 2], dim=1)  # from the fourth on wrong, and ever surer
    assert TWO.worst(logits, torch.zeros(20, dtype=torch.int64)).tolist() == list(range(19, 3, -1))


def test_the_least_sure_answers_come_first_and_at_most_16() -> None:
    logits = torch.stack([torch.zeros(20), 0.1 + torch.arange(20.0)], dim=1).flip(0)
    assert TWO.least_sure(logits).tolist() == list(range(19, 3, -1))


def test_shown_images_have_their_answers_and_a_map_where_there_is_one(trainer: Trainer) -> None:
    logits = torch.tensor([[0.0, 2.0, 0.0]]).repeat(len(trainer.splits.test), 1)
    shown = ShownImages(trainer.splits, logits, answers_of(trainer.splits.targets)).of(torch.tensor([2, 0]))
    assert [one.index for one in shown] == [2, 0]
    assert {one.predicted for one in shown} == {"green"}
    assert [one.label for one in shown] == [trainer.splits.classes[trainer.splits.test.labels[i]] for i in (2, 0)]
    assert shown[0].confidence == pytest.approx(np.exp(2) / (np.exp(2) + 2))
    assert (decoded(shown[0].image) == trainer.splits.test.images(torch.tensor([2]))[0].permute(1, 2, 0).numpy()).all()
    assert shown[0].saliency is None
    looked = ShownImages(
        trainer.splits,
        logits,
        answers_of(trainer.splits.targets),
        lambda images, answers: torch.ones(images.shape[0], 12, 12),
    )
    found = looked.of(torch.tensor([2]))[0].saliency
    assert found is not None
    assert decoded(found).shape == (12, 12, 3)
    assert looked.of(torch.tensor([], dtype=torch.int64)) == ()


def test_colour_images_keep_their_colours_as_png() -> None:
    image = torch.tensor([10, 20, 30], dtype=torch.uint8).view(3, 1, 1)
    assert decoded(png_base64(image)).tolist() == [[[10, 20, 30]]]
