"""Compares a refitted network with the one that the search trained, on the same test images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tuner.inspection.scoring import trained_module, trial_splits
from tuner.train.data import Splits
from tuner.train.evaluation import Evaluator, metrics_of
from tuner.trial import ImageClassifier


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
