"""The processes that train one model together, each on its own device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import FileStore, Store, TCPStore  # type: ignore[attr-defined]

from tuner.train.without_compiler import averaging_gradients

SECONDS = 600.0  # that a process waits for the others, for instance while one reads data that others have cached


@dataclass(frozen=True)
class Group:
    """Process number `rank`, from 0, of `size`; all processes call the same methods in the same order."""

    rank: int = 0
    size: int = 1

    def share(self, indices: Tensor) -> Tensor:
        """The process's part of a batch's indices [B]: lengths of parts differ by one at most, none is left out."""
        return indices.tensor_split(self.size)[self.rank]

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes; the tensor is replaced by it."""
        if self.size > 1:
            torch.distributed.all_reduce(values)
        return values

    def highest(self, values: Tensor) -> Tensor:
        """The highest of each value over all processes; the tensor is replaced by it."""
        if self.size > 1:
            torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX)
        return values

    def joined(self, part: Tensor) -> Tensor:
        """The rows of all processes one after the other, from parts [N, ...] whose lengths may differ by one."""
        if self.size == 1:
            return part
        rows = self.sum(torch.tensor([len(part)], device=part.device))
        longest = -(-int(rows) // self.size)
        padded = torch.zeros(longest, *part.shape[1:], dtype=part.dtype, device=part.device)
        padded[: len(part)] = part
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        torch.distributed.all_gather(parts, padded)
        lengths = [len(chunk) for chunk in torch.arange(int(rows)).tensor_split(self.size)]
        return torch.cat([one[:length] for one, length in zip(parts, lengths, strict=True)])

    def gathered(self, part: object) -> list[Any]:
        """On process 0 the values of all processes, in their order; nothing on the others."""
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        torch.distributed.gather_object(part, found)
        return found or []

    def told(self, values: list[Any]) -> list[Any]:
        """The values of process 0, sent to all processes, in a list of the same length."""
        if self.size > 1:
            torch.distributed.broadcast_object_list(values, 0)
        return values

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Give tensors the values that they have in process 0."""
        for tensor in tensors if self.size > 1 else ():
            values = tensor.contiguous()
            torch.distributed.broadcast(values, 0)
            if values is not tensor:
                tensor.copy_(values)

    def synchronised(self, module: nn.Module, *, some_unused: bool = False) -> nn.Module:
        """The module with its gradients averaged over all processes in each backward pass.

        It has to be created again when other parameters learn. Buffers are those of process 0. `some_unused`: whether
        the output doesn't depend on some parameters.
        """
        device = next(module.parameters()).device
        return averaging_gradients(
            module,
            device_ids=[device] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            find_unused_parameters=some_unused,
        )


ALONE = Group()


def without_synchronising(forward: Callable[[Tensor], Tensor], *, last: bool) -> AbstractContextManager[object]:
    """Within it a backward pass, unless it is a step's last one, only adds to the gradients of this process."""
    if last or not isinstance(forward, nn.parallel.DistributedDataParallel):
        return nullcontext()
    kept: AbstractContextManager[object] = forward.no_sync()
    return kept


@contextmanager
def joined(rank: int, size: int, meeting: str | Path, device: torch.device | str = "cpu") -> Iterator[Group]:
    """Join the group of processes, and leave it at the end.

    After an exception it isn't left: NCCL would wait for the others, which may wait for this process. So this process
    has to end.

    Tensors on GPUs are exchanged by NCCL, those on the host by gloo; on one machine over loopback. A file needs no port
    that another trial could take.

    Args:
        rank: number of this process, from 0
        size: number of processes
        meeting: path of a file of this machine, which must not exist, or HOST:PORT of a `TCPStore`
        device: of this process
    """
    host, _, port = str(meeting).rpartition(":")
    if host:
        store: Store = TCPStore(host, int(port), is_master=False)
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        store = FileStore(str(meeting), size)
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.device(device).type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=SECONDS),
    )
    yield Group(rank, size)
    torch.distributed.destroy_process_group()
