"""Errors of a GPU after which the process can't use it any more, as opposed to those that only fail one operation.

CUDA calls the first kind sticky: every later call in the process returns the same error
(https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html). torch raises `AcceleratorError` or a plain
`RuntimeError`, often from a call long after the one that went wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")  # the context is still usable
_DEAD = re.compile(
    r"\b(CUDA|HIP|CUDA driver) error:|(CUBLAS|CUDNN)_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)"
    r"|device-side assert|illegal memory access|misaligned address|illegal instruction|unspecified launch failure"
    r"|uncorrectable ECC|launch timed out|fallen off the bus"
)
_NOT_THE_TRIALS = re.compile(r"\bECC\b|launch timed out|\bMPS\b|fallen off the bus|is/are busy or unavailable")
_ADVICE = (
    ("device-side assert", "most often a label lies outside the model's classes"),
    ("ECC", "the GPU's memory is failing, see `nvidia-smi -q -d ECC`"),
    ("launch timed out", "a display shares the GPU and its driver ends long kernels"),
    ("MPS", "another process of the same MPS server failed, or the server ended"),
    ("busy", "another process holds the GPU in exclusive mode, see `nvidia-smi -q -d COMPUTE`"),
)


def context_is_dead(error: BaseException) -> bool:
    """Whether the process can't use its GPU any more after `error` or its cause: the process must be replaced."""
    return any(map(_kills_context, _chain(error)))


def is_device_fault(error: BaseException) -> bool:
    """Whether the machine failed and not the trial, which may go on elsewhere."""
    return any(_kills_context(link) and _NOT_THE_TRIALS.search(_said(link)) for link in _chain(error))


def advice(error: BaseException) -> str:
    """The most frequent cause of the error, or how to find the cause."""
    text = " ".join(map(_said, _chain(error)))
    known = next((fix for sign, fix in _ADVICE if sign in text), None)
    return known or "set CUDA_LAUNCH_BLOCKING=1 to see which operation it was"


def dead_context() -> Exception | None:
    """The error of this process's GPUs if one became unusable without a raised exception; None if all is well. Waits
    until they have finished computing. It doesn't import torch or initialise CUDA.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        for device in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(device):  # a context exists already
                torch.cuda.synchronize(device)
    except Exception as error:
        return error
    return None


def _kills_context(error: BaseException) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}  # not the classes: torch may not be imported
    text = _said(error)
    if "OutOfMemoryError" in names or not isinstance(error, RuntimeError) or any(sign in text for sign in MEMORY):
        return False
    return "AcceleratorError" in names or _DEAD.search(text) is not None


def _said(error: BaseException) -> str:
    """The first line: torch adds the same lines, which name other errors, to every CUDA error."""
    return str(error).strip().split("\n")[0]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
