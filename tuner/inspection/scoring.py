"""The winner on the test split, once: accuracy, confusions, calibration, surest mistakes, least sure answers.

A refitted winner is compared with the network that the search trained, on the same images.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from tuner.inspection.calibration import Calibration, calibration
from tuner.inspection.intervals import Interval, intervals
from tuner.inspection.saliency import has_maps, overlay, saliency
from tuner.train.checkpoint import read_model
from tuner.train.data import Normalisation, Split, Splits, load_splits
from tuner.train.evaluation import Evaluator, Metrics, metrics_of
from tuner.train.models import empty_model, load_state, networks_of
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing, Interpolation
from tuner.trial.pixels import DeepScale

SHOWN = 16

Look = Callable[[Tensor, Tensor], Tensor | None]  # images [N, C, H, W] and answers [N] to maps [N, H, W]


@dataclass(frozen=True)
class Inputs:
    """What a model takes.

    Attributes:
        channels: 1 for grey images, 3 for RGB
        image_size: edge in pixels
        normalisation: of the weights, or of the training images
        resize: length of the shorter side before the centre is cut out; None: the whole square is resized
        interpolation: how
        scale: of deep images in files; None if an earlier version trained it, which guessed it for each file
        squash, pillow: see `Framing`
    """

    channels: int
    image_size: int
    normalisation: Normalisation
    resize: int | None = None
    interpolation: Interpolation = "bilinear"
    scale: DeepScale | None = None
    squash: bool = False
    pillow: bool = False

    @property
    def framing(self) -> Framing:
        """How an image is brought to the model's size."""
        return Framing(self.image_size, self.resize, self.interpolation, self.squash, self.pillow)


@dataclass(frozen=True)
class Mistake:
    """A test image, and the class that the model predicted.

    Attributes:
        index: position in the test split
        label: its class
        predicted: the predicted class
        confidence: the model's probability for that, 0 to 1
        image: PNG in base64, at the model's size
        saliency: the image with the positions that led to the prediction; None if the model doesn't have such maps
        file: the image's, as messages name it; None if it isn't a file
    """

    index: int
    label: str
    predicted: str
    confidence: float
    image: str
    saliency: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Score:
    """The results of a trained model.

    Attributes:
        test: loss, accuracy, top-5 accuracy, macro F1 and the chosen metrics on the test split
        intervals: 95 % intervals of these, by name
        val_accuracy: share of correct answers on the validation split; None if all its images were trained on
        confusion: counts of the test split, a row per true class, a column per predicted one
        classes: names of rows and columns
        mistakes: at most 16, the surest first
        least_sure: at most 16 answers, right or wrong, the least sure first
        calibration: its confidence and accuracy
        inputs: what the model was fed
        images: in the splits "train", "validation" and "test"
    """

    test: Metrics
    intervals: dict[str, Interval]
    val_accuracy: float | None
    confusion: list[list[int]]
    classes: tuple[str, ...]
    mistakes: tuple[Mistake, ...]
    least_sure: tuple[Mistake, ...]
    calibration: Calibration
    inputs: Inputs
    images: dict[str, int]


def score(
    trial: ImageClassifier,
    config: dict[str, Any],
    checkpoint: Path,
    *,
    split_seed: int,
    device: torch.device | str = "cpu",
) -> Score:
    """Score a trial's checkpoint on the test split.

    Args:
        trial: data and model
        config: the trial's hyperparameters
        checkpoint: folder that `Trainer.save` wrote
        split_seed: of the study
        device: where to compute

    Raises:
        TrialError: the checkpoint is cut off or damaged.
        WeightsError: it is of another model.
        DataError: the data is missing or damaged.
    """
    trial = trial.of(config)
    splits = trial_splits(trial, config, split_seed=split_seed)
    module = trained_module(trial, config, splits, checkpoint).to(device)
    evaluator = Evaluator(device)
    logits = evaluator.logits(module, splits.test, splits.normalisation).cpu()
    validated = _validation(trial, config, module, splits, evaluator, split_seed)
    asked = splits.test.labels, trial.chosen_metrics, splits.classes
    shown = ShownImages(splits, logits, _where_it_looked(trial, module, splits, torch.device(device)))
    return Score(
        test=metrics_of(logits, *asked),
        intervals=intervals(logits, *asked),
        val_accuracy=metrics_of(*validated).accuracy if validated else None,
        confusion=confusion_matrix(splits.test.labels, logits.argmax(1), len(splits.classes)),
        classes=splits.classes,
        mistakes=shown.of(confident_mistakes(splits.test, logits)),
        least_sure=shown.of(least_sure(logits)),
        calibration=calibration(logits, splits.test.labels, validated),
        inputs=_inputs(splits),
        images={"train": len(splits.train), "validation": len(splits.validation), "test": len(splits.test)},
    )


def _validation(
    trial: ImageClassifier, config: dict[str, Any], module: nn.Module, splits: Splits, evaluator: Evaluator, seed: int
) -> tuple[Tensor, Tensor] | None:
    """Logits [N, classes] for the validation images, and labels [N], on the CPU; None if there are none.

    In a cross-validation each part's logits are those of the network that wasn't trained on it.
    """
    if not len(splits.validation):
        return None
    if not trial.folds:
        return evaluator.logits(module, splits.validation, splits.normalisation).cpu(), splits.validation.labels
    parts = [trial_splits(trial.fold(part), config, split_seed=seed).validation for part in range(trial.folds)]
    answered = zip(networks_of(module), parts, strict=True)
    logits = [evaluator.logits(network, part, splits.normalisation).cpu() for network, part in answered]
    return torch.cat(logits), torch.cat([part.labels for part in parts])


def trial_splits(trial: ImageClassifier, config: dict[str, Any], *, split_seed: int) -> Splits:
    """The data as the trial with this configuration saw it."""
    return load_splits(trial.of(config), seed=split_seed, image_size=trial.asked_size(config))


def _inputs(splits: Splits) -> Inputs:
    framing = splits.framing or Framing(splits.image_size)
    return Inputs(
        *(splits.channels, splits.image_size, splits.normalisation),
        *(framing.resize, framing.interpolation, splits.scale),
        squash=framing.squash,
        pillow=framing.pillow,
    )


def trained_module(trial: ImageClassifier, config: dict[str, Any], splits: Splits, checkpoint: Path) -> nn.Module:
    """The trial's model from the checkpoint, on the CPU; of a cross-validation all networks as one."""
    trial, chosen = trial.of(config), trial.hyperparameters(config)
    module = empty_model(trial, channels=splits.channels, classes=len(splits.classes), config=chosen)
    load_state(module, read_model(checkpoint), source=str(checkpoint), name=trial.model_name)
    return module


def confusion_matrix(labels: Tensor, predicted: Tensor, classes: int) -> list[list[int]]:
    """How often each class [row] was predicted as each class [column], from labels and predictions [N] int64."""
    counts = torch.bincount(labels * classes + predicted, minlength=classes * classes)
    rows: list[list[int]] = counts.view(classes, classes).tolist()
    return rows


def confident_mistakes(split: Split, logits: Tensor) -> Tensor:
    """Indices of the most confident wrong answers, from logits [N, classes]: at most 16, ties in order."""
    confidence, predicted = logits.softmax(1).max(1)
    wrong = (predicted != split.labels).nonzero().flatten()
    return wrong[confidence[wrong].argsort(descending=True, stable=True)][:SHOWN]


def least_sure(logits: Tensor) -> Tensor:
    """Indices of the least confident answers, from logits [N, classes]: at most 16, ties in order."""
    return logits.softmax(1).amax(1).argsort(stable=True)[:SHOWN]


@dataclass(frozen=True)
class ShownImages:
    """Makes the shown test images, with predictions from logits [N, classes], and where the model looked."""

    splits: Splits
    logits: Tensor
    look: Look = lambda images, answers: None

    def of(self, chosen: Tensor) -> tuple[Mistake, ...]:
        """The images at some indices [B]."""
        if not len(chosen):
            return ()
        confidence, answers = self.logits[chosen].softmax(1).max(1)
        images, classes = self.splits.test.images(chosen), self.splits.classes
        maps = self.look(images, answers)
        labels, files = self.splits.test.labels[chosen].tolist(), self.splits.test_files
        return tuple(
            Mistake(
                index=index,
                label=classes[labels[place]],
                predicted=classes[int(answers[place])],
                confidence=float(confidence[place]),
                image=png_base64(images[place]),
                saliency=None if maps is None else png_base64(overlay(images[place], maps[place])),
                file=files[index] if files else None,
            )
            for place, index in enumerate(chosen.tolist())
        )


def _where_it_looked(trial: ImageClassifier, module: nn.Module, splits: Splits, device: torch.device) -> Look:
    """Grad-CAM for a library's convolutional networks; not for a user's function, whose network is unknown."""
    if not isinstance(trial.model, str) or not has_maps(trial.model_facts):
        return lambda images, answers: None
    return lambda images, answers: _mean_map(
        [saliency(network, images, answers, splits.normalisation, device) for network in networks_of(module)]
    )


def _mean_map(maps: Sequence[Tensor | None]) -> Tensor | None:
    """The mean map of all networks; None if one has none."""
    found = [one for one in maps if one is not None]
    return torch.stack(found).mean(0) if len(found) == len(maps) else None


def png_base64(image: Tensor) -> str:
    """An image [1 or 3, H, W], uint8 or of floats from 0 to 1, as PNG in base64."""
    if image.dtype != torch.uint8:
        image = image.mul(255).round().clamp(0, 255).to(torch.uint8)
    pixels = image[0] if image.shape[0] == 1 else image[:3].permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels.contiguous().numpy()).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def beside_own(
    trial: ImageClassifier,
    config: dict[str, Any],
    *,
    refitted: Path,
    own: Path,
    split_seed: int,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Test metrics of the winner's own network, and what the refitted one gains on them.

    Args:
        trial: data and model as the study declares them
        config: the winner's hyperparameters
        refitted: checkpoint of the network that was trained on training and validation images together
        own: checkpoint of the winner
        split_seed: of the study
        device: where to compute

    Returns:
        "test_loss", "test_accuracy" and so on of the winner's own network; "gain", by how much the share of right
        answers is higher with the refitted one; "error", the standard error of that over the test images, paired;
        "validation_images", on how many the winner was validated.
    """
    answers, splits = _answers(trial, config, own, split_seed, device)
    again, _ = _answers(trial.refitted(), config, refitted, split_seed, device)
    labels = splits.test.labels
    gain, error = paired_gain(answers.argmax(1) == labels, again.argmax(1) == labels)
    told = metrics_of(answers, labels, trial.chosen_metrics, splits.classes).by_name("test")
    return {**told, "gain": gain, "error": error, "validation_images": len(splits.validation)}


def paired_gain(before: Tensor, after: Tensor) -> tuple[float, float]:
    """Mean of after - before and its standard error; both [N] bool say which answers were right."""
    difference = after.double() - before.double()
    return float(difference.mean()), float(difference.std(unbiased=False)) / len(difference) ** 0.5


def _answers(
    trial: ImageClassifier, config: dict[str, Any], checkpoint: Path, seed: int, device: torch.device | str
) -> tuple[Tensor, Splits]:
    """Logits [N, classes] for the test images, on the CPU, and the data."""
    splits = trial_splits(trial, config, split_seed=seed)
    module = trained_module(trial, config, splits, checkpoint).to(device)
    return Evaluator(device).logits(module, splits.test, splits.normalisation).cpu(), splits
