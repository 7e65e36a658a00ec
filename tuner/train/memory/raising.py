"""Doubles a halved micro-batch again when there is memory: in few attempts, with longer and longer breaks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tuner.train.memory.device import room_bytes

STEPS = 200  # at a size before twice that is tried; doubled after each failed attempt
MOST_FAILURES = 2  # failed attempts of a trial, after which the size stays
CERTAIN = 0.9  # share of the available memory that a step can surely use: some of it is fragmented


class Raising:
    """When a micro-batch may be doubled.

    Attributes:
        steps: taken since the size changed, or since there was no room for twice the size
        failures: attempts after which memory ran out again
    """

    def __init__(self, room: Callable[[], bool]) -> None:
        """`room` says whether twice as many images at once would fit."""
        self._room, self._tried = room, False
        self.steps = self.failures = 0

    def after_step(self) -> bool:
        """Note a step at this size; returns whether the size is to be doubled now."""
        self.steps += 1
        if self.failures >= MOST_FAILURES or self.steps < STEPS * 2**self.failures:
            return False
        self.steps = 0
        self._tried = self._room()
        return self._tried

    def ran_out(self) -> None:
        """Note that memory ran out."""
        self.steps = 0
        self.failures += self._tried
        self._tried = False


def room_for_twice(device: torch.device) -> bool:
    """Whether there is memory for a step of twice as many images.

    A step's activations are the epoch's peak minus what is held between steps; twice that has to be available: free on
    the GPU within this process's share, or kept by torch's allocator. Always False on the CPU, where it isn't known how
    much memory the system would really give.
    """
    if device.type != "cuda":
        return False
    held = torch.cuda.memory_allocated(device)
    activations = torch.cuda.max_memory_allocated(device) - held
    there = room_bytes(device) + torch.cuda.memory_reserved(device) - held
    return 2 * activations <= CERTAIN * there
