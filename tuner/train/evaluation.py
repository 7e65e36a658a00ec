"""A model's outputs for a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tuner.train.data.splits import Split
from tuner.train.memory.errors import is_out_of_memory
from tuner.train.optimisation.precision import Precision

# Pixels, or features, at once: few on the CPU, whose caches are small; on a GPU enough to keep it busy.
VALUES_PER_BATCH = {"cpu": 2**19, "cuda": 2**20}


class Evaluator:
    """Runs models over splits in evaluation mode, in batches that are halved, for good, whenever memory runs out."""

    def __init__(self, device: torch.device | str = "cpu", precision: Precision | None = None) -> None:
        self.device = torch.device(device)
        self.precision = precision or Precision("fp32", self.device)
        self._halvings = 0
        self._most: int | None = None

    def logits(
        self,
        module: nn.Module,
        split: Split,
        normalise: Callable[[Tensor], Tensor],
        chosen: Tensor | None = None,
    ) -> Tensor:
        """The model's outputs, in the split's order; the module is left in evaluation mode.

        Args:
            module: on the device
            split: the images
            normalise: from the split's images as stored to the model's input
            chosen: [N] indices of the images; None for all

        Returns:
            [N, classes] float32 on the device

        Raises:
            RuntimeError: a single image doesn't fit into memory.
        """
        module.eval()
        indices = torch.arange(len(split)) if chosen is None else chosen
        while True:
            size = self.batch_size(split)
            try:
                return self._in_batches(module, split, normalise, indices, size)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or size == 1:
                    raise
            while self.batch_size(split) > max(1, min(size, len(indices)) // 2):
                self._halvings += 1
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def halve(self, times: int) -> None:
        """Halve the number of images at once, this often."""
        self._halvings += times

    @contextmanager
    def at_most(self, images: int) -> Iterator[None]:
        """Within it this many images at once, for which memory was enough before; fewer large ones on the CPU."""
        self._most = images
        try:
            yield
        finally:
            self._most = None

    def batch_size(self, split: Split) -> int:
        """How many images of the split are evaluated at once."""
        size: int = VALUES_PER_BATCH.get(self.device.type, VALUES_PER_BATCH["cpu"]) // _values(split)
        if self._most is not None:
            size = self._most if self.device.type == "cuda" else min(size, self._most)
        return max(1, size >> self._halvings)

    def _in_batches(
        self, module: nn.Module, split: Split, normalise: Callable[[Tensor], Tensor], chosen: Tensor, size: int
    ) -> Tensor:
        with torch.inference_mode(), self.precision.kernels(), self.precision.arithmetic():
            parts = [chosen[start : start + size] for start in range(0, len(chosen), size)]
            batches = split.batches(parts, self.device)
            return torch.cat([module(normalise(images)).float() for images, _ in batches])


def _values(split: Split) -> int:
    """Pixels of an image, or the number of its features."""
    example = split.images(torch.zeros(1, dtype=torch.int64))[0]
    return example.numel() if example.ndim == 1 else example[0].numel()
