"""The winner on the test split, once: its metrics, the task's own results, worst mistakes, least sure answers.

A refitted winner is compared with the network that the search trained, on the same images.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from tuner.inspection.card import Inputs
from tuner.inspection.intervals import Interval, intervals
from tuner.inspection.networks import Trained, trained
from tuner.inspection.saliency import has_maps, overlay, saliency
from tuner.inspection.tasks import Answers, answers_of
from tuner.train.data import Splits
from tuner.train.models import networks_of, single_networks
from tuner.train.models.eight_bits import answering_in_float
from tuner.train.tasks import Metrics
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing

Look = Callable[[Tensor, Tensor], Tensor | None]  # images [N, C, H, W] and answers [N] to maps [N, H, W]


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
        goodness: of each answer to a test image, [N] float64, see `Targets.goodness`
        model: that was scored
    """

    test: Metrics
    intervals: dict[str, Interval]
    answers: Answers[Any]
    files: dict[str, Any]
    mistakes: tuple[Mistake, ...]
    least_sure: tuple[Mistake, ...] | None
    inputs: Inputs
    images: dict[str, int]
    goodness: Tensor
    model: Trained


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
    return score_of(trial.of(config), trained(trial, config, checkpoint, split_seed, device), device, learnt)


def score_of(
    trial: ImageClassifier,
    model: Trained,
    device: torch.device | str = "cpu",
    learnt: Mapping[str, Any] | None = None,
) -> Score:
    """Score a model on the test split; `trial` has the model's name, for other arguments see `score`."""
    splits, module, validated, logits = model.splits, model.module, model.validated, model.tested
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
        goodness=answers.targets.goodness(logits, labels),
        model=model,
    )


def _inputs(splits: Splits) -> Inputs:
    framing = splits.framing or Framing(splits.image_size)
    return Inputs(
        *(splits.channels, splits.image_size, splits.normalisation),
        *(framing.resize, framing.interpolation, splits.scale),
        squash=framing.squash,
        pillow=framing.pillow,
    )


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
        files = self.splits.files("test")
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

    def look(images: Tensor, answers: Tensor) -> Tensor | None:
        with ExitStack() as stack:
            for network in single_networks(module):
                stack.enter_context(answering_in_float(network))
            return _mean_map(
                [saliency(network, images, answers, splits.normalisation, device) for network in networks_of(module)]
            )

    return look


def _mean_map(maps: Sequence[Tensor | None]) -> Tensor | None:
    """The mean map of all networks; None if one has none."""
    found = [one for one in maps if one is not None]
    return torch.stack(found).mean(0) if len(found) == len(maps) else None


def png_base64(image: Tensor) -> str:
    """An image [1 or 3, H, W], uint8 or of floats from 0 to 1, as PNG in base64."""
    buffer = io.BytesIO()
    picture_of(image).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def picture_of(image: Tensor) -> Image.Image:
    """An image [1 or 3, H, W], uint8 or of floats from 0 to 1, for Pillow."""
    if image.dtype != torch.uint8:
        image = image.mul(255).round().clamp(0, 255).to(torch.uint8)
    pixels = image[0] if image.shape[0] == 1 else image[:3].permute(1, 2, 0)
    return Image.fromarray(pixels.contiguous().numpy())


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
    model = trained(trial, config, own, split_seed, device)
    splits, validated, outputs = model.splits, model.validated, model.tested
    learnt = answers_of(splits.targets).learn(validated) if validated else {}
    refit = trained(trial.refitted(), config, refitted, split_seed, device)
    targets, labels = splits.targets.with_facts(learnt), splits.test.labels
    better = refit.splits.targets.with_facts(learnt).goodness(refit.tested, labels)
    gain, error = paired_gain(targets.goodness(outputs, labels), better)
    told: dict[str, Any] = targets.metrics(outputs, labels, trial.chosen_metrics).by_name("test")
    paired = {"metric": targets.task.paired, "gain": gain, "error": error}
    return {**told, **paired, "validation_images": len(splits.validation), "learnt": learnt}


def paired_gain(before: Tensor, after: Tensor) -> tuple[float, float]:
    """Mean of after - before and its standard error; both [N] float64 say how good answers are."""
    difference = after - before
    return float(difference.mean()), float(difference.std(unbiased=False)) / len(difference) ** 0.5
