"""The training loss of a batch that micro-batches share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

TINY = 1e-38  # the least probability that a loss tells from 0


@dataclass(frozen=True)
class Objective(ABC):
    """The loss of a batch, as a sum over images that micro-batches can share, and the weight to divide it by.

    Attributes:
        weighted: whether targets have their images' weights, see `tuner.train.data.splits.Weights`
    """

    _: KW_ONLY
    weighted: bool = False

    @abstractmethod
    def total(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Sum of the losses for outputs [B, L] and targets, [B] int64 or [B, L] or more columns."""

    def weight(self, targets: Tensor) -> Tensor | int:
        """The divisor of a whole batch's total for its mean."""
        return len(targets)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The attributes that are on a device."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def having(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same loss with other tensors, such as those on another device."""
        changed: dict[str, Any] = dict(tensors)
        return replace(self, **changed)


def at_least_float32(values: Tensor) -> Tensor:
    """Half-precision values as float32, others unchanged."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
