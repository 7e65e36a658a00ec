"""One step of the optimizer, in parts that fit into memory: a batch that is too big is halved, not refused."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tuner.errors import TrialOutOfMemory
from tuner.train.memory.batch_statistics import BatchNorms
from tuner.train.memory.errors import first_line, is_out_of_memory
from tuner.train.memory.raising import Raising
from tuner.train.optimisation.optimizer import drop_unfinished_state
from tuner.train.optimisation.precision import Precision
from tuner.train.parallel.group import ALONE, Group, without_synchronising
from tuner.train.tasks.objective import Objective

Prepare = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

WHOLE_BATCH, FIRST_PASS, RUNNING = "whole batch", "first pass over the whole batch", "running statistics"
SMALLER = "smaller micro-batches"  # remedies of a group that runs out of memory: this one and RUNNING


class TrainingStep:
    """Takes steps on batches; when memory runs out it repeats the step in micro-batches of half the size.

    Gradients of micro-batches are accumulated, so the batch size of the optimizer stays what the configuration says.
    Techniques that only make steps faster release their memory first. The micro-batch stays small until there was room
    for twice its size for a while, see `Raising`; in a group, for the rest of the trial. Only batch norm is affected,
    see `batch_norm`.

    Attributes:
        micro_batch_size: images that go through the network at once, once memory has run out
        largest: the size to which the micro-batch may be raised again
        raising: decides when it is raised
        first_pass_fits: whether the whole batch goes through without gradient, as far as is known
        retries: steps that were repeated
        batch_norm: where the statistics of batch norms come from: the whole batch, a first pass over it without
            gradient, or, if that doesn't fit either, the running statistics
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        precision: Precision,
        *,
        batch_size: int,
        clip_norm: float,
        group: Group = ALONE,
        room: Callable[[], bool] = lambda: False,
    ) -> None:
        """`room` says whether twice the micro-batch would fit into memory."""
        self._module, self._objective, self._precision, self._clip_norm = module, objective, precision, clip_norm
        self._group = group
        self._norms = BatchNorms(module)
        self._whole, self.first_pass_fits = batch_size, True
        self.forward: Callable[[Tensor], Tensor] = module  # in a group with synchronised gradients
        self.micro_batch_size = self.largest = batch_size
        self.raising = Raising(room)
        self.retries = 0
        self.batch_norm = WHOLE_BATCH

    def __call__(
        self,
        optimizer: Optimizer,
        batch: Callable[[], tuple[Tensor, Tensor]],
        seeded: Callable[[], None],
        count: int,
        relieve: Callable[[str], bool] = lambda _: False,
    ) -> Tensor:
        """Take one step; returns the mean loss, still on the device (in a group, this process's part of it).

        Args:
            optimizer: over the module's parameters
            batch: prepares the step's images [B, C, H, W] float32 and targets; called again if the step is repeated
            seeded: called before, so that a repeated step draws the same random numbers
            count: images of the step, in a group those of all processes
            relieve: releases, for the given reason, memory that steps can do without, such as compiled code's and with
                it `forward`'s; returns whether there was any

        Raises:
            TrialOutOfMemory: a single image doesn't fit.
        """
        self._norms.keep()
        while True:
            size = self.micro_batch_size
            try:
                seeded()
                images, targets = batch()
                size = min(size, len(images))
                loss = self.attempt(optimizer, images, targets, count)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = first_line(error)
            else:
                self._raise_again()
                return loss
            if self._group.size > 1:  # the others wait for gradients that will never come, so all have to begin again
                remedy = RUNNING if self._first_pass_failed else SMALLER
                raise TrialOutOfMemory(f"{size} images at once don't fit into memory ({reason})", remedy)
            # Outside of the handler the frames that held the activations are gone, and so is their memory.
            images = targets = None  # type: ignore[assignment]
            self._norms.put_back()
            self._give_way(optimizer, size, reason, relieved=relieve(reason))

    def total(self, images: Tensor, targets: Tensor) -> Tensor:
        """Sum of the losses of some images."""
        with self._precision.arithmetic():
            logits = self.forward(images)
        return self._objective.total(logits, targets)

    def attempt(self, optimizer: Optimizer, images: Tensor, targets: Tensor, count: int) -> Tensor:
        """Try one step, which fails if memory runs out; returns the mean loss like `__call__`."""
        optimizer.zero_grad(set_to_none=True)
        weight = self._weight(targets)
        if self._at_once(-(-count // self._group.size)):
            self.batch_norm = WHOLE_BATCH
            mean = self._learn(images, targets, weight)
        else:
            mean = self._in_parts(images, targets, weight)
        self._precision.step(optimizer, self._clip_norm)
        return mean

    def _in_parts(self, images: Tensor, targets: Tensor, weight: Tensor | int) -> Tensor:
        parts = micro_batches(len(images), self.micro_batch_size)
        mean = torch.zeros((), device=images.device)
        with self._statistics(images):
            for part in parts:
                with without_synchronising(self.forward, last=part is parts[-1]):
                    mean += self._learn(images[part], targets[part], weight)
        return mean

    def _learn(self, images: Tensor, targets: Tensor, weight: Tensor | int) -> Tensor:
        """Add the gradients of some images to the parameters'; returns their part of the mean loss."""
        loss = self.total(images, targets) / weight
        self._precision.backward(loss if self._group.size == 1 else loss * self._group.size)  # averaged in the group
        return loss.detach()

    def _at_once(self, largest: int) -> bool:
        """Whether no process has to divide its images, of which `largest` is the most: all must do the same."""
        return self.micro_batch_size >= self._whole or len(micro_batches(largest, self.micro_batch_size)) == 1

    def _weight(self, targets: Tensor) -> Tensor | int:
        """The divisor for the mean over the group's whole batch."""
        weight = self._objective.weight(targets)
        if self._group.size == 1:
            return weight
        return self._group.sum(torch.as_tensor(weight, dtype=torch.float32, device=targets.device))

    def _statistics(self, images: Tensor) -> AbstractContextManager[None]:
        if not self._norms.learning:
            self.batch_norm = WHOLE_BATCH
            return nullcontext()
        if self.first_pass_fits:
            self.batch_norm = FIRST_PASS
            return self._norms.whole_batch(lambda: self._first_pass(images), self._group.sum)
        self.batch_norm = RUNNING
        return self._norms.frozen()

    @property
    def _first_pass_failed(self) -> bool:
        return self.batch_norm == FIRST_PASS and not self.first_pass_fits

    def _first_pass(self, images: Tensor) -> None:
        try:
            with self._precision.arithmetic():
                self._module(images)
        except (RuntimeError, MemoryError) as error:
            self.first_pass_fits = not is_out_of_memory(error)
            raise

    def _raise_again(self) -> None:
        """Raise the micro-batch again after a successful step, if there is memory."""
        if self._group.size == 1 and self.micro_batch_size < self.largest and self.raising.after_step():
            self.micro_batch_size = min(2 * self.micro_batch_size, self.largest)

    def forget(self, optimizer: Optimizer) -> None:
        """Free what a step that failed half-way held, mainly its gradients."""
        optimizer.zero_grad(set_to_none=True)
        drop_unfinished_state(optimizer)
        self._precision.forget_step(optimizer)
        collect_garbage()

    def undo(self, optimizer: Optimizer) -> None:
        """Forget a step that failed half-way, with what it did to the statistics of batch norms."""
        self._norms.put_back()
        self.forget(optimizer)

    def _give_way(self, optimizer: Optimizer, size: int, reason: str, *, relieved: bool) -> None:
        """Free what the failed step held; halve the micro-batch, unless other memory or the first pass was given up."""
        self.forget(optimizer)
        self.retries += 1
        if relieved:
            return
        if self._first_pass_failed:
            self.batch_norm = RUNNING
            return
        if size <= 1:
            raise TrialOutOfMemory(f"a single image doesn't fit into memory ({reason})")
        self.micro_batch_size = math.ceil(size / 2)
        self.raising.ran_out()


def collect_garbage() -> None:
    """Free unreferenced objects, and return memory that torch keeps for later to the GPU."""
    gc.collect()
    torch.cuda.empty_cache()  # does nothing if the process uses no GPU


def in_batches(order: Tensor, size: int, least: int) -> list[Tensor]:
    """An epoch's order [..., N] as batches [..., B]; if the last has fewer than `least` images, it joins another."""
    images = order.shape[-1]
    ends = list(range(size, images, size))
    if ends and images - ends[-1] < least:
        ends.pop()
    return list(torch.tensor_split(order, ends, dim=-1))


def micro_batches(images: int, size: int) -> list[slice]:
    """Slices of at most `size`; a single last image joins the slice before, unless all are single."""
    starts = list(range(0, images, size))
    if size > 1 and len(starts) > 1 and images % size == 1:
        starts.pop()
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], images], strict=True)]
