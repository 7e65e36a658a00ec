"""One process that drives several GPUs: `torch.nn.DataParallel`, its losses computed on the first one or on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuner.train.data.splits import Split
from tuner.train.models.network import Network
from tuner.train.optimisation.precision import Precision
from tuner.train.parallel.strategy import LEAST_BATCH, Images, Normalise, Strategy
from tuner.train.step import TrainingStep
from tuner.train.tasks.objective import Objective

if TYPE_CHECKING:
    from tuner.train.evaluation import Evaluator


class OneProcess(Strategy):
    """The network is copied from the first GPU to the others in each step, and the batch scattered.

    Logits are gathered on the first GPU, where the loss is computed ("dp").
    """

    name = "dp"

    def __init__(self, devices: int) -> None:
        super().__init__()
        self.gpus = devices
        self._devices = list(range(devices))
        self._spread: dict[nn.Module, nn.Module] = {}

    @property
    def least_batch(self) -> int:
        """The least number of images in a batch."""
        return LEAST_BATCH * self.gpus

    def place(
        self, network: Network, device: torch.device, images: Images, precision: Precision, chosen: dict[str, Any]
    ) -> tuple[str, ...]:
        """See `Strategy.place`."""
        return (
            *super().place(network, device, images, precision, chosen),
            f"strategy='{self.name}' copies the network to all GPUs in every step and drives them from one process; "
            "strategy='ddp' gives the same gradients and avoids both; benchmarks/multi_device.py measures how much it "
            "saves",
        )

    def forward(self, module: nn.Module, precision: Precision) -> Callable[[Tensor], Tensor]:
        """The module on all GPUs."""
        return self._on_all(module, precision)

    def logits(self, evaluator: Evaluator, module: nn.Module, split: Split, normalise: Normalise) -> Tensor:
        """See `Strategy.logits`."""
        return evaluator.logits(self._on_all(module, evaluator.precision), split, normalise)

    def _on_all(self, module: nn.Module, precision: Precision) -> nn.Module:
        if module not in self._spread:
            self._spread[module] = EvenParallel(InPrecision(module, precision), self._devices)
        return self._spread[module]


class BalancedOneProcess(OneProcess):
    """Each GPU computes the loss of its own images as well ("balanced_dp").

    So only these sums are gathered, and the first GPU needs no more memory than the others.
    """

    name = "balanced_dp"

    def make_step(
        self, module: nn.Module, objective: Objective, precision: Precision, *, batch_size: int, clip_norm: float
    ) -> TrainingStep:
        """See `Strategy.make_step`."""
        return BalancedStep(
            module, objective, precision, batch_size=batch_size, clip_norm=clip_norm, devices=self._devices
        )

    def forward(self, module: nn.Module, precision: Precision) -> Callable[[Tensor], Tensor]:
        """The module unchanged: the losses are computed on all GPUs."""
        return module


class EvenParallel(nn.DataParallel[nn.Module]):
    """Shares of a batch differ by at most one image; torch's own may leave a single image for the last GPU."""

    def scatter(
        self, inputs: tuple[Tensor, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[Any]
    ) -> tuple[list[tuple[Tensor, ...]], list[dict[str, Any]]]:
        """Tensors [B, ...] divided among devices; a device without images is left out."""
        used = device_ids[: len(inputs[0])]
        shares = zip(*(one.tensor_split(len(used)) for one in inputs), strict=True)
        moved = [
            tuple(part.to(device, non_blocking=True) for part in share)
            for share, device in zip(shares, used, strict=True)
        ]
        return moved, [{} for _ in used]


class InPrecision(nn.Module):
    """A module whose forward pass sets its own precision, which `DataParallel`'s threads don't inherit."""

    def __init__(self, module: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.module, self._precision = module, precision

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, classes]."""
        with self._precision.arithmetic():
            logits: Tensor = self.module(images)
        return logits


class BalancedStep(TrainingStep):
    """Takes steps whose losses are computed on the GPUs that computed the logits."""

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        precision: Precision,
        *,
        batch_size: int,
        clip_norm: float,
        devices: list[int],
    ) -> None:
        super().__init__(module, objective, precision, batch_size=batch_size, clip_norm=clip_norm)
        self._devices = devices
        self._losses: tuple[object, nn.Module] | None = None

    def total(self, images: Tensor, targets: Tensor) -> Tensor:
        """See `TrainingStep.total`."""
        if self._losses is None or self._losses[0] is not self.forward:
            losses = Losses(self.forward, self._objective, self._precision)
            self._losses = self.forward, EvenParallel(losses, self._devices)
        found: Tensor = self._losses[1](images, targets)
        return found.sum()


class Losses(nn.Module):
    """A module with its objective: returns the sum of the losses [1] of images, on their device."""

    def __init__(self, forward: Callable[[Tensor], Tensor], objective: Objective, precision: Precision) -> None:
        super().__init__()
        self.module, self._objective, self._precision = forward, objective, precision
        for name, tensor in objective.tensors.items():
            self.register_buffer(name, tensor)  # copied to each GPU

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        """The sum for images [B, ...] and targets [B] int64 or [B, classes]."""
        with self._precision.arithmetic():
            logits = self.module(images)
        here = {name: self.get_buffer(name) for name in self._objective.tensors}
        return self._objective.having(here).total(logits, targets)[None]
