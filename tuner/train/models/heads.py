"""The head of a vision transformer for other tokens than its library's head sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.trial.pooling import BOTH, MEAN, Pooling

Summary = tuple[Tensor | None, Tensor]


@dataclass(frozen=True)
class TokenReader:
    """How the tokens of a library's transformers are read.

    Attributes:
        width: gives the width of a token
        summaries: gives of each of the last blocks the class token [B, width], if there is one, and the mean of the
            patches [B, width], both after the final norm; takes the module, images [B, C, H, W], and how many blocks
    """

    width: Callable[[Any], int]
    summaries: Callable[[Any, Tensor, int], list[Summary]]


def fit_head(module: nn.Module, head: str, reader: TokenReader, pooling: Pooling) -> None:
    """Give the module a fresh head for what `pooling` says; the names of its tensors don't change.

    The vectors are joined as in DINOv2's linear evaluation (Oquab et al. 2023; `create_linear_input` in
    https://github.com/facebookresearch/dinov2/blob/main/dinov2/eval/linear.py). Beside class
    tokens it takes the mean of the last block only; "mean" alone takes it of each block, as "token" does with class
    tokens.
    """

    def forward(self: nn.Module, images: Tensor) -> Tensor:
        logits: Tensor = self.get_submodule(head)(_joined(reader.summaries(self, images, pooling.blocks), pooling.kind))
        return logits

    old = module.get_submodule(head)
    assert isinstance(old, nn.Linear)
    module.set_submodule(head, nn.Linear(pooling.vectors * reader.width(module), old.out_features))
    kind = type(module)  # a class of its own, because copies of the module (replicas, averages) would call its method
    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})


def _joined(summaries: list[Summary], kind: str) -> Tensor:
    """The head's input [B, vectors * width], from the earliest of the blocks to the last."""
    means = [mean for _, mean in summaries]
    if kind == MEAN:
        return torch.cat(means, 1)
    tokens = [token for token, _ in summaries if token is not None]
    return torch.cat([*tokens, *means[-1:]] if kind == BOTH else tokens, 1)
