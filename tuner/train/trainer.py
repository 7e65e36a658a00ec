"""One trial's training, epoch by epoch; knows nothing of who runs it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import TrialError, WeightsError
from tuner.train.capture import GRAPH, RememberedSeconds, remembered_steps
from tuner.train.checkpoint import Checkpoint, Progress, read_checkpoint, write_checkpoint
from tuner.train.checks import check_images, check_loss, check_outputs
from tuner.train.data import Split, load_splits
from tuner.train.devices import with_index
from tuner.train.epoch_result import EpochResult, Notes
from tuner.train.evaluation import Evaluator, Metrics, metrics_of
from tuner.train.feed import Feed, Feeds
from tuner.train.fine_tuning import FineTuning
from tuner.train.memory.errors import SMALLER_MODEL, memory_errors
from tuner.train.memory.watch import MemoryWatch, explained
from tuner.train.models import build_network, fitting_state, load_state
from tuner.train.optimisation import (
    AveragedWeights,
    Objective,
    Precision,
    Schedule,
    balanced_weights,
    build_optimizer,
    parameter_groups,
    set_learning_rate,
)
from tuner.train.optimisation.optimizer import load_optimizer, optimizer_tensors
from tuner.train.parallel import Strategy
from tuner.train.randomness import derive_seed, derive_seeds, seeded
from tuner.train.stepping import Stepping
from tuner.trial import ImageClassifier

STEPS_AT_ONCE = 2  # whose images are validated together: one keeps 4 to 30 times what an image in evaluation needs
STEPS_BETWEEN_CHECKS = 64  # of the loss, on the CPU; on a GPU a look at it would make the host wait

INITIAL_WEIGHTS, ORDER, STEPS, IMAGES = 0, 1, 2, 3  # streams of random numbers that one trial's seed is split into

OPTIMIZER, LIVE = "optimizer.", "live."  # what names of tensors in a checkpoint's training.safetensors start with


class Trainer:
    """Fine-tunes one image classifier with one configuration.

    Everything random comes from `seed` and the numbers of epoch and step, so the same trial gives the same curve in a
    fresh and in a used process, and one that goes on from a checkpoint the same as one that was never interrupted.
    On the CPU both hold bit for bit as long as torch's number of threads is the same.
    """

    def __init__(
        self,
        trial: ImageClassifier,
        config: dict[str, Any],
        *,
        epochs: int,
        seed: int = 0,
        split_seed: int = 0,
        device: torch.device | str = "cpu",
        strategy: Strategy | None = None,
        step_path: str | None = None,
    ) -> None:
        """Load data and model, ready for the first epoch.

        Args:
            trial: data, model, weights
            config: hyperparameters by name; those left out take their defaults
            epochs: the budget's length of a trial, which the hyperparameter `epochs` may shorten
            seed: of this trial, >= 0
            split_seed: of the study, decides which images are held out
            device: "cpu", "cuda", "cuda:1"
            strategy: on which devices, by which processes; of several, all call the same methods. None: on `device`
            step_path: "eager", "graph" or "compiled" to take steps so without measuring, where that is possible

        Raises:
            StudyError: a hyperparameter's name or value can't work (DataError, WeightsError: files can't).
            TrialError: the GPU only emulates the precision, or the user's model doesn't fit the data.
            TrialOutOfMemory: model and data don't fit on the device.
        """
        self.trial, self.config = trial, config
        self.hyperparameters = chosen = trial.hyperparameters(config)
        self.total_epochs = min(epochs, chosen["epochs"] or epochs)
        self.seed = seed
        self.device, self.strategy = with_index(torch.device(device)), strategy or Strategy()
        self.epoch = self.step = 0
        self.splits = load_splits(trial, seed=split_seed, image_size=chosen["image_size"])
        self.network = build_network(
            trial,
            channels=self.splits.channels,
            classes=len(self.splits.classes),
            seed=derive_seed(seed, INITIAL_WEIGHTS),
            stem=chosen["stem"],
            config=chosen,
        )
        self.network.drop_before_head(chosen["dropout"])
        self._notes = Notes([*self.splits.notes, *self.network.notes])
        self.module = self.network.module
        self.precision = Precision(chosen["precision"], self.device)
        check_outputs(self.module, trial, self.splits)
        check_images(len(self.splits.train), self.strategy.least_batch)
        self.evaluator = Evaluator(self.device, self.precision)
        with memory_errors("the model"):
            self._notes += self.strategy.place(self.network, self.device, self._examples, self.precision, chosen)
            self._feeds = Feeds(
                self.network,
                self.splits,
                self.evaluator,
                self.strategy,
                self.device,
                chosen,
                epochs=self.total_epochs,
                model=trial.model_name,
                note=self._notes.add,  # a method of this object would keep it alive
            )
        self._build_steps(step_path)

    def _build_steps(self, path: str | None) -> None:
        chosen = self.hyperparameters
        self.fine_tuning = FineTuning(self.network, chosen)
        learning = self.fine_tuning.open(self.fine_tuning.due(0))
        self.optimizer = build_optimizer(parameter_groups(learning, chosen["weight_decay"]), chosen)
        self.schedule = Schedule.of(chosen, self.total_epochs)
        self.average = AveragedWeights(self.module, chosen["ema_decay"]) if chosen["ema_decay"] else None
        self.training_step = self.strategy.make_step(
            self.module,
            self._objective(),
            self.precision,
            batch_size=chosen["batch_size"],
            clip_norm=chosen["clip_norm"],
        )
        self._watch = MemoryWatch(self.device, self.strategy.gpus)
        self.stepping = Stepping(
            self.training_step,
            self.optimizer,
            self.average,
            self.module,
            self.device,
            batch_size=chosen["batch_size"],
            alone=self.strategy.group.size == 1 and type(self.strategy) is Strategy,
            path=path,
            remembered=self._remembered,
        )
        self._loss = self.stepping.loss
        if chosen["finetune"] != "all" and self.network.pretrained and self.fine_tuning.learns_beside_the_head:
            self._notes.append(
                f"finetune='{chosen['finetune']}' also trains {' and '.join(self.fine_tuning.learns_beside_the_head)}, "
                "which has no pretrained weights, so the whole network runs in every epoch; with stem='sum' the "
                "backbone stays frozen and its features are computed once"
            )

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.total_epochs

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how data, weights and memory were dealt with, in sentences."""
        return tuple(self._notes)

    @property
    def learning_rate(self) -> float:
        """Of the last step (before the first: of no schedule), for layers without pretrained weights."""
        return float(max(group["lr"] for group in self.optimizer.param_groups))

    @property
    def best_module(self) -> nn.Module:
        """What is validated and kept: the network, or the moving average of its weights."""
        return self.module if self.average is None else self.average.module

    def run_epoch(self) -> EpochResult:
        """Train on every training image once (or the rest of an epoch that was begun), then validate.

        Raises:
            TrialDiverged: a loss became NaN or infinite.
            TrialOutOfMemory: not even a single image fits in memory.
        """
        start = time.perf_counter()
        self._watch.start_epoch()
        images = sum(map(len, self._batches()[self.step :]))
        self.train()
        train_loss = float(self.strategy.group.sum(self._loss)) / len(
            self._feed.train
        )  # the host waits for the device here
        trained = time.perf_counter()
        self._check_loss(train_loss, "training")
        metrics = self.validate()
        self._check_loss(metrics.loss, "validation")
        self.epoch, self.step = self.epoch + 1, 0
        self._loss.zero_()
        return self._result(train_loss, metrics, time.perf_counter() - start, images / (trained - start))

    def train(self, steps: int | None = None) -> None:
        """Take the next steps of the epoch, all that are left or as many as `steps`; `save` works in between.

        Raises as `run_epoch` does.
        """
        self._open_stages()
        batches = self._batches()
        last = len(batches) if steps is None else min(len(batches), self.step + steps)
        seeds = derive_seeds(len(batches), self.seed, STEPS, self.epoch)
        generators = seeded(derive_seed(self.seed, STEPS, self.epoch), self.device)
        with generators, self.precision.kernels(search=True), explained(self._watch, self.config):
            feed = self._feed  # before the mode is set: finding features evaluates
            self.fine_tuning.set_mode()
            split = feed.train.reseeded(derive_seed(self.seed, IMAGES, self.epoch))
            for images, labels in self.strategy.batches(split, batches[self.step : last], self.device):
                set_learning_rate(self.optimizer, self._rate(len(batches)))
                seed = seeds[self.step] + self.strategy.group.rank
                self.train_step(images, labels, seed, len(batches[self.step]))
                self.step += 1
                if self.device.type == "cpu" and self.step % STEPS_BETWEEN_CHECKS == 0:
                    self._check_loss(float(self._loss), "training")

    def halve_micro_batch(self, times: int) -> None:
        """Let as few images through the network at once as if memory had run out so often."""
        self.evaluator.halve(times)
        step = self.training_step
        halved = max(1, self.strategy.part_of(self.hyperparameters["batch_size"]) // 2**times)
        step.largest = min(step.largest, halved)
        if halved < step.micro_batch_size:
            step.micro_batch_size = halved
            step.retries += 1

    def train_step(self, images: Tensor, labels: Tensor, seed: int, count: int) -> None:
        """One step of the optimizer on this process's images, as they are stored, of a batch of `count`.

        All that is random in it comes from `seed`.
        """
        feed = self._feed
        module = self.module if feed.whole else self.network.head_layer
        self.stepping.take(
            feed,
            self.strategy.forward(module, self.precision) or module,
            images,
            labels,
            seed,
            count,
            ahead=self._steps_ahead(),
            learning=self.fine_tuning.opened,
        )
        for note in self.stepping.notes:
            self._notes.add(note)

    def _steps_ahead(self) -> int:
        """Steps of the trial that are still to be taken."""
        size: int = self.hyperparameters["batch_size"]
        of_an_epoch = math.ceil(len(self.splits.train) / size)
        return (self.total_epochs - self.epoch) * of_an_epoch - self.step

    def close(self) -> None:
        """Give back what would outlive the trial in its process; afterwards steps are taken eagerly.

        To be called at a trial's end where the process goes on with others: the trainer's own memory goes with its last
        reference, but compiled code, CUDA graphs and processes that compile don't.
        """
        self.stepping.close()

    def _remembered(self, whole: bool) -> RememberedSeconds | None:
        """What is known of steps like this trial's; None if nothing is measured, or the model is the user's own."""
        if self.device.type != "cuda" or not isinstance(self.trial.model, str):
            return None
        sizes = self.splits.channels, self.splits.image_size, len(self.splits.classes)
        return remembered_steps(self.device, self.trial.model_name, sizes, self.hyperparameters, whole=whole)

    def validate(self) -> Metrics:
        """What the model's answers to the validation split are worth."""
        with memory_errors("validation with one image at a time", SMALLER_MODEL):
            if self._feed.whole:
                return self.evaluate(self._feed.validation)
            head = self.best_module.get_submodule(self.network.head)
            return self._metrics(head, self._feed.validation, self._feed.normalise)

    def evaluate(self, split: Split) -> Metrics:
        """What the model's answers to any split of images are worth; takes no more memory than a training step."""
        self.optimizer.zero_grad(set_to_none=True)
        steps = STEPS_AT_ONCE if self.fine_tuning.everything_learns else 1
        with self.evaluator.at_most(steps * self.training_step.micro_batch_size):
            return self._metrics(self.best_module, split, self.splits.normalisation)

    def _metrics(self, module: nn.Module, split: Split, normalise: Callable[[Tensor], Tensor]) -> Metrics:
        with self.precision.kernels():
            return metrics_of(self.strategy.logits(self.evaluator, module, split, normalise), split.labels)

    def snapshot(self) -> Checkpoint:
        """Everything that the next step depends on, copied to the host: training may go on at once.

        Of several processes the first one has all of it.
        """
        training = {f"{OPTIMIZER}{name}": tensor for name, tensor in optimizer_tensors(self.optimizer).items()}
        if self.average is not None:
            training |= {f"{LIVE}{name}": tensor for name, tensor in self.module.state_dict().items()}
        scalars = {
            "epoch": self.epoch,
            "step": self.step,
            "seed": self.seed,
            "loss": float(self.strategy.group.sum(self._loss.clone())),
            "opened": self.fine_tuning.opened,
            "param_groups": self.optimizer.state_dict()["param_groups"],
            "scaler": self.precision.state(),
            "average_updates": self.average.updates if self.average else 0,
            "micro_batch_size": self.training_step.micro_batch_size,
            "oom_retries": self.training_step.retries,
            "failed_raises": self.training_step.raising.failures,
            "steps_at_size": self.training_step.raising.steps,
        }
        gathered = self.strategy.gathered
        return Checkpoint(gathered(self.best_module.state_dict()), gathered(training), scalars)

    def save(self, folder: Path) -> None:
        """Write everything that training goes on from."""
        write_checkpoint(folder, self.snapshot())

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote, in this or another process.

        Raises:
            TrialError: the checkpoint is cut off or damaged, or another model's.
        """
        self.restore(read_checkpoint(folder), str(folder))

    def restore(self, checkpoint: Checkpoint, source: str = "another trial's") -> None:
        """Go on from a checkpoint that was read; `source` is for the message.

        Raises:
            TrialError: as `load` does; weights, optimizer and progress are as they were.
        """
        try:
            self._restore(checkpoint, source)
        except (WeightsError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TrialError(f"a checkpoint must fit the trial, got {source}: {error}") from error

    def _restore(self, checkpoint: Checkpoint, source: str) -> None:
        """What could fail comes first."""
        progress, name = Progress.of(checkpoint.scalars), self.trial.model_name
        if progress.opened > self.fine_tuning.due(progress.epoch):
            raise ValueError(f"{progress.opened} stages learned after {progress.epoch} epochs")
        live = _named(checkpoint.training, LIVE)
        fitting_state(self.module, live or checkpoint.model, source=source, name=name)
        if self.average is not None:
            fitting_state(self.average.module, checkpoint.model, source=source, name=name)
        self.stepping.forget_recording()
        self._open_stages(progress.opened)
        load_optimizer(self.optimizer, _named(checkpoint.training, OPTIMIZER), progress.param_groups)
        self.precision.load(progress.scaler)
        load_state(self.module, live or checkpoint.model, source=source, name=name)
        if self.average is not None:
            load_state(self.average.module, checkpoint.model, source=source, name=name)
            self.average.updates = progress.average_updates
        step = self.training_step
        step.retries = progress.oom_retries
        if step.retries:  # else it says how the strategy that saved it shares a batch out
            step.micro_batch_size = min(step.micro_batch_size, progress.micro_batch_size)
        step.raising.failures, step.raising.steps = progress.failed_raises, progress.steps_at_size
        self.epoch, self.step = progress.epoch, progress.step
        self._loss.fill_(progress.loss if self.strategy.group.rank == 0 else 0.0)

    # What goes through the network

    def _examples(self, count: int) -> Tensor:
        """The first training images, as many as there are, normalised, on the device."""
        first = torch.arange(min(count, len(self.splits.train)))
        return self.splits.normalisation(self.splits.train.images(first).to(self.device))

    @property
    def _feed(self) -> Feed:
        """What this epoch goes over."""
        return self._feeds.of_epoch(head_alone=self.fine_tuning.only_the_head_learns)

    def _batches(self) -> list[Tensor]:
        """Indices of the epoch's batches in a fresh order; a last one too small for the group joins the one before."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, ORDER, self.epoch))
        order = torch.randperm(len(self.splits.train), generator=generator)
        size = self.hyperparameters["batch_size"]
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        if len(batches) > 1 and len(batches[-1]) < self.strategy.least_batch:
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    # What learns, and how

    def _open_stages(self, count: int | None = None) -> None:
        learning = self.fine_tuning.open(self.fine_tuning.due(self.epoch) if count is None else count)
        for group in parameter_groups(learning, self.hyperparameters["weight_decay"]):
            self.optimizer.add_param_group(group)
            self.strategy.parameters_changed()

    def _rate(self, steps: int) -> float:
        """Learning rate in the middle of the step that comes."""
        return float(self.hyperparameters["lr"] * self.schedule(self.epoch + (self.step + 0.5) / steps))

    def _objective(self) -> Objective:
        weights = None
        if self.hyperparameters["class_weights"] == "balanced":
            weights = balanced_weights(self.splits.train.labels, len(self.splits.classes)).to(self.device)
        return Objective(self.hyperparameters["label_smoothing"], weights)

    def _check_loss(self, loss: float, kind: str) -> None:
        check_loss(loss, kind, epoch=self.epoch + 1, lr=self.learning_rate)

    def _result(self, train_loss: float, metrics: Metrics, seconds: float, images_per_second: float) -> EpochResult:
        usage = self._watch.end_epoch(replayed=self.stepping.path == GRAPH)
        self._notes.add(self._watch.leak)
        held = torch.tensor([usage.memory_peak_bytes, usage.memory_bytes], dtype=torch.float64)
        peak, at_end = self.strategy.group.highest(held).tolist()
        usage = replace(usage, memory_peak_bytes=peak, memory_bytes=at_end)
        return EpochResult(
            epoch=self.epoch,
            train_loss=train_loss,
            val_loss=metrics.loss,
            val_accuracy=metrics.accuracy,
            val_top5_accuracy=metrics.top5_accuracy,
            val_f1=metrics.f1,
            learning_rate=self.learning_rate,
            seconds=seconds,
            images_per_second=images_per_second,
            micro_batch_size=self.training_step.micro_batch_size,
            oom_retries=self.training_step.retries,
            step_path=self.stepping.path,
            threads=torch.get_num_threads(),
            batch_norm=self.training_step.batch_norm,
            **asdict(usage),
        )


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start so, by what follows."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
