"""The head of one trial: its weights, and what its optimizer and its average keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tuner.errors import TrialError
from tuner.train.optimisation import Schedule
from tuner.train.tasks.one_label import CrossEntropy
from tuner.trial.only_the_head import LBFGS

STEP = "step"  # Adam's count, in the optimizer's state


@dataclass
class Head:
    """A linear layer that learns; tensors [P] have its weights [C, F], flat, then its biases [C].

    Attributes:
        chosen: hyperparameters
        seed: of the trial
        schedule: of the learning rate
        objective: its loss
        live: the parameters
        average: their moving average; None if there is none
        groups: the optimizer's, as plain data
        state: what the optimizer keeps for parameters, by torch's names; nothing before the first step
        steps: that Adam counts
        updates: of the average
        epoch: finished epochs
    """

    chosen: dict[str, Any]
    seed: int
    schedule: Schedule
    objective: CrossEntropy
    live: Tensor
    average: Tensor | None
    groups: list[dict[str, Any]]
    state: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0
    updates: int = 0
    epoch: int = 0

    @property
    def best(self) -> Tensor:
        """The parameters that are validated."""
        return self.live if self.average is None else self.average

    @property
    def learning_rate(self) -> float:
        """That of the last step."""
        return float(self.groups[0]["lr"])

    def set_learning_rate(self, lr: float) -> None:
        """Note that of the last step; the head's share of it is 1."""
        for group in self.groups:
            group["lr"] = lr

    def rates(self, steps: int) -> list[float]:
        """The learning rates of the next epoch's steps."""
        lr = self.chosen["lr"]
        return [lr * self.schedule.of_step(self.epoch, step, steps) for step in range(steps)]

    def optimizer_tensors(self, layer: nn.Linear) -> dict[str, Tensor]:
        """The optimizer's tensors by the names of `tuner.train.optimisation.optimizer.optimizer_tensors`."""
        named: dict[str, Tensor] = {}
        for name, values in self.state.items():
            for index, part in enumerate(parts_of(values, layer)):
                named |= {f"{index}.{name}": part}
                if name == "exp_avg":
                    named |= {f"{index}.{STEP}": torch.tensor(float(self.steps))}
        return named

    def take_state(self, tensors: Mapping[str, Tensor], source: str) -> None:
        """Go on from what `optimizer_tensors` returned; `source` is for the message.

        Raises:
            TrialError: they are of another optimizer; nothing is changed.
        """
        names = {"sgd": ("momentum_buffer",), LBFGS: ()}.get(self.chosen["optimizer"], ("exp_avg", "exp_avg_sq"))
        known = {f"{index}.{name}" for index in range(2) for name in names}
        if tensors and tensors.keys() - {f"0.{STEP}", f"1.{STEP}"} != known:
            raise TrialError(f"a checkpoint must fit the trial, got {source} of another optimizer; use another")
        self.state = {name: flat(tensors[f"0.{name}"], tensors[f"1.{name}"]) for name in names if tensors}
        self.steps = int(tensors.get(f"0.{STEP}", 0))


def flat(weight: Tensor, bias: Tensor) -> Tensor:
    """A copy [P] of a layer's parameters."""
    return torch.cat([weight.detach().flatten(), bias.detach()])


def parts_of(values: Tensor, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Views of weights [..., C, F] and biases [..., C] in [..., P]."""
    count = layer.weight.numel()
    return values[..., :count].view(*values.shape[:-1], *layer.weight.shape), values[..., count:]
