"""The folder `best/`: the winner with everything that is needed to use it, and how it is loaded as a model."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import DataError, RunFolderError, TunerError
from tuner.history.scored import BEST, LEAST_SURE, METRICS, MISTAKES
from tuner.inspection.card import CARD, FILES, TRAIN, ModelCard, Part, read_card
from tuner.inspection.networks import empty_member
from tuner.inspection.scoring import Mistake, Score
from tuner.inspection.tasks import Answers, Prediction, answers_of
from tuner.results.declaring import declared_study
from tuner.results.front import at_point
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run
from tuner.space.values import recorded, value_of
from tuner.storage.folder import LocalFolder
from tuner.storage.regular_files import sha256
from tuner.train.checkpoint import MODEL, write_tensors
from tuner.train.data import Split
from tuner.train.data.images import read_image, resize
from tuner.train.data.splits import HeldSplit
from tuner.train.evaluation import Evaluator
from tuner.train.models import (
    Ensemble,
    empty_model,
    head_of,
    load_state,
    networks_of,
    read_state,
    single_networks,
)
from tuner.train.models.eight_bits import EightBits, eight_bits_of
from tuner.train.models.onnx_layers import answer_by
from tuner.train.tasks import Metrics, targets_of
from tuner.trial import ImageClassifier
from tuner.trial.earlier_pixels import scale_note, scale_together
from tuner.trial.hyperparameters import INT8
from tuner.trial.models import DEFAULTS, looks_published
from tuner.trial.pixels import DeepScale
from tuner.trial.splitting import REFIT, Folds, Joined
from tuner.trial.tasks import TASKS

CONFIG = "config.json"
Restore = Callable[[dict[str, Any]], dict[str, Any]]  # gives a configuration of a file the values of its space
FILES_PER_BATCH = 256


@dataclass(frozen=True)
class LoadedModel:
    """A trained model, ready to use: `module` takes normalised images, the methods take images as they are.

    `facts` are what the task needs besides the card, see `Targets.facts`.
    """

    module: nn.Module
    card: ModelCard
    device: torch.device
    facts: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def answers(self) -> Answers[Any]:
        """What its outputs mean."""
        return answers_of(targets_of(TASKS[self.card.task])(self.card.classes).with_facts(self.facts))

    @property
    def quantised(self) -> bool:
        """Whether it answers in 8 bits, by onnxruntime on the CPU."""
        return any(eight_bits_of(network) for network in single_networks(self.module))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the outputs, in their order: the classes, the labels, or what the number is."""
        return self.card.classes

    def predict(self, images: Iterable[str | Path] | str | Path) -> list[Prediction]:
        """The answers to image files of any mode and of up to 120 million pixels, in their order.

        Raises:
            DataError: a file is missing, not an image or too large; or the model takes neither grey nor RGB images.
        """
        self.check_takes_files()
        paths = [Path(image) for image in ([images] if isinstance(images, str | Path) else images)]
        scale, notice = self.scale_of(paths)
        if notice is not None:
            warnings.warn(notice, stacklevel=2)
        batches = [paths[start : start + FILES_PER_BATCH] for start in range(0, len(paths), FILES_PER_BATCH)]
        return [prediction for batch in batches for prediction in self._predict_batch(batch, scale)]

    def evaluate(self, split: Split) -> Metrics:
        """The task's metrics, such as loss and accuracy, on a split of images of the size that the model takes."""
        outputs = Evaluator(self.device).logits(self.module, split, self.card.inputs.normalisation)
        metrics: Metrics = self.answers.targets.metrics(outputs, split.labels)
        return metrics

    def scale_of(self, paths: Sequence[Path]) -> tuple[DeepScale, str | None]:
        """The scale of deep images; for an old winner that of these files together, with a notice if it matters."""
        if self.card.inputs.scale is not None:
            return self.card.inputs.scale, None
        scale = scale_together(paths)
        return scale, scale_note(paths, scale, "train again for answers that are as exact as in training")

    def read(self, path: Path, scale: DeepScale) -> Tensor:
        """An image file as the model takes it, [1, C, size, size] uint8; raises DataError if it can't be read."""
        return resize(read_image(path, self.card.inputs.channels, scale)[None], self.card.inputs.framing)

    def _predict_batch(self, paths: Sequence[Path], scale: DeepScale) -> list[Prediction]:
        shares = self.probabilities(torch.cat([self.read(path, scale) for path in paths])).tolist()
        return [self.prediction(path, values) for path, values in zip(paths, shares, strict=True)]

    def check_takes_files(self) -> None:
        """Raise DataError if the model takes neither grey nor RGB images."""
        if self.card.inputs.channels not in (1, 3):
            raise DataError(
                f"image files have 1 or 3 channels, got a model that takes {self.card.inputs.channels}; "
                "call its module with tensors"
            )

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of each class, or numbers, for images [N, C, size, size] uint8: [N, L] float32 on the CPU."""
        split = HeldSplit(images, torch.zeros(len(images), dtype=torch.int64))
        outputs = Evaluator(self.device).logits(self.module, split, self.card.inputs.normalisation)
        values: Tensor = self.answers.targets.answers(outputs)
        return values.cpu()

    def embedded(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """`probabilities`, and the inputs of the last layer: [N, features] float32 on the CPU."""
        split = HeldSplit(images, torch.zeros(len(images), dtype=torch.int64))
        module = Embedded(self.module, len(self.classes))
        told = Evaluator(self.device).logits(module, split, self.card.inputs.normalisation).cpu()
        logits, features = module.apart(told)
        return self.answers.targets.answers(logits), features

    def prediction(self, path: Path, values: Sequence[float]) -> Prediction:
        """The prediction for an image, from its `probabilities`."""
        return self.answers.prediction(path, values)


def write_best(
    folder: Path, trial: ImageClassifier, config: dict[str, Any], score: Score, record: Mapping[str, Any]
) -> None:
    """Write `best/`, completely or not at all; an older one is replaced. model.json comes last and names the other
    files.

    Args:
        folder: the run's `best`
        trial: data and model
        config: the winner's hyperparameters
        score: of its model
        record: becomes metrics.json: "trial", "epoch", and "metrics", to which those of the test split are added
    """
    trial, model = trial.of(config), score.model
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write_tensors(beside / MODEL, {name: tensor.cpu() for name, tensor in model.module.state_dict().items()})
    for number, network in enumerate(single_networks(model.module)):
        if (quantised := eight_bits_of(network)) is not None:
            (beside / _eight_bits_file(number)).write_bytes(quantised.content)
    for name, content in _contents(config, score, record).items():
        _write(beside / name, content)
    card = ModelCard(
        *(trial.model_name, trial.source.name, str(trial.own_weights), score.answers.targets.names, score.inputs),
        networks=max(1, trial.folds),
        trained_on=REFIT if isinstance(trial.validation, Joined) else TRAIN,
        test_time_flip=any(one.get("test_time_flip") for one in [config, *(part.config for part in model.parts)]),
        commit=trial.commit,
        task=score.answers.targets.task.name,
        parts=model.parts,
    )
    files = {path.name: sha256(path) for path in sorted(beside.iterdir())}
    _write(beside / CARD, asdict(card) | {FILES: files})
    _put_in_place(beside, folder)


def _eight_bits_file(number: int) -> str:
    """The file of a network's layers in 8 bits."""
    return f"int8_{number}.onnx"


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _put_in_place(new: Path, folder: Path) -> None:
    """Put it in place by two renames: a reader finds the older folder, none, or the new one."""
    older = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(older, ignore_errors=True)
    if folder.exists():
        folder.rename(older)
    new.rename(folder)
    shutil.rmtree(older, ignore_errors=True)


def load_winner(
    run: RecordedRun | str | Path, device: torch.device | str = "cpu", *, trust: bool = False, point: str | None = None
) -> LoadedModel:
    """The model of a run's winner, in evaluation mode; the newest run's if `run` is a storage folder.

    `point` names another one on the front of two metrics, see `tuner.results.front.at_point`.

    If the model is a user's function, it comes from the run's copy of the study file, which is only run if it belongs
    to the user, or with `trust`.

    Raises:
        RunFolderError: there is no run, it has no winner that can be loaded (none, a damaged one, files of two), or
            another user's code is needed.
        StudyError: the study file, which is needed for a user's model, fails to run.
    """
    found = run if isinstance(run, RecordedRun) else load_run(run)
    found = found if point is None else at_point(found, point)
    with tempfile.TemporaryDirectory() as temporary:
        best = found.folder.fetch(found.best_folder, Path(temporary) / BEST)
        _check_kind(found, best)
        card = read_card(best)
        if not card.is_function:
            return _load(best, card, None, dict, device)
        trial, restore = _user_trial(found, trust=trust)
        return _load(best, card, trial, restore, device)


def _check_kind(run: RecordedRun, best: Path) -> None:
    """Raise RunFolderError for a run of the user's own training, whose models only the user's code can load."""
    if (best / CARD).is_file() or str(run.info.get("trial", "ImageClassifier(")).startswith("ImageClassifier("):
        return
    saved = (best / "checkpoint").is_dir()
    where = f"{run.path}/{run.best_folder}/checkpoint"
    fix = f"load its checkpoint, in {where}" if saved else "its winner saved no checkpoint"
    raise RunFolderError(
        f"a model that tuner loads is one of an ImageClassifier, got {run.path}, which trained by a function or "
        f"outside of tuner; {fix}"
    )


def load_model(best: Path, device: torch.device | str = "cpu", *, trial: ImageClassifier | None = None) -> LoadedModel:
    """The model of a run's `best/`, in evaluation mode.

    Args:
        best: the folder
        device: where to put it
        trial: declares the model if that is a user's function

    Raises:
        RunFolderError: the folder has no model, a damaged one, files of two, or a function's but no `trial` is given.
    """
    card = read_card(best)
    if trial is None and card.is_function:
        raise RunFolderError(
            f"a model made by a function needs that function, got {best} of {card.model} alone; load the run's folder, "
            "or pass trial="
        )
    return _load(best, card, trial, dict, device)


def _load(
    best: Path, card: ModelCard, trial: ImageClassifier | None, restore: Restore, device: torch.device | str
) -> LoadedModel:
    """Load the model; raises RunFolderError for any problem with the files."""
    if trial is not None and card.trained_on == REFIT:
        trial = trial.refitted()
    try:
        module = _module(best, card, trial or declared_trial(card), restore)
        file = TASKS[card.task].facts_file
        facts = json.loads(LocalFolder(best).read(file).decode()) if file else {}
        model = LoadedModel(module.to(device).eval(), card, torch.device(device), facts)
        _ = model.answers
    except MemoryError:
        raise
    except Exception as error:  # a user's function may raise anything if the configuration isn't its own
        reason = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
        raise RunFolderError(f"a winner must be whole to be loaded, got {best}: {reason}") from error
    return model


def declared_trial(card: ModelCard | Part) -> ImageClassifier:
    """A trial of the same architecture, which can depend on published weights and on the commit of a repository."""
    networks = card.networks if isinstance(card, ModelCard) else 1
    return ImageClassifier(
        model=card.model,
        weights=card.weights if card.weights in DEFAULTS or looks_published(card.weights) else None,
        validation=Folds(networks) if networks > 1 else None,
    ).at_commits(card.commit)


def _module(best: Path, card: ModelCard, trial: ImageClassifier, restore: Restore) -> nn.Module:
    plain = json.loads(LocalFolder(best).read(CONFIG).decode())
    if not isinstance(plain, dict):
        raise TypeError(f"{CONFIG} holds a {type(plain).__name__}, not hyperparameters")
    state = read_state(best / MODEL)
    largest = max((size for tensor in state.values() for size in tensor.shape), default=0)
    if max(card.inputs.channels, len(card.classes)) > largest:  # otherwise a damaged number would request all memory
        raise ValueError(f"{MODEL} isn't of {card.inputs.channels} channels and {len(card.classes)} classes")
    channels, classes, task = card.inputs.channels, len(card.classes), TASKS[card.task]
    config = _config(trial, plain, restore, card.inputs.image_size)
    configs = [config] * card.networks
    if card.parts:
        given = card.inputs.image_size, card.inputs.normalisation
        each, configs = [], []
        for part in card.parts:
            own = trial if part.is_function else declared_trial(part)
            chosen = _config(own, dict(part.config), restore, part.image_size)
            configs.append(chosen)
            each.append(empty_member(own, part, chosen, channels=channels, classes=classes, given=given))
        module: nn.Module = Ensemble(each, targets_of(task).together)
    else:
        module = empty_model(trial, channels=channels, classes=classes, config=config, task=task)
    load_state(module, state, source=str(best / MODEL), name=card.model)
    for number, (network, chosen) in enumerate(zip(single_networks(module), configs, strict=True)):
        if chosen["quantization"] == INT8:
            answer_by(network, EightBits((best / _eight_bits_file(number)).read_bytes()))
    return module


def _config(trial: ImageClassifier, plain: dict[str, Any], restore: Restore, size: int) -> dict[str, Any]:
    """All hyperparameters, of a configuration as a file has it, for images of this size."""
    config = trial.hyperparameters(restore(value_of(plain)))
    # A function's images may have a size of their own.
    return config | {"image_size": size} if isinstance(trial.model, str) else config


def _user_trial(run: RecordedRun, *, trust: bool) -> tuple[ImageClassifier, Restore]:
    """The declaration of a run whose model is a user's function, and what gives its configurations their own values."""
    if run.info["study_file"] is None:
        raise RunFolderError(
            f"a model made by a function needs the study file, got {run.path}, which was started from Python; "
            "call tuner.inspection.load_model(best, trial=...)"
        )
    study = declared_study(run, trust=trust)
    trial = study.declared_trial
    if not isinstance(trial, ImageClassifier):
        raise RunFolderError(f"a model needs an ImageClassifier, got {trial.name} in {run.path}; name another run")
    return trial, study.search_space.restored


def _told(mistake: Mistake) -> dict[str, Any]:
    return {name: value for name, value in asdict(mistake).items() if value is not None}


def _contents(config: dict[str, Any], score: Score, record: Mapping[str, Any]) -> dict[str, Any]:
    """The content of each file, by name."""
    intervals = {f"test_{name}": asdict(interval) for name, interval in score.intervals.items()}
    winner = {"trial": record["trial"], "epoch": record["epoch"]}
    facts, unsure = score.answers.targets.task.facts_file, score.least_sure
    return {
        CONFIG: recorded(config),
        METRICS: {
            **winner,
            **record,
            "metrics": {**record.get("metrics", {}), **score.test.by_name("test")},
            "intervals": intervals,
            "images": score.images,
        },
        **score.files,
        **({} if facts is None else {facts: score.answers.targets.facts()}),
        MISTAKES: [_told(mistake) for mistake in score.mistakes],
        **({} if unsure is None else {LEAST_SURE: [_told(answer) for answer in unsure]}),
    }


class Embedded(nn.Module):
    """A model that returns its logits followed by its last layer's inputs; those of several networks side by side.

    If that layer is a convolution, as in SqueezeNet, the mean over positions is taken; if a model predicts for an image
    and its mirror image, the mean of both.
    """

    def __init__(self, module: nn.Module, classes: int) -> None:
        super().__init__()
        self.module, self.classes = module, classes

    def forward(self, images: Tensor) -> Tensor:
        """Logits and inputs [N, classes + features] float32 of normalised images."""
        networks = networks_of(self.module)
        seen: list[list[Tensor]] = [[] for _ in networks]
        hooks = [
            head_of(network).register_forward_hook(lambda _, inputs, __, views=views: views.append(_flat(inputs[0])))
            for network, views in zip(networks, seen, strict=True)
        ]
        try:
            logits = self.module(images).float()
            return torch.cat([logits, *(torch.stack(views).mean(0) for views in seen)], dim=1)
        finally:
            for hook in hooks:
                hook.remove()

    def apart(self, told: Tensor) -> tuple[Tensor, Tensor]:
        """Split the result of `forward` into logits [N, classes] and embeddings [N, features]."""
        return told[:, : self.classes], told[:, self.classes :]


def _flat(values: Tensor) -> Tensor:
    return (values.mean((2, 3)) if values.ndim == 4 else values.flatten(1)).float()
