"""All images of a data set in one place: mapped from the machine's cache, or in this process's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tuner.train.data.cache import ArrayCache, Builder, CacheUnavailable
from tuner.train.data.holding_out import Groups, Keys, Labels
from tuner.trial.data_source import LeftOut
from tuner.trial.pixels import NO_DEEP, DeepScale
from tuner.trial.tasks import ONE_LABEL, Task

PARTS = ("train", "validation", "test")  # as the files are split; `Pool.parts` holds indices of these
LEFT_OUT = -1  # in `Pool.parts`, for an image that is in none of them
IMAGES, LABELS, KEYS, PART = "images", "labels", "keys", "parts"
UNREADABLE, SCALE = "unreadable", "scale"


@dataclass(frozen=True)
class Pool:
    """All images of a data set, as the files have them.

    Attributes:
        images: [M, C, H, W] uint8; None if there are too many for memory
        files: the file of every image; empty if images aren't separate files
        labels: [M] int64 of classes, or [M, L] of another task
        keys: [M] uint64 that identical images share; from the pixels before any resizing, so that the cut is the same
            at every image size
        parts: [M] int8, index into PARTS; LEFT_OUT for an image that can't be read
        classes: names of a network's outputs
        key: changes with all of the above
        notes: what the user should know, in sentences
        left_out: files that are left out
        scale: of the deep images
        groups: [M] int64, equal for images that the data says belong together; None if it says nothing
        weights: [M] float32, of the images in the training loss; None if all are equal
        task: what labels are
        kinds: [M] int64 or [M, K] bool, the strata of images, which a cut spreads evenly
        kind_names: their names
    """

    images: Tensor | None
    files: Sequence[Path]
    labels: Labels
    keys: Keys
    parts: np.ndarray
    classes: tuple[str, ...]
    key: str
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    scale: DeepScale = NO_DEEP
    groups: Groups | None = None
    weights: np.ndarray | None = None
    task: Task = ONE_LABEL
    kinds: np.ndarray = None  # type: ignore[assignment]  # the labels and the classes: see __post_init__
    kind_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Classes are strata."""
        if self.kinds is None:
            object.__setattr__(self, "kinds", self.labels)
            object.__setattr__(self, "kind_names", self.classes)

    def count(self, rows: np.ndarray) -> np.ndarray:
        """How many of some images, by their indices [R] or a mask [M], each stratum has: [K] int64."""
        kinds = self.kinds[rows]
        return kinds.sum(0) if kinds.ndim == 2 else np.bincount(kinds, minlength=len(self.kind_names))

    def is_of(self, kind: int) -> np.ndarray:
        """Which images are in a stratum: [M] bool."""
        return self.kinds[:, kind] if self.kinds.ndim == 2 else self.kinds == kind


def from_cache(key: str, build: Callable[[Builder], None], files: Sequence[Path] = (), size: int = 0) -> Pool:
    """The pool that `build` fills, from the machine's cache; if that has no room, in this process's memory."""
    try:
        entry = ArrayCache().get(key, build, expected_bytes=size)
        arrays, facts, notes = entry.arrays, entry.facts, entry.notes
    except CacheUnavailable as error:
        builder = InMemory()
        build(builder)
        arrays, facts = builder.arrays, builder.facts
        notes = (f"the cache can't be used, so each trial decodes and holds the images itself: {error}",)
    images = torch.from_numpy(arrays[IMAGES]) if IMAGES in arrays else None
    return Pool(
        *(images, files, arrays[LABELS], arrays[KEYS], arrays[PART], tuple(facts["classes"])),
        key=key,
        notes=notes,
        left_out=tuple(LeftOut(*each) for each in facts.get(UNREADABLE, [])),
        scale=DeepScale(**facts.get(SCALE, {})),
    )


class InMemory(Builder):
    """Like `Builder`, but its arrays are in this process's own memory."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.facts = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
        """A new array."""
        self.arrays[name] = np.zeros(shape, dtype)
        return self.arrays[name]
