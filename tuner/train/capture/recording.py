"""Work on tensors at fixed addresses: recorded once as a CUDA graph, then launched as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Protocol

import torch

Work = Callable[[], None]


class Recorder(Protocol):
    """Records some work, and repeats it."""

    def warming_up(self) -> AbstractContextManager[None]:
        """Within it work runs as it will be recorded, so that libraries do their one-time work before."""

    def record(self, work: Work) -> None:
        """Record the work, which replaces an earlier recording; nothing is computed."""

    def replay(self, work: Work) -> None:
        """Compute the work that was recorded."""

    def release(self) -> None:
        """Forget what was recorded, and give its memory back."""


class CudaGraphRecorder:
    """Records by `torch.cuda.CUDAGraph`, on a stream of its own, with memory that nothing else uses.

    As torch's notes on CUDA graphs say (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs): the warm-up
    runs on the stream of the recording; tensors that are made within the work belong to the graph; the GPU's default
    generator is part of every graph, which draws from the seed that the generator has when it is replayed. Other
    threads, such as one that pins memory for a loader, may call CUDA meanwhile.

    Found on an H200: after work that can't be recorded, the memory of its attempt stays reserved as long as the process
    lives, see `Stepping.broken`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def warming_up(self) -> Iterator[None]:
        """See `Recorder.warming_up`."""
        side, usual = _side_stream(self._device), torch.cuda.current_stream(self._device)
        side.wait_stream(usual)
        with torch.cuda.stream(side):
            yield
        usual.wait_stream(side)

    def record(self, work: Work) -> None:
        """See `Recorder.record`; raises CUDA's exception if the work can't be recorded."""
        self.release()
        try:
            self._graph = self._recorded(work)
        except BaseException:
            # Torch tells its generator the end of a recording only if that succeeds: until then it refuses to draw.
            self._recorded(lambda: torch.zeros((), device=self._device).add_(1))
            raise

    def _recorded(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph, usual = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            with (
                torch.cuda.device(self._device),
                torch.cuda.graph(graph, stream=_side_stream(self._device), capture_error_mode="thread_local"),
            ):
                work()
        finally:
            torch.cuda.set_stream(usual)  # torch stays on the other stream if ending a recording fails
        return graph

    def replay(self, work: Work) -> None:
        """See `Recorder.replay`; the host doesn't wait for it."""
        if self._graph is not None:
            self._graph.replay()

    def release(self) -> None:
        """See `Recorder.release`."""
        if self._graph is not None:
            torch.cuda.synchronize(self._device)  # it may still be running
            self._graph.reset()
            self._graph = None


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all trials of a process: cuBLAS keeps memory for each stream that it has worked on, 66 MiB on an H200."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
