"""The device that a trial trains on."""

from __future__ import annotations

import torch


def with_index(device: torch.device) -> torch.device:
    """The device by its number, so that it compares equal to that of its tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device
