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
from tuner.train.data.splits import HeldSplit
from tuner.train.evaluation import Evaluator, Metrics
from tuner.train.models import empty_network, load_state, read_state
from tuner.trial import ImageClassifier

TOP = 5
FILES_PER_BATCH = 256
LARGEST_IMAGE = 10_000  # pixels along an edge of what a model takes


@dataclass(frozen=True)
class ModelCard:
    """What `model.safetensors` doesn't say of itself: `model.json`.

    Attributes:
        model: torchvision's name, or that of the user's function with brackets
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

    @property
    def is_function(self) -> bool:
        """Whether the model is one that a user's function makes."""
        return self.model.endswith("()")

    @classmethod
    def from_dict(cls, card: Mapping[str, Any]) -> ModelCard:
        """The card that `dataclasses.asdict` and JSON made plain.

        Raises KeyError, TypeError or ValueError where it is another content.
        """
        inputs = card["inputs"]
        channels, size = inputs["channels"], inputs["image_size"]
        mean, sd = (tuple(map(float, inputs["normalisation"][name])) for name in ("mean", "sd"))
        texts = (card["model"], card["data"], card["weights"], *card["classes"])
        if not all(isinstance(text, str) for text in texts) or not card["classes"]:
            raise ValueError("model, data, weights and classes are texts")
        if channels not in (1, 3) or type(size) is not int or not 1 <= size <= LARGEST_IMAGE:
            raise ValueError(f"channels are 1 or 3, and image_size is at most {LARGEST_IMAGE}")
        if not len(mean) == len(sd) == channels or 0.0 in sd:
            raise ValueError("a mean and an sd, which isn't 0, belong to each channel")
        model, data, weights, *classes = texts
        return cls(model, data, weights, tuple(classes), Inputs(channels, size, Normalisation(mean, sd)))


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

    def evaluate(self, split: Split) -> Metrics:
        """Loss, accuracy, top-5 accuracy and macro F1 on a split of images of the size that the model takes."""
        return Evaluator(self.device).metrics(self.module, split, self.card.inputs.normalisation)

    def _predict_batch(self, paths: Sequence[Path]) -> list[Prediction]:
        sized = [
            resize(read_image(path, self.card.inputs.channels)[None], self.card.inputs.image_size) for path in paths
        ]
        images = HeldSplit(torch.cat(sized), torch.zeros(len(paths), dtype=torch.int64))
        logits = Evaluator(self.device).logits(self.module, images, self.card.inputs.normalisation)
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


def load_winner(run: Run | str | Path, device: torch.device | str = "cpu", *, trust: bool = False) -> LoadedModel:
    """The model of a run's winner, in evaluation mode; the newest run's where `run` is a storage folder.

    Where the model is a user's function, that function comes from the run's copy of the study file, which is run only
    where it belongs to the user, or with `trust`.

    Raises:
        RunFolderError: there is no run, it has no winner that can be loaded, or code of somebody else's is needed.
        WeightsError: the model's file is damaged.
        StudyError: the study file, which is needed for a user's model, fails to run.
    """
    found = run if isinstance(run, Run) else load_run(run)
    with tempfile.TemporaryDirectory() as temporary:
        best = found.folder.fetch(BEST, Path(temporary) / BEST)
        card = _read_card(best)
        trial = _user_trial(found, trust=trust) if card.is_function else ImageClassifier(model=card.model)
        return _load(best, card, trial, device)


def load_model(best: Path, device: torch.device | str = "cpu", *, trial: ImageClassifier | None = None) -> LoadedModel:
    """The model of a run's `best/`, in evaluation mode.

    Args:
        best: the folder
        device: where to put it
        trial: declares the model where that is a user's function

    Raises:
        RunFolderError: the folder has no model, or one of a function that wasn't given.
        WeightsError: the model's file is damaged.
    """
    card = _read_card(best)
    if trial is None and card.is_function:
        raise RunFolderError(
            f"a model made by a function needs that function, got {best} of {card.model} alone; load the run's folder, "
            "or pass trial="
        )
    return _load(best, card, trial or ImageClassifier(model=card.model), device)


def _read_card(best: Path) -> ModelCard:
    try:
        return ModelCard.from_dict(json.loads((best / "model.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise RunFolderError(
            f"a model needs model.json and {MODEL}, got {best} without a whole model.json; name a run with a winner"
        ) from error


def _load(best: Path, card: ModelCard, trial: ImageClassifier, device: torch.device | str) -> LoadedModel:
    config = _read_config(best, trial)
    network = empty_network(trial, channels=card.inputs.channels, classes=len(card.classes), config=config)
    load_state(network.module, read_state(best / MODEL), source=str(best / MODEL), name=card.model)
    return LoadedModel(network.module.to(device).eval(), card, torch.device(device))


def _read_config(best: Path, trial: ImageClassifier) -> dict[str, Any]:
    """The winner's hyperparameters, all of them."""
    try:
        return trial.hyperparameters(json.loads((best / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, TypeError, ArithmeticError, RecursionError) as error:
        raise RunFolderError(
            f"a model needs config.json with its hyperparameters, got {best} without a whole one; restore it"
        ) from error


def _user_trial(run: Run, *, trust: bool) -> ImageClassifier:
    """The declaration of a run whose model is a user's function."""
    if run.info["study_file"] is None:
        raise RunFolderError(
            f"a model made by a function needs the study file, got {run.path}, which was started from Python; "
            "call tuner.inspection.load_model(best, trial=...)"
        )
    trial = run.declared_study(trust=trust).declared_trial
    if not isinstance(trial, ImageClassifier):
        raise RunFolderError(f"a model needs an ImageClassifier, got {trial.name} in {run.path}; name another run")
    return trial


def _contents(
    trial: ImageClassifier, config: dict[str, Any], score: Score, record: Mapping[str, Any]
) -> dict[str, Any]:
    """File name -> what it holds."""
    card = ModelCard(trial.model_name, trial.source.name, str(trial.weights), score.classes, score.inputs)
    scored = {f"test_{name}": value for name, value in asdict(score.test).items()}
    return {
        "model.json": asdict(card),
        "config.json": config,
        "metrics.json": {**record, "metrics": {**record.get("metrics", {}), **scored}, "images": score.images},
        "confusion_matrix.json": {"classes": list(score.classes), "counts": score.confusion},
        "mistakes.json": [asdict(mistake) for mistake in score.mistakes],
    }
