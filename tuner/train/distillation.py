"""A student: a network that learns from labels and from the answers of others to the same augmented images.

After Hinton et al. (2015), "Distilling the Knowledge in a Neural Network". Teacher and student see the same augmented
image, and training is long, as in Beyer et al. (2022), "Knowledge distillation: A good teacher is patient and
consistent".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import TrialError
from tuner.train.capture import EAGER
from tuner.train.data.splits import one_hot
from tuner.train.feed import Examples, Feed
from tuner.train.optimisation.mixing import Numbers
from tuner.train.tasks import Targets
from tuner.train.trainer import Trainer
from tuner.trial import ImageClassifier
from tuner.trial.only_the_head import needing
from tuner.trial.tasks import ONE_LABEL

SHARE = 0.7  # of the teacher's answers in the targets


def train_student(
    trial: ImageClassifier,
    config: dict[str, Any],
    teacher: nn.Module,
    folder: Path,
    *,
    epochs: int,
    split_seed: int,
    device: torch.device | str = "cpu",
) -> None:
    """Train a network that learns from a teacher, and save its checkpoint.

    Args:
        trial: data, model and weights, without a cross-validation
        config: the student's hyperparameters
        teacher: from images as the student takes them, normalised, to outputs [N, L]; on the device
        folder: of the checkpoint
        epochs: length of the training
        split_seed: of the study
        device: where to compute

    Raises:
        TrialError: the configuration isn't trained in steps on images.
        TrialDiverged: the loss became NaN or infinite.
        TrialOutOfMemory: not even a single image fits in memory.
    """
    if (needs := needing(trial.of(config).hyperparameters(config))) is not None:
        raise TrialError(
            f"a network learns from others in steps on images, got {needs}, which solves heads on features"
        )
    own = {name: value for name, value in config.items() if name != "epochs"}
    trainer = Trainer(
        *(trial, own), epochs=epochs, seed=split_seed, split_seed=split_seed, device=device, step_path=EAGER
    )
    trainer.parts.feeds.change_images(lambda feed: taught(feed, teacher.eval(), trainer.splits.targets))
    try:
        while not trainer.finished:
            trainer.run_epoch()
        trainer.save(folder)
    finally:
        trainer.close()


def taught(feed: Feed, teacher: nn.Module, targets: Targets) -> Feed:
    """The feed with targets that are a mixture of the labels and of a teacher's answers to the prepared images."""

    def prepare(images: Tensor, labels: Tensor, mixed: Numbers | None = None) -> Examples:
        inputs, wanted = feed.prepare(images, labels, mixed)
        count = len(targets.names)
        if wanted.ndim == 1:
            wanted = one_hot(wanted, count)
        with torch.no_grad():
            told = targets.answers(teacher(inputs).float()).to(wanted)
        if targets.task is ONE_LABEL:
            told = told * wanted.sum(1, keepdim=True)  # the image's weight; the other tasks have it in a last column
        return inputs, torch.cat([torch.lerp(wanted[:, :count], told, SHARE), wanted[:, count:]], 1)

    return replace(feed, prepare=prepare)
