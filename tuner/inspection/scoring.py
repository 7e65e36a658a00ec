"""The winner on the test split, once: its metrics, the task's own results, worst mistakes, least sure answers.

A refitted winner is compared with the network that the search trained, on the same images.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from tuner.inspection.intervals import Interval, intervals
from tuner.inspection.saliency import has_maps, overlay, saliency
from tuner.inspection.tasks import Answers, answers_of
from tuner.train.cross_validation import whole_model
from tuner.train.data import Normalisation, Splits, load_splits
from tuner.train.evaluation import Evaluator
from tuner.train.models import empty_model, load_state, networks_of
from tuner.train.tasks import Metrics
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing, Interpolation
from tuner.trial.pixels import DeepScale

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
    """A test image, and what the model predicted.

    Attributes:
        index: position in the test split
        label: its class; or its labels, or its number
        predicted: the predicted class, or labels, or number
        image: PNG in base64, at the model's size
        confidence: the model's probability for the class, 0 to 1; None for other tasks
        saliency: the image with the positions that led to the prediction; None if the model doesn't have such maps
        file: the image's, as messages name it; None if it isn't a file
    """

    index: int
    label: str
    predicted: str
    image: str
    confidence: float | None = None
    saliency: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Score:
    """The results of a trained model.

    Attributes:
        test: the task's metrics and the chosen ones on the test split
        intervals: 95 % intervals of these, by name
        answers: what outputs mean, with what was learnt from validation images
        files: the task's own results on the test split, by the names of their files in `best/`
        mistakes: at most 16, the worst first
        least_sure: at most 16 answers, right or wrong, the least sure first; None if answers have no confidence
        inputs: what the model was fed
        images: in the splits "train", "validation" and "test"
    """

    test: Metrics
    intervals: dict[str, Interval]
    answers: Answers[Any]
    files: dict[str, Any]
    mistakes: tuple[Mistake, ...]
    least_sure: tuple[Mistake, ...] | None
    inputs: Inputs
    images: dict[str, int]


def score(
    trial: ImageClassifier,
    config: dict[str, Any],
    checkpoint: Path,
    *,
    split_seed: int,
    device: torch.device | str = "cpu",
    learnt: Mapping[str, Any] | None = None,
) -> Score:
    """Score a trial's checkpoint on the test split.

    Args:
        trial: data and model
        config: the trial's hyperparameters
        checkpoint: folder that `Trainer.save` wrote
        split_seed: of the study
        device: where to compute
        learnt: what another network's answers to validation images taught, for one that was trained on these

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
    validated = validated_outputs(trial, config, module, splits, evaluator, split_seed)
    answers = answers_of(splits.targets)
    learnt = answers.learn(validated) if validated else learnt or {}
    answers = answers_of(splits.targets.with_facts(learnt))
    labels = splits.test.labels
    shown = ShownImages(splits, logits, answers, _where_it_looked(trial, module, splits, torch.device(device)))
    unsure = answers.least_sure(logits)
    return Score(
        test=answers.targets.metrics(logits, labels, trial.chosen_metrics),
        intervals=intervals(answers.targets, logits, labels, trial.chosen_metrics),
        answers=answers,
        files=answers.files(logits, labels, validated),
        mistakes=shown.of(answers.worst(logits, labels)),
        least_sure=None if unsure is None else shown.of(unsure),
        inputs=_inputs(splits),
        images={"train": len(splits.train), "validation": len(splits.validation), "test": len(splits.test)},
    )


def validated_outputs(
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
    classes, task = len(splits.classes), splits.task
    module = empty_model(trial, channels=splits.channels, classes=classes, config=chosen, task=task)
    state = whole_model(checkpoint, trial, config, channels=splits.channels, classes=classes)
    load_state(module, state, source=str(checkpoint), name=trial.model_name)
    return module


@dataclass(frozen=True)
class ShownImages:
    """Makes the shown test images, with predictions from outputs [N, L], and where the model looked."""

    splits: Splits
    outputs: Tensor
    answers: Answers[Any]
    look: Look = lambda images, answers: None

    def of(self, chosen: Tensor) -> tuple[Mistake, ...]:
        """The images at some indices [B]."""
        if not len(chosen):
            return ()
        images, outputs = self.splits.test.images(chosen), self.outputs[chosen]
        maps = self.look(images, outputs.argmax(1))
        told = self.answers.shown(outputs, self.splits.test.labels[chosen])
        files = self.splits.test_files
        return tuple(
            Mistake(
                index=index,
                image=png_base64(images[place]),
                saliency=None if maps is None else png_base64(overlay(images[place], maps[place])),
                file=files[index] if files else None,
                **told[place],
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
) -> dict[str, Any]:
    """Test metrics of the winner's own network, and what the refitted one gains on them.

    Args:
        trial: data and model as the study declares them
        config: the winner's hyperparameters
        refitted: checkpoint of the network that was trained on training and validation images together
        own: checkpoint of the winner
        split_seed: of the study
        device: where to compute

    Returns:
        "test_loss" and so on of the winner's own network; "gain", by how much better answers are on average with the
        refitted one, see `Targets.goodness`; "error", the standard error of that over the test images, paired;
        "validation_images", on how many the winner was validated; "learnt", what its answers to these taught.
    """
    trial = trial.of(config)
    splits = trial_splits(trial, config, split_seed=split_seed)
    module, evaluator = trained_module(trial, config, splits, own).to(device), Evaluator(device)
    outputs = evaluator.logits(module, splits.test, splits.normalisation).cpu()
    validated = validated_outputs(trial, config, module, splits, evaluator, split_seed)
    learnt = answers_of(splits.targets).learn(validated) if validated else {}
    again = trial_splits(trial.refitted(), config, split_seed=split_seed)
    refit = trained_module(trial.refitted(), config, again, refitted).to(device)
    of_refit = evaluator.logits(refit, again.test, again.normalisation).cpu()
    targets, labels = splits.targets.with_facts(learnt), splits.test.labels
    better = again.targets.with_facts(learnt).goodness(of_refit, labels)
    gain, error = paired_gain(targets.goodness(outputs, labels), better)
    told: dict[str, Any] = targets.metrics(outputs, labels, trial.chosen_metrics).by_name("test")
    paired = {"metric": targets.task.paired, "gain": gain, "error": error}
    return {**told, **paired, "validation_images": len(splits.validation), "learnt": learnt}


def paired_gain(before: Tensor, after: Tensor) -> tuple[float, float]:
    """Mean of after - before and its standard error; both [N] float64 say how good answers are."""
    difference = after - before
    return float(difference.mean()), float(difference.std(unbiased=False)) / len(difference) ** 0.5
