"""The folder `best/`: the winner with all that it takes to use it, and the way back from it to a model."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuner.errors import RunFolderError
from tuner.inspection.scoring import Inputs, Score
from tuner.results.run import BEST, Run, load_run
from tuner.train.checkpoint import MODEL, read_model
from tuner.train.data import Normalisation, Split
from tuner.train.data.images import read_image, resize
from tuner.train.evaluation import evaluate
from tuner.train.evaluation import predict as predict_logits
from tuner.train.models import empty_network, load_state, read_state
from tuner.trial import ImageClassifier

TOP = 5
FILES_PER_BATCH = 256


@dataclass(frozen=True)
class ModelCard:
    """What `model.safetensors` doesn't say of itself: `model.json`.

    Attributes:
        model: torchvision's name
        data: what it was trained on, as the study file has it
        weights: what it started from, as the study file has it
        classes: names, in the order of its outputs
        inputs: what it takes
    """

    model: str
    data: str
    weights: str
    classes: tuple[str, ...]
    inputs: Inputs

    @classmethod
    def from_dict(cls, card: Mapping[str, Any]) -> ModelCard:
        """The card that `dataclasses.asdict` and JSON made plain."""
        inputs = card["inputs"]
        normalisation = Normalisation(tuple(inputs["normalisation"]["mean"]), tuple(inputs["normalisation"]["sd"]))
        return cls(
            model=card["model"],
            data=card["data"],
            weights=card["weights"],
            classes=tuple(card["classes"]),
            inputs=Inputs(inputs["channels"], inputs["image_size"], normalisation),
        )


@dataclass(frozen=True)
class Prediction:
    """A model's answer to an image file: the likeliest class, and the five likeliest with their probabilities."""

    path: Path
    label: str
    confidence: float
    top5: tuple[tuple[str, float], ...]

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"image": str(self.path), "label": self.label, "confidence": self.confidence, "top5": dict(self.top5)}


@dataclass(frozen=True)
class LoadedModel:
    """A trained classifier, ready to use: `module` takes normalised images, the methods take them as they are."""

    module: nn.Module
    card: ModelCard
    device: torch.device

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the outputs."""
        return self.card.classes

    def predict(self, images: Iterable[str | Path]) -> list[Prediction]:
        """Classify image files of any size and mode, in their order.

        Raises:
            DataError: a file is missing or no image.
        """
        paths = [Path(image) for image in images]
        batches = [paths[start : start + FILES_PER_BATCH] for start in range(0, len(paths), FILES_PER_BATCH)]
        return [prediction for batch in batches for prediction in self._predict_batch(batch)]

    def evaluate(self, split: Split) -> tuple[float, float]:
        """Mean cross-entropy and accuracy on a split, which is resized if need be."""
        return evaluate(
            self.module, split.resized(self.card.inputs.image_size), self.card.inputs.normalisation, self.device
        )

    def _predict_batch(self, paths: Sequence[Path]) -> list[Prediction]:
        sized = [
            resize(read_image(path, self.card.inputs.channels)[None], self.card.inputs.image_size) for path in paths
        ]
        logits = predict_logits(self.module, torch.cat(sized), self.card.inputs.normalisation, self.device)
        values, order = logits.softmax(1).cpu().topk(min(TOP, len(self.classes)), dim=1)
        return [
            self._prediction(path, row_values, row_order)
            for path, row_values, row_order in zip(paths, values.tolist(), order.tolist(), strict=True)
        ]

    def _prediction(self, path: Path, values: list[float], order: list[int]) -> Prediction:
        top = tuple((self.classes[index], value) for index, value in zip(order, values, strict=True))
        return Prediction(path, label=top[0][0], confidence=top[0][1], top5=top)


def write_best(
    folder: Path,
    trial: ImageClassifier,
    config: dict[str, Any],
    checkpoint: Path,
    score: Score,
    record: Mapping[str, Any],
) -> None:
    """Write `best/`, whole or not at all; an older one is replaced.

    Args:
        folder: the run's `best`
        trial: data and model
        config: the winner's hyperparameters
        checkpoint: folder that `Trainer.save` wrote
        score: of that checkpoint
        record: becomes metrics.json; the test split's are added to the winner's under "metrics"

    Raises:
        TrialError: the checkpoint is cut off or damaged.
    """
    read_model(checkpoint)
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    shutil.copyfile(checkpoint / MODEL, beside / MODEL)
    for name, content in _contents(trial, config, score, record).items():
        (beside / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)


def load_winner(run: Run | str | Path, device: torch.device | str = "cpu") -> LoadedModel:
    """The model of a run's winner, in evaluation mode; the newest run's where `run` is a storage folder.

    Raises:
        RunFolderError: there is no run, or it has no winner that can be loaded.
        WeightsError: the model's file is damaged.
    """
    found = run if isinstance(run, Run) else load_run(run)
    with tempfile.TemporaryDirectory() as temporary:
        return load_model(found.folder.fetch(BEST, Path(temporary) / BEST), device)


def load_model(best: Path, device: torch.device | str = "cpu") -> LoadedModel:
    """The model of a run's `best/`, in evaluation mode.

    Raises:
        RunFolderError: the folder has no model.
        WeightsError: the model's file is damaged.
    """
    try:
        card = ModelCard.from_dict(json.loads((best / "model.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"a model needs model.json and {MODEL}, got {best} without a whole model.json; name a run with a winner"
        ) from error
    network = empty_network(card.model, channels=card.inputs.channels, classes=len(card.classes))
    load_state(network.module, read_state(best / MODEL), source=str(best / MODEL), name=card.model)
    return LoadedModel(network.module.to(device).eval(), card, torch.device(device))


def _contents(
    trial: ImageClassifier, config: dict[str, Any], score: Score, record: Mapping[str, Any]
) -> dict[str, Any]:
    """File name -> what it holds."""
    card = ModelCard(trial.model, trial.data, str(trial.weights), score.classes, score.inputs)
    scored = {"test_loss": score.test_loss, "test_accuracy": score.test_accuracy}
    return {
        "model.json": asdict(card),
        "config.json": config,
        "metrics.json": {**record, "metrics": {**record.get("metrics", {}), **scored}},
        "confusion_matrix.json": {"classes": list(score.classes), "counts": score.confusion},
        "mistakes.json": [asdict(mistake) for mistake in score.mistakes],
    }
