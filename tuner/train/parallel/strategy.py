"""How one trial is trained on one device or several: the part of the work that a `Trainer` leaves to its strategy.

`Strategy` is one device; `Replicas` one process per device, with a copy of the network each ("ddp"). `OneProcess` is
one process for several GPUs ("dp", "balanced_dp"), `Pipeline` one per device with a part of the network ("pipeline").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuner.train.data.splits import Batch, Split
from tuner.train.memory.raising import room_for_twice
from tuner.train.models.batch_norm import synchronise_batch_norms
from tuner.train.models.network import Network
from tuner.train.optimisation.precision import Precision
from tuner.train.parallel.group import ALONE, Group
from tuner.train.step import TrainingStep
from tuner.train.tasks.objective import Objective
from tuner.trial import HYPERPARAMETERS

if TYPE_CHECKING:
    from tuner.train.evaluation import Evaluator

LEAST_BATCH = int(HYPERPARAMETERS["batch_size"].low)  # batch norm needs more than a single value
Normalise = Callable[[Tensor], Tensor]
Images = Callable[[int], Tensor]


class Strategy:
    """One device trains the whole network.

    Attributes:
        group: the processes that train together
        draws: whether this process needs the images of a batch
        gpus: how many this process drives, if any
        keeps_features: whether a frozen backbone's features may be computed once and replace the images
    """

    draws = True
    gpus = 1
    keeps_features = True

    def __init__(self, group: Group = ALONE) -> None:
        self.group = group

    @property
    def least_batch(self) -> int:
        """The least number of images in a batch."""
        return LEAST_BATCH * self.group.size

    def part_of(self, batch_size: int) -> int:
        """How many images of a batch go through this device's network at once, unless memory runs out."""
        return -(-batch_size // self.group.size)

    def place(
        self, network: Network, device: torch.device, images: Images, precision: Precision, chosen: dict[str, Any]
    ) -> tuple[str, ...]:
        """Bring the network to the device.

        Args:
            network: on the CPU, as it was built
            device: of this process
            images: returns so many examples [B, C, H, W] on the device, normalised
            precision: of the arithmetic
            chosen: hyperparameters

        Returns:
            What the user should know, in sentences.

        Raises:
            StudyError: the network can't be trained with this strategy.
        """
        network.module.to(device)
        if device.type == "cuda":
            network.module.to(memory_format=torch.channels_last)
        return ()

    def batches(self, split: Split, batches: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        """The process's images and labels of each of the batches, given by their indices [B]."""
        return split.batches([self.group.share(batch) for batch in batches], device)

    def make_step(
        self, module: nn.Module, objective: Objective, precision: Precision, *, batch_size: int, clip_norm: float
    ) -> TrainingStep:
        """The object that takes the trial's steps, with batches of `batch_size` images."""
        device = next(module.parameters()).device
        return TrainingStep(
            module,
            objective,
            precision,
            batch_size=self.part_of(batch_size),
            clip_norm=clip_norm,
            group=self.group,
            room=lambda: room_for_twice(device),
        )

    def forward(self, module: nn.Module, precision: Precision) -> Callable[[Tensor], Tensor] | None:
        """The callable for training images that replaces the network or its head; None for no replacement."""
        return None

    def parameters_changed(self) -> None:
        """To be called when other parameters learn than before."""

    def logits(self, evaluator: Evaluator, module: nn.Module, split: Split, normalise: Normalise) -> Tensor:
        """The logits [N, classes] of a whole split, on each process that trains."""
        if len(split) < self.group.size:
            return evaluator.logits(module, split, normalise)
        part = self.group.share(torch.arange(len(split)))
        return self.group.joined(evaluator.logits(module, split, normalise, part))

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copies of named tensors on the host; process 0 gets those of all processes."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


class Replicas(Strategy):
    """Each process trains a copy of the network on its part of every batch; backward passes average the gradients.

    By torch's `DistributedDataParallel` (Li et al. 2020).
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._synchronised: nn.Module | None = None
        self._some_unused = False

    def place(
        self, network: Network, device: torch.device, images: Images, precision: Precision, chosen: dict[str, Any]
    ) -> tuple[str, ...]:
        """See `Strategy.place`."""
        if chosen["sync_batch_norm"]:
            synchronise_batch_norms(network.module, device)
        notes = super().place(network, device, images, precision, chosen)
        self._some_unused = _some_unused(network.module, images(LEAST_BATCH))
        return notes

    def forward(self, module: nn.Module, precision: Precision) -> Callable[[Tensor], Tensor]:
        """The module with its gradients synchronised."""
        if self._synchronised is None:
            self._synchronised = self.group.synchronised(module, some_unused=self._some_unused)
        return self._synchronised

    def parameters_changed(self) -> None:
        """A synchronised module is made for fixed learning parameters, so it is created again."""
        self._synchronised = None

    def logits(self, evaluator: Evaluator, module: nn.Module, split: Split, normalise: Normalise) -> Tensor:
        """See `Strategy.logits`: all with process 0's buffers, because each process's batch norms saw other images."""
        self.group.align(module.buffers())
        return super().logits(evaluator, module, split, normalise)


def _some_unused(module: nn.Module, images: Tensor) -> bool:
    """Whether the outputs for images [B, C, H, W] don't depend on some parameters."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    modes = {layer: layer.training for layer in module.modules()}
    answers: Tensor = module.eval()(images)
    for layer, mode in modes.items():
        layer.training = mode
    if not answers.requires_grad:
        return bool(parameters)
    return any(one is None for one in torch.autograd.grad(answers.sum(), parameters, allow_unused=True))
