"""One trial's training, epoch by epoch; knows nothing of who runs it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import SGD, Adam, Optimizer

from tuner.errors import TrialDiverged, TrialError, WeightsError
from tuner.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tuner.train.data import Split, in_chunks, load_splits
from tuner.train.evaluation import evaluate
from tuner.train.memory import memory_errors
from tuner.train.models import build_network, load_state
from tuner.train.randomness import derive_seed, seeded
from tuner.trial import ImageClassifier

STEPS_BETWEEN_CHECKS = 64  # a look at the loss makes the host wait for the device, so not at every step

INITIAL_WEIGHTS, TRAINING = 0, 1  # streams of random numbers that one trial's seed is split into


@dataclass(frozen=True)
class EpochResult:
    """What one epoch came to.

    Attributes:
        epoch: finished epochs, this one included
        train_loss: mean over the epoch's steps of what was minimised, label smoothing included
        val_loss: mean cross-entropy on the validation split
        val_accuracy: share of correct answers there
        learning_rate: of the epoch's last step
        seconds: training and validation
        images_per_second: training images per second of training
    """

    epoch: int
    train_loss: float
    val_loss: float
    val_accuracy: float
    learning_rate: float
    seconds: float
    images_per_second: float

    def metrics(self) -> dict[str, float]:
        """Everything but the epoch's number, by name."""
        return {name: value for name, value in asdict(self).items() if name != "epoch"}


class Trainer:
    """Fine-tunes one image classifier with one configuration.

    Everything random comes from `seed` and the number of the epoch, so the same trial gives the same curve in a fresh
    and in a used process, and one that goes on from a checkpoint the same as one that was never interrupted.
    On the CPU both hold bit for bit as long as torch's number of threads is the same.
    """

    def __init__(
        self,
        trial: ImageClassifier,
        config: dict[str, Any],
        *,
        epochs: int,
        seed: int,
        split_seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """Load data and model, ready for the first epoch.

        Args:
            trial: data, model, weights
            config: hyperparameters by name; those left out take their defaults
            epochs: the budget's length of a trial, which the hyperparameter `epochs` may shorten
            seed: of this trial, >= 0
            split_seed: of the study, decides which images are held out
            device: "cpu", "cuda", "cuda:1"

        Raises:
            StudyError: a hyperparameter's name or value can't work (DataError, WeightsError: files can't).
            TrialOutOfMemory: model and data don't fit on the device.
        """
        self.trial = trial
        self.hyperparameters = trial.hyperparameters(config)
        self.total_epochs = min(epochs, self.hyperparameters["epochs"] or epochs)
        self.seed = seed
        self.device = torch.device(device)
        self.epoch = 0
        self.splits = load_splits(trial, seed=split_seed, image_size=self.hyperparameters["image_size"])
        self.network = build_network(
            trial,
            channels=self.splits.channels,
            classes=len(self.splits.classes),
            seed=derive_seed(seed, INITIAL_WEIGHTS),
        )
        with memory_errors("the model with its data"):
            self.module = self.network.module.to(self.device)
            self.train_split = self.splits.train.to(self.device)
        self.optimizer = self._build_optimizer()

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.total_epochs

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how the weights were taken."""
        return self.network.notes

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def run_epoch(self) -> EpochResult:
        """Train on every training image once, then validate.

        Raises:
            TrialDiverged: a loss became NaN or infinite.
            TrialOutOfMemory: a step didn't fit in memory.
        """
        start = time.perf_counter()
        with memory_errors(f"a step of {self.hyperparameters['batch_size']} images"):
            train_loss = self.train_epoch()
            trained = time.perf_counter()
            val_loss, val_accuracy = self.evaluate(self.splits.validation)
        self._check_loss(val_loss, "validation")
        self.epoch += 1
        return EpochResult(
            epoch=self.epoch,
            train_loss=train_loss,
            val_loss=val_loss,
            val_accuracy=val_accuracy,
            learning_rate=self.learning_rate,
            seconds=time.perf_counter() - start,
            images_per_second=len(self.train_split) / (trained - start),
        )

    def train_epoch(self) -> float:
        """One pass over the training images; the mean loss."""
        self._set_training_mode()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with seeded(derive_seed(self.seed, TRAINING, self.epoch), self.device):
            for step, indices in enumerate(self.batches(), start=1):
                total += self.train_step(indices) * len(indices)
                if step % STEPS_BETWEEN_CHECKS == 0:
                    self._check_loss(float(total), "training")
        self._check_loss(float(total), "training")
        return float(total) / len(self.train_split)

    def batches(self) -> Iterator[Tensor]:
        """Indices of the epoch's batches in a fresh order; a last batch of one joins the one before it.

        The order comes from torch's global generator on the CPU.
        """
        order = torch.randperm(len(self.train_split)).to(self.device)
        size = self.hyperparameters["batch_size"]
        if len(order) > size and len(order) % size == 1:  # batch norm has no statistics of a single value
            yield from in_chunks(order[: -size - 1], size)
            yield order[-size - 1 :]
        else:
            yield from in_chunks(order, size)

    def train_step(self, indices: Tensor) -> Tensor:
        """One step of the optimizer on the images at `indices` [B]; the loss, still on the device."""
        images = self.splits.normalisation(self.train_split.images[indices])
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(
            self.module(images),
            self.train_split.labels[indices],
            label_smoothing=self.hyperparameters["label_smoothing"],
        )
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def evaluate(self, split: Split) -> tuple[float, float]:
        """Mean cross-entropy and accuracy on a split."""
        return evaluate(self.module, split, self.splits.normalisation, self.device)

    def save(self, folder: Path) -> None:
        """Write everything that training goes on from."""
        state = self.optimizer.state_dict()
        tensors = {
            f"optimizer.{index}.{name}": value
            for index, entry in state["state"].items()
            for name, value in entry.items()
            if isinstance(value, Tensor)
        }
        scalars = {"epoch": self.epoch, "seed": self.seed, "param_groups": state["param_groups"]}
        write_checkpoint(folder, Checkpoint(self.module.state_dict(), tensors, scalars))

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote, in this or another process.

        Raises:
            TrialError: the checkpoint is cut off or damaged, or another model's.
        """
        checkpoint = read_checkpoint(folder)
        try:
            load_state(self.module, checkpoint.model, source=str(folder), name=self.trial.model)
            self.optimizer.load_state_dict(_optimizer_state(checkpoint))
        except (WeightsError, ValueError) as error:
            raise TrialError(f"a checkpoint must fit the trial, got {folder}: {error}") from error
        self.epoch = checkpoint.scalars["epoch"]

    def _build_optimizer(self) -> Optimizer:
        """The configuration's optimizer over what learns; fused, which spends a third less on a small step."""
        chosen = self.hyperparameters
        if chosen["finetune"] == "head":
            self.network.freeze_backbone()
        learning = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if chosen["optimizer"] == "adam":
            return Adam(learning, lr=chosen["lr"], weight_decay=chosen["weight_decay"], fused=True)
        return SGD(
            learning, lr=chosen["lr"], momentum=chosen["momentum"], weight_decay=chosen["weight_decay"], fused=True
        )

    def _set_training_mode(self) -> None:
        if self.hyperparameters["finetune"] == "head":
            self.network.train_head()
        else:
            self.module.train()

    def _check_loss(self, loss: float, kind: str) -> None:
        if not math.isfinite(loss):
            raise TrialDiverged(
                f"the loss must stay finite, got a {kind} loss of {loss} in epoch {self.epoch + 1} with "
                f"lr={self.learning_rate:g}; lower lr"
            )


def _optimizer_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """The tensors of a checkpoint in the nesting of an optimizer's `state_dict`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in checkpoint.training.items():
        kind, index, name = key.split(".", 2)
        if kind == "optimizer":
            state.setdefault(int(index), {})[name] = tensor
    return {"state": state, "param_groups": checkpoint.scalars["param_groups"]}
