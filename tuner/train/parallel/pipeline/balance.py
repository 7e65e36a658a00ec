"""The measured cost of each block of a network, and the stages that share the cost best."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from tuner.train.parallel.pipeline.chain import Chain

ROUNDS = 5  # the fastest counts, because other processes can only make one slower


@dataclass(frozen=True)
class Cost:
    """The cost of one block.

    Attributes:
        seconds: forward, and backward if requested
        shape: of the output to the next block, without the axis of the images
        dtype: of this output
    """

    seconds: float
    shape: tuple[int, ...]
    dtype: torch.dtype


def measure(
    chain: Chain, images: Tensor, arithmetic: Callable[[], AbstractContextManager[object]], *, backward: bool = True
) -> list[Cost]:
    """Run block after block, in evaluation mode, each on the device of `images` [B, C, H, W] while it is measured.

    As in training, there is no gradient with respect to the images: it would make the first block by far the most
    expensive.
    """
    costs, values, home = [], images, next(chain.module.parameters()).device
    modes = {layer: layer.training for layer in chain.module.modules()}
    chain.module.eval()
    for index in range(len(chain.blocks)):
        block = chain.part(index, index + 1).to(images.device)
        passes_back = backward and index > 0
        rounds = [_round(block, values, arithmetic, backward, passes_back) for _ in range(ROUNDS)]
        values = rounds[-1][1]
        seconds = min(seconds for seconds, _ in rounds)
        costs.append(Cost(seconds, tuple(values.shape[1:]), values.dtype))
        block.to(home)
    for layer, mode in modes.items():
        layer.training = mode
    return costs


def balanced(seconds: Sequence[float], stages: int) -> tuple[int, ...]:
    """Where each stage starts so that the slowest one is as fast as possible.

    Linear partitioning by dynamic programming.

    Args:
        seconds: of each block, as many as stages or more
        stages: one or more
    """
    sums = [0.0, *accumulate(seconds)]
    count = len(seconds)
    # best[n]: the slowest stage and the starts, of the first n blocks in as many stages as rounds were made
    best: dict[int, tuple[float, tuple[int, ...]]] = {n: (sums[n], (0,)) for n in range(1, count + 1)}
    for stage in range(1, stages):
        best = {
            n: min((max(best[m][0], sums[n] - sums[m]), (*best[m][1], m)) for m in range(stage, n))
            for n in range(stage + 1, count + 1)
        }
    return best[count][1]


def _round(
    block: nn.Module,
    values: Tensor,
    arithmetic: Callable[[], AbstractContextManager[object]],
    backward: bool,
    passes_back: bool,
) -> tuple[float, Tensor]:
    parameters = [parameter for parameter in block.parameters() if parameter.is_floating_point()] if backward else []
    wanted = [parameter.requires_grad for parameter in parameters]
    for parameter in parameters:
        parameter.requires_grad_(True)
    given = values.detach().requires_grad_(passes_back)
    begun = _now(values.device)
    with torch.set_grad_enabled(backward), arithmetic():
        found: Tensor = block(given)
    if found.requires_grad:
        learning = [given, *parameters] if passes_back else parameters
        torch.autograd.grad(found, learning, torch.ones_like(found), allow_unused=True)
    ended = _now(values.device)
    for parameter, learns in zip(parameters, wanted, strict=True):
        parameter.requires_grad_(learns)
    return ended - begun, found.detach()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
