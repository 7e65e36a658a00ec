"""One trial's training, epoch by epoch; independent of the code that runs it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import TrialError
from tuner.train.assembly import assemble, check_loss
from tuner.train.capture import GRAPH
from tuner.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tuner.train.data import Split, Splits
from tuner.train.data.device_images import forget_images
from tuner.train.epoch_result import EpochResult
from tuner.train.memory.errors import SMALLER_MODEL, memory_errors
from tuner.train.memory.watch import explained
from tuner.train.models.eight_bits import answering_in_eight_bits
from tuner.train.models.mirrored import mean_of_views, mirror
from tuner.train.optimisation import set_learning_rate
from tuner.train.parallel.group import Group
from tuner.train.parallel.strategy import Strategy
from tuner.train.randomness import IMAGES, STEPS, derive_seed, derive_seeds, epoch_order, seeded
from tuner.train.state import put_back, taken
from tuner.train.step import collect_garbage, in_batches
from tuner.train.tasks import Metrics
from tuner.trial import ImageClassifier
from tuner.trial.hyperparameters import INT8
from tuner.trial.only_the_head import needing

Views = list[Callable[[Tensor], Tensor]]

STEPS_AT_ONCE = 2  # steps' images are validated at once: training keeps 4 to 30 times as much per image
STEPS_BETWEEN_CHECKS = 64  # of the loss, on the CPU; on a GPU reading it would make the host wait


class Trainer:
    """Fine-tunes one image classifier with one configuration.

    Everything random comes from `seed` and the numbers of epoch and step, so the same trial gives the same curve in a
    fresh and in a used process, and also if it goes on from a checkpoint. On the CPU both hold bit for bit as long as
    torch's number of threads is the same.

    Long because epoch, checkpoint and running out of memory change the same state, in an order that must be clear.
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
            strategy: which devices and processes are used; all processes call the same methods. None: `device`
            step_path: "eager", "graph" or "compiled": how to take steps, without measuring, if that is possible

        Raises:
            StudyError: a hyperparameter's name or value can't work (DataError, WeightsError: files can't).
            TrialError: the GPU only emulates the precision, or the user's model doesn't fit the data.
            TrialOutOfMemory: model and data don't fit on the device.
        """
        trial, chosen = trial.of(config), trial.hyperparameters(config)
        if (needs := needing(chosen)) is not None:
            raise TrialError(f"a Trainer takes steps on batches of images, got {needs}; use tuner.train.trainer_of")
        self.config, self.seed = config, seed
        self.total_epochs = min(epochs, chosen["epochs"] or epochs)
        self.epoch = self.step = 0
        self.parts = assemble(
            *(trial, chosen),
            image_size=trial.asked_size(config),
            epochs=self.total_epochs,
            seed=seed,
            split_seed=split_seed,
            device=device,
            strategy=strategy,
            step_path=step_path,
        )

    @property
    def splits(self) -> Splits:
        """The trial's data: for training, validation and the final test."""
        return self.parts.splits

    @property
    def module(self) -> nn.Module:
        """The network that learns."""
        return self.parts.module

    @property
    def group(self) -> Group:
        """The processes that train together."""
        return self.parts.strategy.group

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.total_epochs

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how data, weights and memory were handled, in sentences."""
        return tuple(self.parts.notes)

    @property
    def learning_rate(self) -> float:
        """The last step's learning rate (before the first: without schedule), for layers without pretrained weights."""
        return float(max(group["lr"] for group in self.parts.optimizer.param_groups))

    @property
    def broken(self) -> str | None:
        """Why this process should run no other trial, as a clause; None if it may."""
        return self.parts.stepping.broken

    def run_epoch(self) -> EpochResult:
        """Train on every training image once (or finish an epoch that was begun), then validate.

        Raises:
            TrialDiverged: a loss became NaN or infinite.
            TrialOutOfMemory: not even a single image fits in memory.
        """
        start = time.perf_counter()
        self.parts.watch.start_epoch()
        images = sum(map(len, self.batches(self.epoch)[self.step :]))
        self.train()
        train_loss = float(self.parts.strategy.group.sum(self.parts.loss)) / len(
            self.parts.feed.train
        )  # the host waits for the device here
        trained = time.perf_counter()
        self._check_loss(train_loss, "training")
        metrics = self.validate() if len(self.splits.validation) else None
        if metrics is not None:
            self._check_loss(metrics.loss, "validation")
        self.epoch, self.step = self.epoch + 1, 0
        self.parts.loss.zero_()
        return self._result(train_loss, metrics, time.perf_counter() - start, images / (trained - start))

    def train(self, steps: int | None = None) -> None:
        """Take the next steps of the epoch, all that are left or `steps` of them; `save` works in between.

        Raises as `run_epoch` does.
        """
        self.parts.open_stages(self.parts.fine_tuning.due(self.epoch))
        batches = self.batches(self.epoch)
        last = len(batches) if steps is None else min(len(batches), self.step + steps)
        seeds = derive_seeds(len(batches), self.seed, STEPS, self.epoch)
        generators = seeded(derive_seed(self.seed, STEPS, self.epoch), self.parts.device)
        with generators, self.parts.precision.kernels(search=True), explained(self.parts.watch, self.config):
            feed = self.parts.feed  # before the mode is set, because computing features switches to evaluation
            self.parts.fine_tuning.set_mode()
            split = feed.train.reseeded(derive_seed(self.seed, IMAGES, self.epoch))
            for images, labels in self.parts.strategy.batches(split, batches[self.step : last], self.parts.device):
                set_learning_rate(self.parts.optimizer, self._rate(len(batches)))
                seed = seeds[self.step] + self.parts.strategy.group.rank
                self.train_step(images, labels, seed, len(batches[self.step]))
                self.step += 1
                if self.parts.device.type == "cpu" and self.step % STEPS_BETWEEN_CHECKS == 0:
                    self._check_loss(float(self.parts.loss), "training")

    def halve_micro_batch(self, times: int) -> None:
        """Halve the number of images at once, as if memory had run out this often."""
        self.parts.evaluator.halve(times)
        step = self.parts.training_step
        halved = max(1, self.parts.strategy.part_of(self.parts.chosen["batch_size"]) // 2**times)
        step.largest = min(step.largest, halved)
        if halved < step.micro_batch_size:
            step.micro_batch_size = halved
            step.retries += 1

    def train_step(self, images: Tensor, labels: Tensor, seed: int, count: int) -> None:
        """One step of the optimizer on this process's images, as they are stored, of a batch of `count`.

        All its randomness comes from `seed`.
        """
        feed = self.parts.feed
        module = self.module if feed.whole else self.parts.network.head_layer
        self.parts.stepping.take(
            feed,
            self.parts.strategy.forward(module, self.parts.precision) or module,
            images,
            labels,
            seed,
            count,
            ahead=self._steps_ahead(),
            learning=self.parts.fine_tuning.opened,
        )
        for note in self.parts.stepping.notes:
            self.parts.notes.add(note)

    def _steps_ahead(self) -> int:
        """Steps of the trial that are still to be taken."""
        size: int = self.parts.chosen["batch_size"]
        of_an_epoch = math.ceil(len(self.splits.train) / size)
        return (self.total_epochs - self.epoch) * of_an_epoch - self.step

    def close(self) -> None:
        """Release what would outlive the trial in its process; afterwards steps are taken eagerly.

        Call it at a trial's end if the process goes on with others: the trainer's own memory is freed with its last
        reference, but compiled code, CUDA graphs and compiler processes aren't. Images on a GPU stay there for the next
        trial, unless other trials share the GPU.
        """
        self.release()
        collect_garbage()

    def release(self) -> None:
        """As `close`, for one of several trainers: the last one's garbage is collected with that of the others."""
        self.parts.stepping.release()
        forget_images(self.parts.device)

    def validate(self) -> Metrics:
        """The model's metrics on the validation split."""
        with memory_errors("validation with one image at a time", SMALLER_MODEL):
            if self.parts.feed.whole:
                return self.evaluate(self.parts.feed.validation)
            head = self.parts.best_module.get_submodule(self.parts.network.head)
            feed = self.parts.feed  # its validation features are of all views
            return self._metrics(head, feed.validation, [feed.normalise])

    def evaluate(self, split: Split) -> Metrics:
        """The model's metrics on any split of images; takes no more memory than a training step."""
        self.parts.optimizer.zero_grad(set_to_none=True)
        steps = STEPS_AT_ONCE if self.parts.fine_tuning.everything_learns else 1
        with ExitStack() as stack:
            module = self.parts.best_module
            if self.parts.chosen["quantization"] == INT8:
                stack.enter_context(answering_in_eight_bits(module, self.splits.calibration()))
            stack.enter_context(self.parts.evaluator.at_most(steps * self.parts.training_step.micro_batch_size))
            normalise = self.splits.normalisation
            views: Views = [normalise, mirror(normalise)] if self.parts.chosen["test_time_flip"] else [normalise]
            return self._metrics(module, split, views)

    def _metrics(self, module: nn.Module, split: Split, views: Views) -> Metrics:
        with self.parts.precision.kernels():
            ask, evaluator = self.parts.strategy.logits, self.parts.evaluator
            answers = [ask(evaluator, module, split, normalise) for normalise in views]
            logits = answers[0] if len(answers) == 1 else mean_of_views(*answers)
            return self.splits.targets.metrics(logits, split.labels, self.parts.trial.chosen_metrics)

    def snapshot(self) -> Checkpoint:
        """Everything that the next step depends on, copied to the host: training may go on at once.

        Of several processes the first one has all of it.
        """
        return taken(self.parts, seed=self.seed, epoch=self.epoch, step=self.step)

    def save(self, folder: Path) -> None:
        """Write everything from which training goes on."""
        write_checkpoint(folder, self.snapshot())

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote, in this or another process.

        Raises:
            TrialError: the checkpoint is cut off, damaged, or another model's.
        """
        self.restore(read_checkpoint(folder), str(folder))

    def restore(self, checkpoint: Checkpoint, source: str = "another trial's") -> None:
        """Go on from a checkpoint that was read; `source` is for the message.

        Raises:
            TrialError: as in `load`; weights, optimizer and progress are unchanged.
        """
        progress = put_back(self.parts, checkpoint, source)
        self.epoch, self.step = progress.epoch, progress.step

    def batches(self, epoch: int) -> list[Tensor]:
        """Indices of an epoch's batches in its own order; if the last is too small for the group, it joins another."""
        order = epoch_order(len(self.splits.train), self.seed, epoch)
        return in_batches(order, self.parts.chosen["batch_size"], self.parts.strategy.least_batch)

    # Inside

    def _rate(self, steps: int) -> float:
        """The learning rate in the middle of the next step."""
        return float(self.parts.chosen["lr"] * self.parts.schedule.of_step(self.epoch, self.step, steps))

    def _check_loss(self, loss: float, kind: str) -> None:
        check_loss(loss, kind, epoch=self.epoch + 1, lr=self.learning_rate)

    def _result(
        self, train_loss: float, metrics: Metrics | None, seconds: float, images_per_second: float
    ) -> EpochResult:
        usage = self.parts.watch.end_epoch(replayed=self.parts.stepping.path == GRAPH)
        self.parts.notes.add(self.parts.watch.leak)
        held = torch.tensor([usage.memory_peak_bytes, usage.memory_bytes], dtype=torch.float64)
        peak, at_end = self.parts.strategy.group.highest(held).tolist()
        usage = replace(usage, memory_peak_bytes=peak, memory_bytes=at_end)
        return EpochResult(
            epoch=self.epoch,
            train_loss=train_loss,
            validation=metrics,
            learning_rate=self.learning_rate,
            seconds=seconds,
            images_per_second=images_per_second,
            micro_batch_size=self.parts.training_step.micro_batch_size,
            oom_retries=self.parts.training_step.retries,
            step_path=self.parts.stepping.path,
            threads=torch.get_num_threads(),
            batch_norm=self.parts.training_step.batch_norm,
            **asdict(usage),
        )
