"""A trial kind's cost on this machine, from a few real steps on a few images, and the number of images."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tuner.errors import DataError
from tuner.train.data import load_splits
from tuner.train.data.cutting import Cut
from tuner.train.data.holding_out import quotas
from tuner.train.data.images import UnreadableImage, read_image, resize
from tuner.train.data.loading import memory_for_images
from tuner.train.data.pool import PARTS
from tuner.train.memory.estimate import Images, estimate_memory
from tuner.train.models import random_network
from tuner.train.models.eight_bits import answering_in_eight_bits, quantised
from tuner.train.models.onnx_layers import by_onnxruntime, headless, pays
from tuner.train.trainer import Trainer
from tuner.trial import ImageClassifier
from tuner.trial.data_source import Found, ImageFiles
from tuner.trial.earlier_pixels import scale_together
from tuner.trial.framing import Framing
from tuner.trial.hyperparameters import HYPERPARAMETERS, INT8
from tuner.trial.image_hyperparameters import CHANGES_IMAGES
from tuner.trial.only_the_head import LBFGS
from tuner.trial.speed import Speed, kind_of

STANDING = 16  # images that represent all
READ = 48  # the most files that are decoded, and the time for it
READ_SECONDS = 1.0
LEAST_REPEATS = 2
PASSES = 25  # through all images, in steps of a few, that take as long as a last layer's solution
RATE = 1e-6  # learning rate: the steps must not diverge, and their result isn't used


@dataclass(frozen=True)
class _Sample:
    """A few images of a data set: [n, C, H, W] as the network takes them, and facts about all."""

    images: Tensor
    sizes: tuple[int, int, int]  # for training, validation and test of one network
    classes: int
    keeps: bool  # whether features of a frozen backbone are kept for later trials, so that they pay in one epoch
    read_seconds: float = 0.0  # per image


def measure_trial(
    trial: ImageClassifier, config: dict[str, Any], *, epochs: int, split_seed: int, device: str, seconds: float
) -> Speed:
    """Train a few steps as a trial of this configuration would, in this process.

    A few images of a folder are decoded; other data is loaded as in a trial. Weights that aren't on this machine are
    replaced by random ones, which take the same time.

    Args:
        trial: data, model, weights
        config: hyperparameters by name
        epochs: the budget's length of a trial
        split_seed: of the study
        device: "cpu" or "cuda"
        seconds: about how long to measure

    Raises:
        StudyError: the trial can't work.
        TrialError: as the trainer does.
    """
    trial = trial.of(config)
    sample = _sample(trial, config, split_seed)
    wall, cpu = time.perf_counter(), time.process_time()
    batch = trial.hyperparameters(config)["batch_size"]
    with _with_weights(trial, sample) as ready:
        trainer, starting = _trainer(ready, config, sample, epochs, device)
        per_image, quantising = _answering(trainer, seconds / 4)
        frozen, lengths = _training(trainer, sample, per_image, batch, seconds, quantising)
        through, before = (frozen and _by_onnxruntime(trainer, sample, seconds / 4)) or (per_image, quantising)
        once = (sample.sizes[0] + sample.sizes[1]) * through + before if frozen else 0.0
        if _solved(trial, config):
            lengths = [PASSES * lengths[0], lengths[0]]
        memory = _memory(trainer, ready, config, sample, device)
        networks = max(1, trial.folds)  # one for each part of a cross-validation, trained in turn
        memory += (networks - 1) * _held_bytes(trainer)
    starting += _between_trials(trainer, features=once > 0)
    busy = (time.process_time() - cpu) / (time.perf_counter() - wall)
    train, validation, test = sample.sizes
    held = sum(sample.sizes) * sample.images[0].numel()
    streamed = sample.read_seconds > 0 and held > memory_for_images(trial)
    lengths = [networks * (each + (train * sample.read_seconds if streamed else 0.0)) for each in lengths]
    shared = f"{trial.model_name} {sample.images.shape[-1]}" + " int8" * (quantising > 0)
    views, flips = _views_kept(trial, config), _views(trainer) - 1
    both = train + validation
    seen = views * (both if trial.folds else train) + flips * (both if trial.folds else validation)
    return Speed(
        start_seconds=networks * starting,
        once_seconds=once,
        once_for=shared,
        epoch_seconds=tuple(lengths),
        score_seconds=_answered(trial, config, sample.sizes, stored=frozen) * through * _views(trainer) + before,
        look_seconds=sum(sample.sizes) * sample.read_seconds,
        cache_bytes=0 if streamed or not sample.read_seconds else held,
        memory_bytes=memory,
        images=(train, validation, test),
        images_per_second=1 / per_image,
        features_per_second=1 / through,
        busy=busy,
        views_seconds=seen * through if once else 0.0,
        views_for=kind_of(trial.hyperparameters(config)),
    )


def _answered(trial: ImageClassifier, config: dict[str, Any], sizes: tuple[int, int, int], *, stored: bool) -> int:
    """How many images go through a winner's networks for its score: not those whose features trials have stored.

    Heads of a cross-validation share their backbone.
    """
    train, validation, test = sizes
    alone = trial.hyperparameters(config)["finetune"] == "head"
    if alone and stored:
        return test
    return train + validation + test * (1 if alone else trial.folds) if trial.folds else validation + test


# Images that represent all


def _sample(trial: ImageClassifier, config: dict[str, Any], split_seed: int) -> _Sample:
    files, framing = trial.image_files, trial.framing(trial.asked_size(config))
    if files is not None and framing is not None:
        return _of_files(trial, files, framing)
    one = trial.fold(0) if trial.folds else trial
    splits = load_splits(one, seed=split_seed, image_size=trial.asked_size(config))
    first = torch.arange(min(STANDING, len(splits.train)))
    sizes = len(splits.train), len(splits.validation), len(splits.test)
    return _Sample(splits.train.images(first), sizes, len(splits.classes), splits.key is not None)


def _of_files(trial: ImageClassifier, files: ImageFiles, framing: Framing) -> _Sample:
    found = files.look()
    chosen = [item.path for item in found.items[:: max(1, len(found.items) // READ)]]
    scale = scale_together(chosen)
    images: list[Tensor] = []
    start, begun = time.perf_counter(), 0
    for path in chosen:
        if len(images) >= 2 and time.perf_counter() - start > READ_SECONDS:
            break
        begun += 1
        try:
            images.append(resize(read_image(path, scale=scale)[None], framing)[0])
        except UnreadableImage:
            continue
    if not images:
        raise DataError(f"a folder of images needs some that can be read, got none of {begun} in {files.place}")
    each = (time.perf_counter() - start) / begun
    return _Sample(torch.stack(images), _sizes(found, trial), len(found.outputs), True, each)


def _sizes(found: Found, trial: ImageClassifier) -> tuple[int, int, int]:
    """Numbers of images for training, validation and test of one network, as `cut` gives them if none are identical."""
    given = {part: found.images[part] for part in PARTS}
    if all(len(found.strata.of(item.label)) == 1 for item in found.items):
        counts = np.array([found.counts[name, "train"] for name in found.strata.names])
    else:  # about: images with several labels are held out as if all had the same
        counts = np.array([given["train"]])
    cut = {"test": sum(quotas(counts, 3).values())}
    if trial.folds:
        cut["validation"] = -(-(given["train"] - (0 if given["test"] else cut["test"])) // trial.folds)
    else:
        cut["validation"] = sum(quotas(counts, 2, Cut(0, trial.validation).share).values())
    validation, test = (given[part] or cut[part] for part in ("validation", "test"))
    left = given["train"] - sum(cut[part] for part in ("validation", "test") if not given[part])
    return max(1, left), validation, test


@contextmanager
def _with_weights(trial: ImageClassifier, sample: _Sample) -> Iterator[ImageClassifier]:
    """The trial; within the block a file of random weights replaces its own if those aren't downloaded yet."""
    missing = trial.named_weights
    if missing is None or missing.path.is_file():
        yield trial
        return
    with tempfile.TemporaryDirectory(prefix="tuner-weights-") as folder:
        path = (Path(folder) / missing.file).with_suffix(".pth")
        facts = trial.model_facts.for_images(sample.images.shape[-1])
        torch.save(random_network(facts, channels=3, classes=1, seed=0).module.state_dict(), path)
        yield replace(trial, weights=path)


# Steps


def _trainer(
    trial: ImageClassifier, config: dict[str, Any], sample: _Sample, epochs: int, device: str
) -> tuple[Trainer, float]:
    """A trainer on the images that represent all, and the seconds that creating it took."""
    count = max(2, min(STANDING, sample.sizes[0]))
    images = sample.images[torch.arange(count) % len(sample.images)]
    labels = torch.linspace(0, sample.classes - 1, count).long()

    def stand_in() -> tuple[Any, Any, Any]:
        return (images, labels), (images[:2], labels[:2]), (images[:2], labels[:2])

    given = {
        **config,
        "lr": RATE,
        "image_size": images.shape[-1],
        "batch_size": min(count, trial.hyperparameters(config)["batch_size"]),
    }
    if _solved(trial, config):
        given |= {"optimizer": "sgd", "momentum": 0.0, "batch_size": count}
    if _views_kept(trial, config):
        given |= {name: HYPERPARAMETERS[name].default for name in ("views", *CHANGES_IMAGES)}
    if sample.keeps and trial.hyperparameters(config)["finetune"] == "head":
        epochs = max(2, epochs)  # the images here are not those that are kept: features have to pay in this trial
    like = replace(trial, data=stand_in, validation=None, group=None, metrics=(), task="one")  # takes the same time
    Trainer(like, given, epochs=epochs, device=device, step_path="eager").close()  # loads libraries, once in a worker
    start = time.perf_counter()
    trainer = Trainer(like, given, epochs=epochs, device=device, step_path="eager")
    return trainer, time.perf_counter() - start


def _solved(trial: ImageClassifier, config: dict[str, Any]) -> bool:
    return bool(trial.hyperparameters(config)["optimizer"] == LBFGS)


def _views_kept(trial: ImageClassifier, config: dict[str, Any]) -> int:
    return int(trial.hyperparameters(config)["views"])


def _between_trials(trainer: Trainer, *, features: bool) -> float:
    """Seconds in addition to the steps: computing the key of stored features, and cleaning up after a trial."""
    start = time.perf_counter()
    if features:
        _ = trainer.parts.network.backbone_key
    trainer.close()
    return time.perf_counter() - start


def _answering(trainer: Trainer, seconds: float) -> tuple[float, float]:
    """Seconds per image through the network as in validation, and those before, in which it is quantised."""
    split, parts = trainer.splits.train, trainer.parts
    few = torch.arange(min(len(split), max(2, STANDING // 2)))

    def answer() -> None:
        parts.evaluator.logits(parts.best_module, split, trainer.splits.normalisation, few)

    if parts.chosen["quantization"] != INT8:
        return _repeated(answer, seconds, trainer) / len(few), 0.0
    images = trainer.splits.calibration()
    quantised(parts.best_module, images)  # the first time takes longer
    start = time.perf_counter()
    with answering_in_eight_bits(parts.best_module, images):
        took = time.perf_counter() - start
        return _repeated(answer, seconds, trainer) / len(few), took


def _by_onnxruntime(trainer: Trainer, sample: _Sample, seconds: float) -> tuple[float, float] | None:
    """Seconds per image whose features are stored, and those before, if onnxruntime computes them; None if not."""
    module, splits = trainer.parts.best_module, trainer.splits
    images, device = splits.normalisation(splits.train.images()), trainer.parts.device
    chosen, count = trainer.parts.chosen, sum(sample.sizes[:2])
    if chosen["quantization"] == INT8 or not pays(module, count, images.shape[-1], device, chosen["precision"]):
        return None
    start = time.perf_counter()
    backbone = headless(module, images[:1])
    layers = None if backbone is None else by_onnxruntime(backbone, images)
    took = time.perf_counter() - start
    if layers is None:
        return None

    def answer() -> None:
        trainer.parts.evaluator.logits(layers, splits.train, splits.normalisation)

    return _repeated(answer, seconds, trainer) / len(splits.train), took


def _training(
    trainer: Trainer, sample: _Sample, per_image: float, batch: int, seconds: float, quantising: float
) -> tuple[bool, list[float]]:
    """Whether features of a frozen backbone are stored, and seconds of each epoch until they stay the same.

    Args:
        trainer: on the images that represent all
        sample: has the number of all images
        per_image: seconds in validation
        batch: images of a step in the configuration
        seconds: about how long to measure
        quantising: seconds before validation
    """
    train, validation = sample.sizes[0], sample.sizes[1] * _views(trainer)
    stored, lengths = False, []
    probes = _probes(trainer)
    for epoch in probes:
        trainer.epoch, trainer.step = epoch, 0
        trainer.parts.open_stages(trainer.parts.fine_tuning.due(epoch))
        feed = trainer.parts.feed
        step = _repeated(lambda: _step(trainer), seconds / len(probes), trainer)
        size = min(len(trainer.splits.train), trainer.parts.chosen["batch_size"])
        if feed.whole:
            lengths.append(train * step / size + validation * per_image + quantising)
        else:
            stored = True
            lengths.append(max(1.0, train / batch) * step)
    return stored, _between(trainer, probes, lengths)


def _probes(trainer: Trainer) -> list[int]:
    """The epochs that are measured: those in which other layers learn, at most three."""
    due = [trainer.parts.fine_tuning.due(epoch) for epoch in range(trainer.total_epochs)]
    first = [epoch for epoch, count in enumerate(due) if epoch == 0 or count != due[epoch - 1]]
    return sorted({first[0], first[len(first) // 2], first[-1]})


def _between(trainer: Trainer, epochs: list[int], lengths: list[float]) -> list[float]:
    """The values of all epochs up to the last measured one, by how many stages learn in it."""
    due = [trainer.parts.fine_tuning.due(epoch) for epoch in range(epochs[-1] + 1)]
    return np.interp(due, [due[epoch] for epoch in epochs], lengths).tolist()


def _views(trainer: Trainer) -> int:
    """How many views of an image are evaluated."""
    return 2 if trainer.parts.chosen["test_time_flip"] else 1


def _step(trainer: Trainer) -> None:
    trainer.step = 0
    trainer.train(1)


def _repeated(work: Callable[[], None], seconds: float, trainer: Trainer) -> float:
    """The mean time of repeated calls, without the first one."""
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while len(taken) < LEAST_REPEATS or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        if trainer.parts.device.type == "cuda":
            torch.cuda.synchronize(trainer.parts.device)
        taken.append(time.perf_counter() - start)
    return float(np.mean(taken[1:]))


def _memory(trainer: Trainer, trial: ImageClassifier, config: dict[str, Any], sample: _Sample, device: str) -> int:
    """The process's peak, plus what the configuration's batch is estimated to take beyond what is held."""
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated(trainer.parts.device))
    reached = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if not trainer.parts.feed.whole:
        return reached
    _, channels, height, width = sample.images.shape
    images = Images(channels, height, width, sample.classes, sample.sizes[0], sample.sizes[1])
    try:
        found = estimate_memory(trial, config, images, epochs=trainer.total_epochs, device=device).peak_bytes or 0
    except Exception:  # the network needs its tensors' contents
        found = 0
    return max(reached, reached + found - _held_bytes(trainer))


def _held_bytes(trainer: Trainer) -> int:
    """Bytes that the network and the optimizer already hold."""
    state = (value for each in trainer.parts.optimizer.state.values() for value in each.values())
    return sum(int(value.nbytes) for value in (*trainer.module.state_dict().values(), *state))
