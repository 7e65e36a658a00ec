"""The parts that a trial trains with, made for its configuration, seed and devices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import TrialDiverged, TrialError
from tuner.train.capture import RememberedSeconds, remembered_steps
from tuner.train.data import Splits, load_splits
from tuner.train.epoch_result import Notes
from tuner.train.evaluation import Evaluator
from tuner.train.feed import Feed, Feeds
from tuner.train.fine_tuning import LP_FT, FineTuning, probe_epochs
from tuner.train.memory.errors import SMALLER_MODEL, memory_errors
from tuner.train.memory.watch import MemoryWatch
from tuner.train.models import Network, build_network, head_is_last
from tuner.train.optimisation import (
    AveragedWeights,
    Precision,
    Schedule,
    build_optimizer,
    parameter_groups,
)
from tuner.train.parallel.strategy import LEAST_BATCH, Strategy
from tuner.train.randomness import INITIAL_WEIGHTS, derive_seed
from tuner.train.step import TrainingStep
from tuner.train.stepping import Stepping
from tuner.train.tasks.objective import Objective
from tuner.trial import ImageClassifier
from tuner.trial.hyperparameters import INT8
from tuner.trial.metrics import check_classes
from tuner.trial.tasks import ONE_LABEL


@dataclass(frozen=True)
class Parts:
    """What one trial trains with; `chosen` are its hyperparameters, defaults included."""

    trial: ImageClassifier
    chosen: dict[str, Any]
    device: torch.device
    strategy: Strategy
    splits: Splits
    network: Network
    precision: Precision
    evaluator: Evaluator
    feeds: Feeds
    fine_tuning: FineTuning
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    average: AveragedWeights | None
    training_step: TrainingStep
    stepping: Stepping
    watch: MemoryWatch
    notes: Notes

    @property
    def module(self) -> nn.Module:
        """The network as torch knows it."""
        return self.network.module

    @property
    def best_module(self) -> nn.Module:
        """The module that is validated and saved: the network, or the moving average of its weights."""
        return self.module if self.average is None else self.average.module

    @property
    def loss(self) -> Tensor:
        """The sum of the epoch's losses so far, of this process's images."""
        return self.stepping.loss

    @property
    def feed(self) -> Feed:
        """The feed of the present epoch."""
        return self.feeds.of_epoch(head_alone=self.fine_tuning.only_the_head_learns, probing=self.fine_tuning.probing)

    def open_stages(self, count: int) -> None:
        """Let this many stages learn, if they don't yet."""
        for group in parameter_groups(self.fine_tuning.open(count), self.chosen["weight_decay"]):
            self.optimizer.add_param_group(group)
            self.strategy.parameters_changed()


def assemble(
    trial: ImageClassifier,
    chosen: dict[str, Any],
    *,
    image_size: int | None,
    epochs: int,
    seed: int,
    split_seed: int,
    device: torch.device | str,
    strategy: Strategy | None,
    step_path: str | None,
    network: Network | None = None,
) -> Parts:
    """Load data and model, and make the other parts for them; raises as `Trainer` does.

    `image_size` is the configuration's, None for the default of data and weights; `network` one of the same
    configuration, which is used instead of another.
    """
    where, strategy = _with_index(torch.device(device)), strategy or Strategy()
    splits = load_splits(trial, seed=split_seed, image_size=image_size)
    network = network or _network(trial, chosen, splits, seed)
    notes = Notes([*splits.notes, *network.notes])
    precision = Precision(chosen["precision"], where)
    check_outputs(network.module, trial, splits)
    check_classes(trial.chosen_metrics, splits.classes)
    check_images(len(splits.train), strategy.least_batch)
    evaluator = Evaluator(where, precision)
    with memory_errors("the model"):
        if chosen["quantization"] == INT8:
            check_quantizable(trial, network, strategy, splits)
        notes += strategy.place(network, where, lambda count: _examples(splits, where, count), precision, chosen)
        feeds = Feeds(
            *(network, splits, evaluator, strategy, where, chosen),
            epochs=epochs,
            model=trial.model_name,
            note=notes.add,  # a method of an object with the feeds would keep that alive
        )
    fine_tuning = FineTuning(network, chosen, epochs)
    optimizer = build_optimizer(parameter_groups(fine_tuning.open(fine_tuning.due(0)), chosen["weight_decay"]), chosen)
    average = AveragedWeights(network.module, chosen["ema_decay"]) if chosen["ema_decay"] else None
    step = strategy.make_step(
        network.module,
        _objective(splits, chosen, where),
        precision,
        batch_size=chosen["batch_size"],
        clip_norm=chosen["clip_norm"],
    )
    watch = MemoryWatch(where, strategy.gpus)
    stepping = Stepping(
        *(step, optimizer, average, network.module, where),
        batch_size=chosen["batch_size"],
        alone=strategy.group.size == 1 and type(strategy) is Strategy,
        path=step_path,
        remembered=lambda whole: _remembered(trial, chosen, splits, where, whole=whole),
    )
    if chosen["finetune"] != "all" and network.pretrained and fine_tuning.learns_beside_the_head:
        notes.append(_whole_network_runs(chosen["finetune"], fine_tuning.learns_beside_the_head))
    schedule = Schedule.of(chosen, epochs, probe_epochs(chosen, epochs) if chosen["finetune"] == LP_FT else 0)
    return Parts(
        *(trial, chosen, where, strategy, splits, network, precision, evaluator, feeds, fine_tuning, optimizer),
        *(schedule, average, step, stepping, watch, notes),
    )


def _with_index(device: torch.device) -> torch.device:
    """The device by its number, so that it compares equal to that of its tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device


def _network(trial: ImageClassifier, chosen: dict[str, Any], splits: Splits, seed: int) -> Network:
    network = build_network(
        trial,
        channels=splits.channels,
        classes=len(splits.classes),
        seed=derive_seed(seed, INITIAL_WEIGHTS),
        stem=chosen["stem"],
        config=chosen,
    )
    network.drop_before_head(chosen["dropout"])
    if chosen["stochastic_depth"] is not None:
        network.leave_blocks_out(chosen["stochastic_depth"], trial.model_name)
    return network


def _examples(splits: Splits, device: torch.device, count: int) -> Tensor:
    """The first training images, as many as there are, normalised, on the device."""
    first = torch.arange(min(count, len(splits.train)))
    return splits.normalisation(splits.train.images(first).to(device))


def _objective(splits: Splits, chosen: dict[str, Any], device: torch.device) -> Objective:
    labels, weighted = splits.train.labels, splits.train.weights is not None
    objective = splits.targets.objective(chosen, labels, weighted=weighted)
    return objective.having({name: tensor.to(device) for name, tensor in objective.tensors.items()})


def _remembered(
    trial: ImageClassifier, chosen: dict[str, Any], splits: Splits, device: torch.device, *, whole: bool
) -> RememberedSeconds | None:
    """Remembered times of steps like this trial's; None if nothing was measured, or the model is the user's own."""
    if device.type != "cuda" or not isinstance(trial.model, str):
        return None
    sizes = splits.channels, splits.image_size, len(splits.classes)
    return remembered_steps(device, trial.model_name, sizes, chosen, whole=whole)


def _whole_network_runs(finetune: str, layers: Iterable[str]) -> str:
    return (
        f"finetune='{finetune}' also trains {' and '.join(layers)}, which has no pretrained weights, so the whole "
        "network runs in every epoch; with stem='sum' the backbone stays frozen and its features are computed once"
    )


def check_outputs(module: nn.Module, trial: ImageClassifier, splits: Splits) -> None:
    """Raise TrialError unless a model from a user's function has an output for every class; it may have more."""
    if isinstance(trial.model, str):
        return
    example = splits.normalisation(splits.train.images(torch.arange(2)))
    with torch.inference_mode(), memory_errors("two images", SMALLER_MODEL):
        logits = module.eval()(example)
    enough = logits.ndim == 2 and logits.shape[1] >= len(splits.classes)
    if not enough or (logits.shape[1] > len(splits.classes) and splits.task is not ONE_LABEL):
        raise TrialError(
            f"a model must return logits [N, {len(splits.classes)}], got {list(logits.shape)} for 2 images "
            f"from {trial.model_name}; give it an output for every class"
        )


def check_quantizable(trial: ImageClassifier, network: Network, strategy: Strategy, splits: Splits) -> None:
    """Raise TrialError for a model without a linear layer at its end, and for several devices."""
    found = f"{trial.model_name} without one"
    if type(strategy) is not Strategy or strategy.group.size > 1:
        found = "a trial on several devices"
    elif head_is_last(
        network.module, splits.normalisation(splits.train.images(torch.arange(min(2, len(splits.train)))))
    ):
        return
    raise TrialError(
        f"quantization='{INT8}' needs a network whose last layer is linear, on one device, got {found}; leave it out"
    )


def check_images(images: int, least: int) -> None:
    """Raise TrialError if there are fewer training images than the `least` that several devices need."""
    if images < least > LEAST_BATCH:
        raise TrialError(
            f"devices that share each batch need {LEAST_BATCH} training images each, {least} in total, "
            f"got {images}; use fewer devices, or give more images"
        )


def check_loss(loss: float, kind: str, *, epoch: int, lr: float | None) -> None:
    """Raise TrialDiverged unless the loss of this kind is finite; `lr` is None of a head that is solved."""
    if not math.isfinite(loss):
        how, fix = (" with optimizer='lbfgs'", "raise weight_decay, or look whether the model's weights are whole")
        if lr is not None:
            how, fix = f" with lr={lr:g}", "lower lr"
        raise TrialDiverged(f"the loss must stay finite, got a {kind} loss of {loss} in epoch {epoch}{how}; {fix}")
