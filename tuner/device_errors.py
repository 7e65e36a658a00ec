"""Errors of a GPU after which the process can't use it any more, and not those that only make one operation fail.

CUDA calls the first kind sticky: every later call in the process returns the same error
(https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html). torch raises `AcceleratorError` or a plain
`RuntimeError`, often from a call long after the one that went wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")  # the context lives on
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
    """Whether the process can't use its GPU any more after `error`, or what it came of: it must be replaced."""
    return any(map(_kills_context, _chain(error)))


def is_device_fault(error: BaseException) -> bool:
    """Whether the machine failed rather than the trial, which may go on elsewhere."""
    return any(_kills_context(link) and _NOT_THE_TRIALS.search(_said(link)) for link in _chain(error))


def advice(error: BaseException) -> str:
    """What most often lies behind the error, or how to find out."""
    text = " ".join(map(_said, _chain(error)))
    known = next((fix for sign, fix in _ADVICE if sign in text), None)
    return known or "set CUDA_LAUNCH_BLOCKING=1 to see which operation it was"


def dead_context() -> Exception | None:
    """What this process's GPUs answer where an error that nobody raised has made one unusable; None if all is well.

    Waits for what they still compute. Neither torch is imported for it, nor CUDA initialised.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        for device in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(device):  # a context is there already
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
    """The first line: to every CUDA error torch adds the same lines, in which other errors are named."""
    return str(error).strip().split("\n")[0]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came of."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
