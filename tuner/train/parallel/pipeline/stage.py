"""One stage of a pipeline: its part of the network, and the schedules of micro-batches that go through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.train.without_compiler import compiler_not_needed

with compiler_not_needed():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle


@dataclass(frozen=True)
class Link:
    """The tensor that goes from one stage to the next: shape without the axis of the images, and type."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def buffer(self, images: int, device: torch.device | str = "meta", *, learns: bool = False) -> Tensor:
        """An empty tensor for this many images."""
        return torch.empty(images, *self.shape, dtype=self.dtype, device=device, requires_grad=learns)


class Stage:
    """A process's part of the network, and how micro-batches are streamed through it.

    Schedules are torch's: one forward, one backward in turn (PipeDream-flush, Narayanan et al. 2021), which holds the
    activations of as many micro-batches as there are stages; GPipe (Huang et al. 2019) if there are fewer micro-batches
    than stages.
    """

    def __init__(
        self,
        part: nn.Module,
        index: int,
        count: int,
        device: torch.device,
        arithmetic: Callable[[], AbstractContextManager[object]],
        *,
        before: Link,
        after: Link,
    ) -> None:
        """Stage number `index`, from 0, of `count`, between two links; at both ends these are the network's own."""
        self.index, self.count, self.device = index, count, device
        self.before, self.after = before, after
        self._part = Part(part, arithmetic)
        self._schedules: dict[tuple[int, int, bool, bool], PipelineScheduleSingle] = {}
        self._loss: Callable[[Tensor, Tensor], Tensor] | None = None

    @property
    def first(self) -> bool:
        """Whether this stage takes the images."""
        return self.index == 0

    @property
    def last(self) -> bool:
        """Whether this stage gives the logits."""
        return self.index == self.count - 1

    def train(
        self,
        images: Tensor | None,
        targets: Tensor | None,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        size: int,
        chunks: int,
        learns_before: bool,
        learns: bool,
    ) -> None:
        """Add the gradients of some micro-batches to this part's parameters.

        Args:
            images: [chunks * size, C, H, W], on the first stage
            targets: on the last stage, the same number
            loss: from the logits and targets of a micro-batch; on the last stage
            size: images in a micro-batch
            chunks: number of micro-batches
            learns_before: whether any stage before this one has parameters that learn
            learns: whether this stage has such parameters
        """
        self._loss = loss
        key = (size, chunks, learns_before, learns)
        if key not in self._schedules:
            self._schedules[key] = self._schedule(*key)
        given: tuple[Any, ...] = (images,) if self.first else ()
        self._schedules[key].step(*given, target=targets if self.last else None, return_outputs=False)

    def stream(self, module: nn.Module, batches: Iterator[Tensor] | list[int]) -> list[Tensor]:
        """Pass batch after batch on without gradients; yields the outputs on the last stage.

        Args:
            module: the part, or a copy of it with other weights
            batches: images [B, C, H, W] on the first stage, numbers of images on the others
        """
        part, found = Part(module, self._part.arithmetic), []
        sent: list[tuple[torch.distributed.Work, Tensor]] = []
        for batch in batches:
            if isinstance(batch, Tensor):
                values = batch
            else:
                values = self.before.buffer(batch, self.device)
                torch.distributed.recv(values, self.index - 1)
            with torch.inference_mode():
                output = part(values)
            if self.last:
                found.append(output.float())
                continue
            if sent:
                sent.pop()[0].wait()
            work = torch.distributed.isend(output, self.index + 1)
            if work is not None:
                sent.append((work, output))
        for work, _ in sent:
            work.wait()
        return found

    def _schedule(self, size: int, chunks: int, learns_before: bool, learns: bool) -> PipelineScheduleSingle:
        stage = PipelineStage(
            self._part,
            self.index,
            self.count,
            self.device,
            input_args=self.before.buffer(size, learns=learns_before),
            output_args=self.after.buffer(size, learns=learns_before or learns),
        )
        kind = Schedule1F1B if chunks >= self.count else ScheduleGPipe
        return kind(stage, chunks, self._loss_of, scale_grads=False)

    def _loss_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        assert self._loss is not None
        return self._loss(logits, targets)


class Part(nn.Module):
    """A part of a network in some arithmetic; its output has the memory layout that other processes expect."""

    def __init__(self, module: nn.Module, arithmetic: Callable[[], AbstractContextManager[object]]) -> None:
        super().__init__()
        self.module, self.arithmetic = module, arithmetic

    def forward(self, values: Tensor) -> Tensor:
        """[B, ...] to [B, ...]."""
        if values.device.type == "cuda" and values.ndim == 4:
            values = values.to(memory_format=torch.channels_last)
        with self.arithmetic():
            passed_on: Tensor = self.module(values)
        return passed_on.contiguous()
