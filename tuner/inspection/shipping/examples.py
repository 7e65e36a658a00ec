"""Images of the test split by which an export is checked and measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tuner.errors import StudyError
from tuner.history.refits import shipped_refit
from tuner.inspection.best import LoadedModel
from tuner.inspection.networks import trial_splits
from tuner.results.declaring import declared_study
from tuner.results.run import RecordedRun
from tuner.train.data import Splits
from tuner.trial import ImageClassifier

CHECKED = 64
MEASURED = 512


@dataclass(frozen=True)
class Examples:
    """Images [N, C, H, W] uint8, at the size that the model takes.

    Attributes:
        images: spread over the test split; random ones if the data isn't here
        labels: as splits have them; None for random images
        counts: number of images by class for each split; empty if the data isn't here
        missing: why the data isn't here; None if it is
    """

    images: np.ndarray
    labels: Tensor | None
    counts: dict[str, dict[str, int]]
    missing: str | None = None

    @property
    def checked(self) -> np.ndarray:
        """The 64 images on which answers are compared; if the test split has fewer, the last ones are random."""
        chosen = np.linspace(0, len(self.images) - 1, min(CHECKED, len(self.images))).astype(int)
        missing = CHECKED - len(chosen), *self.images.shape[1:]
        return np.concatenate([self.images[chosen], random_images(missing)])


def examples(run: RecordedRun, loaded: LoadedModel, *, trust: bool) -> Examples:
    """The run's own test images, or random ones where its study or its data can't be read any more."""
    try:
        splits = _splits(run, trust=trust)
    except (StudyError, OSError) as error:
        inputs = loaded.card.inputs
        shape = CHECKED, inputs.channels, inputs.image_size, inputs.image_size
        return Examples(random_images(shape), None, {}, missing=str(error))
    chosen = torch.linspace(0, len(splits.test) - 1, min(MEASURED, len(splits.test))).long()
    images = splits.test.images(chosen)
    if images.dtype != torch.uint8:
        images = images.mul(255).round().clamp(0, 255).to(torch.uint8)
    return Examples(images.numpy(), splits.test.labels[chosen], _counts(splits, loaded))


def random_images(shape: tuple[int, ...]) -> np.ndarray:
    """Images [N, C, H, W] uint8, the same ones at each call."""
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _splits(run: RecordedRun, *, trust: bool) -> Splits:
    best = run.best
    if best is None or run.info["study_file"] is None:
        raise StudyError("the run was started from Python, so that its data is known to that program alone")
    study = declared_study(run, trust=trust)
    study = study.with_options(**run.info["options"])
    trial = study.declared_trial.resolved(Path(run.info["working_directory"]))
    if not isinstance(trial, ImageClassifier):
        raise StudyError(f"an export needs an ImageClassifier, got {trial.described}")
    if missing := trial.source.missing(trial.data_folder):
        raise StudyError(f"the data isn't here: {missing[0]}")
    trial = trial.refitted() if shipped_refit(run.record) else replace(trial)
    return trial_splits(trial, best.config, split_seed=study.seed)


def _counts(splits: Splits, loaded: LoadedModel) -> dict[str, dict[str, int]]:
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {part: loaded.answers.counts(split.labels) for part, split in parts.items()}
