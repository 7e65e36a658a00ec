"""The device that a trial trains on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def with_index(device: torch.device) -> torch.device:
    """The device by its number, so that it compares equal to that of its tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device


def fast_convolutions(device: torch.device) -> AbstractContextManager[object]:
    """On a GPU, within it, cuDNN tries its algorithms and keeps the fastest."""
    if device.type != "cuda":
        return nullcontext()
    flags: AbstractContextManager[object] = torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True)
    return flags
