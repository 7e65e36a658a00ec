"""Images of the test split by which an export is checked and measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tuner.errors import StudyError
from tuner.inspection.best import LoadedModel
from tuner.inspection.card import TRAIN
from tuner.inspection.networks import trial_splits
from tuner.results.declaring import declared_study
from tuner.results.run import RecordedRun
from tuner.train.data import Split, Splits
from tuner.trial import ImageClassifier

CHECKED = 64
MEASURED = 512
VALIDATED = 1024  # images by which a loss of accuracy is measured
CALIBRATED = 128  # training images by which a network is quantised


@dataclass(frozen=True)
class Examples:
    """Images [N, C, H, W] uint8, at the size that the model takes.

    Attributes:
        images: spread over the test split; random ones if the data isn't here
        labels: as splits have them; None for random images
        counts: number of images by class for each split; empty if the data isn't here
        missing: why the data isn't here; None if it is
        files: of the test split, as far as images are files
        training: drawn at random from the training images
        validated: the split by which a loss of accuracy is measured, its images and labels; the test split if the
            model was trained on the validation images; None if no such loss is to be measured
    """

    images: np.ndarray
    labels: Tensor | None
    counts: dict[str, dict[str, int]]
    missing: str | None = None
    files: tuple[Path, ...] = ()
    training: np.ndarray | None = None
    validated: tuple[str, np.ndarray, Tensor] | None = None

    @property
    def checked(self) -> np.ndarray:
        """The 64 images on which answers are compared; if the test split has fewer, the last ones are random."""
        chosen = np.linspace(0, len(self.images) - 1, min(CHECKED, len(self.images))).astype(int)
        missing = CHECKED - len(chosen), *self.images.shape[1:]
        return np.concatenate([self.images[chosen], random_images(missing)])


def examples(run: RecordedRun, loaded: LoadedModel, *, trust: bool, loses: bool = False) -> Examples:
    """The run's own test images, or random ones where its study or its data can't be read any more.

    Those by which a loss of accuracy is measured, and a network quantised, are only read if `loses`.
    """
    try:
        splits, files = _splits(run, loaded, trust=trust)
    except (StudyError, OSError) as error:
        inputs = loaded.card.inputs
        shape = CHECKED, inputs.channels, inputs.image_size, inputs.image_size
        return Examples(random_images(shape), None, {}, missing=str(error))
    shown = Examples(*_spread(splits.test, MEASURED), _counts(splits, loaded), files=files)
    if not loses:
        return shown
    drawn = np.random.default_rng(run.info["seed"]).permutation(len(splits.train))[:CALIBRATED]
    held_out = loaded.card.networks == 1 and loaded.card.trained_on == TRAIN and len(splits.validation)
    name, split = ("validation", splits.validation) if held_out else ("test", splits.test)
    training = _levels(splits.train.images(torch.from_numpy(drawn)))
    return replace(shown, training=training, validated=(name, *_spread(split, VALIDATED)))


def _spread(split: Split, most: int) -> tuple[np.ndarray, Tensor]:
    """Images spread over a split, with their labels."""
    chosen = torch.linspace(0, len(split) - 1, min(most, len(split))).long()
    return _levels(split.images(chosen)), split.labels[chosen]


def _levels(images: Tensor) -> np.ndarray:
    if images.dtype != torch.uint8:
        images = images.mul(255).round().clamp(0, 255).to(torch.uint8)
    return images.numpy()


def random_images(shape: tuple[int, ...]) -> np.ndarray:
    """Images [N, C, H, W] uint8, the same ones at each call."""
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _splits(run: RecordedRun, loaded: LoadedModel, *, trust: bool) -> tuple[Splits, tuple[Path, ...]]:
    """The data as the model takes it, and the files of its test images."""
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
    trial = trial.refitted() if run.refit else replace(trial)
    size = loaded.card.inputs.image_size
    givers = [part.trials[0] for part in loaded.card.parts if part.image_size == size] or [best.trial]
    config = run.record.trials[givers[0] or best.trial].config
    splits, source = trial_splits(trial, config, split_seed=study.seed), trial.image_files
    files = [] if source is None else [source.path / name for name in splits.files("test")]
    return splits, tuple(file for file in files if file.is_file())


def _counts(splits: Splits, loaded: LoadedModel) -> dict[str, dict[str, int]]:
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {part: loaded.answers.counts(split.labels) for part, split in parts.items()}
