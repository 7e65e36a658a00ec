"""Errors that mean that memory ran out, told from those that don't."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tuner.errors import TrialOutOfMemory

SIGNS_OF_EXHAUSTION = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "can't allocate memory",
    "not enough memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says, in one of its many ways, that the device or the host had too little memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS_OF_EXHAUSTION)


@contextmanager
def memory_errors(doing: str) -> Iterator[None]:
    """Raise TrialOutOfMemory in place of the many errors that mean it; `doing` is for the message."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        raise TrialOutOfMemory(f"{doing} needs more memory than there is ({first_line}); lower batch_size") from error
