"""Seeds derived from seeds, and global generators that are reseeded for a while and then restored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# streams of random numbers that a trial's seed is split into
INITIAL_WEIGHTS, ORDER, STEPS, IMAGES, PARTS, HEAD, VIEWS = range(7)


def derive_seed(*numbers: int) -> int:
    """A 63-bit seed that depends on all of `numbers` (each >= 0) and on their order."""
    return int(np.random.SeedSequence([len(numbers), *numbers]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def derive_seeds(count: int, *numbers: int) -> list[int]:
    """`count` 63-bit seeds, each of which depends on `numbers` (each >= 0) and on its index."""
    words = np.random.SeedSequence([len(numbers), *numbers, 0]).generate_state(count, np.uint64) >> np.uint64(1)
    return [int(word) for word in words]


def epoch_order(images: int, seed: int, epoch: int) -> torch.Tensor:
    """The order in which a trial with this seed sees its training images after `epoch` finished epochs: [images]."""
    return torch.randperm(images, generator=torch.Generator().manual_seed(derive_seed(seed, ORDER, epoch)))


def reseed(seed: int, device: torch.device) -> None:
    """Let torch's global generators, of the CPU and of `device`, start from `seed`; only within `seeded`."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def reseed_all(*numbers: int) -> None:
    """Let the global generators of `random`, numpy and torch's CPU, which a user's data uses, start from `numbers`."""
    first, second, third = derive_seeds(3, *numbers)
    random.seed(first)
    np.random.seed([second & 0xFFFFFFFF, second >> 32])
    torch.default_generator.manual_seed(third)


@contextmanager
def generators_kept() -> Iterator[None]:
    """After the block the generators that `reseed_all` reseeds are restored."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Let torch's global generators start from `seed` within the block; outside they go on unchanged."""
    device = torch.device(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        reseed(seed, device)
        yield
