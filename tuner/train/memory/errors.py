"""Which errors mean that memory ran out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tuner.errors import TrialOutOfMemory
from tuner.train.memory.device import capacity_bytes, room_bytes

SIGNS_OF_EXHAUSTION = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "'out of memory'",  # NCCL, for a CUDA failure
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
    "could not create a primitive",  # oneDNN, on the CPU
)
DOUBTFUL_SIGNS = (  # they have other causes, too, and only mean that memory ran out if little of it is free
    "Unable to find a valid cuDNN algorithm",
    "GET was unable to find an engine",
    "FIND was unable to find an engine",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
)
LITTLE_BYTES, LITTLE_SHARE = 2**30, 0.05  # of a GPU; more memory to take than both is enough for any workspace
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, in CUDA's list of errors
SMALLER_MODEL = "use a smaller model or image_size"  # the fix if a smaller batch_size doesn't help


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says, in one of many ways, that the device or the host had too little memory.

    Ask before memory is released: some errors only mean it if little is free.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    if isinstance(error, torch.AcceleratorError) and getattr(error, "error_code", None) == OUT_OF_MEMORY:
        return True
    message = str(error).replace("could not create a primitive descriptor", "")  # this means an unsupported shape
    if any(sign in message for sign in SIGNS_OF_EXHAUSTION):
        return True
    return any(sign in message for sign in DOUBTFUL_SIGNS) and little_is_free()


def little_is_free() -> bool:
    """Whether this process may take less than 1 GiB or 5 % more of the current GPU; False if it uses none."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    device = torch.device("cuda", torch.cuda.current_device())
    return room_bytes(device) < max(LITTLE_BYTES, LITTLE_SHARE * capacity_bytes(device))


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def memory_errors(doing: str, fix: str = "lower batch_size") -> Iterator[None]:
    """Turn the many errors that mean it into TrialOutOfMemory; `doing` and `fix` are for its message."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrialOutOfMemory(f"{doing} needs more memory than there is ({first_line(error)}); {fix}") from error
