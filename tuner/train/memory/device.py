"""The memory that this process may use: all of a GPU, or its part of one that it shares; all of the machine's."""

from __future__ import annotations

import torch

from tuner.machine.hardware import this_machine


def capacity_bytes(device: torch.device) -> int:
    """The most memory that this process may have on the device; that of the machine (or container) for the CPU."""
    if device.type != "cuda":
        return this_machine().memory_bytes
    return int(torch.cuda.get_per_process_memory_fraction(device) * torch.cuda.mem_get_info(device)[1])


def room_bytes(device: torch.device) -> int:
    """Memory of a GPU that this process may still take, beyond what torch's allocator keeps for it already."""
    free = torch.cuda.mem_get_info(device)[0]
    return max(0, min(free, capacity_bytes(device) - torch.cuda.memory_reserved(device)))


def is_shared(device: torch.device) -> bool:
    """Whether this process may have only a part of the GPU, as other trials have the rest."""
    return device.type == "cuda" and torch.cuda.get_per_process_memory_fraction(device) < 1
