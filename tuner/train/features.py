"""Features: the output of a frozen backbone for every image, computed once and stored for all trials of this machine.

While nothing before the head learns and images aren't augmented, the head's inputs are the same in every epoch of every
trial: training on them gives the same result as training on the images, without computing the backbone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import count, takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tuner.machine.installation import version_of
from tuner.train.data import Splits
from tuner.train.data.cache import ArrayCache, Builder, CacheUnavailable, Entry, cache_key
from tuner.train.data.splits import HeldSplit, Split
from tuner.train.evaluation import Evaluator
from tuner.train.models.eight_bits import quantised
from tuner.train.models.mirrored import mean_of_views, mirror
from tuner.train.models.network import Network
from tuner.train.models.onnx_layers import by_onnxruntime, pays
from tuner.train.randomness import VIEWS, derive_seed, seeded

PARTS = ("train", "validation")
WHOLE = "whole"  # of a cross-validation
MIRRORED = " mirrored"  # features of the mirror images of a part
VIEW = " view "
FIRST_SECONDS, BETWEEN_SECONDS = 2.0, 5.0  # until their progress is told, and told again


@dataclass(frozen=True)
class Features:
    """The head's inputs [N, features] float32, as images of splits; `notes`: what the user should know.

    `views` are those of augmented versions of the training images.
    """

    train: Split
    validation: Split
    notes: tuple[str, ...] = ()
    views: tuple[Split, ...] = ()


@dataclass(frozen=True)
class Views:
    """Augmented versions of training images.

    Attributes:
        count: of each image
        change: from stored images [B, C, H, W] to a network's input, by torch's random numbers
        name: says how they are augmented
    """

    count: int
    change: Callable[[Tensor], Tensor]
    name: str


@dataclass(frozen=True)
class Wanted:
    """Which features.

    Attributes:
        model: name of the model's architecture
        mirrored: those for validation are the mean of those of an image and of its mirror image: because the last layer
            is linear, it gives the mean of both outputs
        views: of training images
        eight_bits: the backbone answers in 8 bits
    """

    model: str
    mirrored: bool = False
    views: Views | None = None
    eight_bits: bool = False

    @property
    def entries(self) -> tuple[Wanted, ...]:
        """What is stored apart: features of the images, then those that some trials need in addition."""
        found = [replace(self, mirrored=False, views=None)]
        if self.mirrored:
            found.append(replace(self, views=None))
        if self.views is not None:
            found.append(replace(self, mirrored=False))
        return tuple(found)


@dataclass(frozen=True)
class FeatureProgress:
    """How far the features of `model` are: those of so many `images`, of `total`, after so many seconds."""

    model: str
    images: int
    total: int
    seconds: float
    seconds_left: float


Tell = Callable[[dict[str, Any]], None]
_tell: ContextVar[Tell | None] = ContextVar("tuner_feature_progress", default=None)


@contextmanager
def progress_told_to(tell: Tell) -> Iterator[None]:
    """Within the block `tell` is given the fields of a `FeatureProgress` every few seconds while features are computed.

    It isn't called where they are there already, or another process computes them; what it raises ends the work.
    """
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def extract_features(network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted, *, keep: bool) -> Features:
    """The head's inputs for training and validation images, from the machine's cache if it has them.

    Args:
        network: whose backbone is frozen; left in evaluation mode
        splits: the images
        evaluator: computes them
        wanted: which
        keep: store them in the machine's cache; otherwise they only live in this process, as they should if no other
            trial can have the same backbone
    """
    before = splits.before
    alike = before is not None and before.normalisation == splits.normalisation
    other = wanted.mirrored or wanted.views is not None  # than training needs are features of a cut for validation
    if before is not None and alike and (before.whole is not None or not other):  # trials have computed them already
        return _joined(extract_features(network, before, evaluator, wanted, keep=keep), splits)
    arrays: dict[str, np.ndarray] = {}
    notes: tuple[str, ...] = ()
    extractions = _extractions(network, splits, evaluator, wanted)
    progress = _Counted(
        wanted.model,
        images=sum(map(len, _unchanged(splits).values())),
        passes=lambda: sum(each.passes for each in extractions if not (keep and each.stored)),
    )
    for each in extractions:
        found, told = _arrays(each, progress, keep=keep)
        arrays, notes = arrays | found, told or notes
    return _as_splits(arrays, splits, notes)


def stored_features(network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted) -> Features | None:
    """Those that `extract_features` has stored on this machine; None if some aren't there."""
    arrays: dict[str, np.ndarray] = {}
    for each in _extractions(network, splits, evaluator, wanted):
        if (entry := each.stored) is None:
            return None
        arrays |= entry.arrays
    return _as_splits(arrays, splits, ())


def _extractions(network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted) -> list[_Extraction]:
    """One for each entry that has images."""
    return [each for one in wanted.entries if (each := _Extraction(network, splits, evaluator, one)).parts]


def _arrays(
    extraction: _Extraction, progress: _Counted, *, keep: bool
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """The features of each part, and what the user should know."""

    def build(builder: Builder) -> None:
        for part in extraction.parts:
            builder.put(part, extraction.array(part, progress))

    notes: tuple[str, ...] = ()
    if keep and extraction.key is not None:
        try:
            entry = ArrayCache().get(extraction.key, build)
        except CacheUnavailable as error:
            notes = (
                f"the cache can't be used, so each trial computes and holds the backbone's features itself: {error}",
            )
        else:
            return entry.arrays, entry.notes
    return {part: extraction.array(part, progress) for part in extraction.parts}, notes


def _unchanged(splits: Splits) -> dict[str, Split]:
    """The images without views of them, by the name of their part."""
    if splits.whole is None:
        return {part: split for part in PARTS if len(split := getattr(splits, part))}
    return {WHOLE: splits.whole.split}


class _Extraction:
    """Computes one of `Wanted.entries`."""

    def __init__(self, network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted) -> None:
        self._network, self._splits, self._evaluator, self._wanted = network, splits, evaluator, wanted
        self._unchanged = _unchanged(splits)
        images, precision = sum(map(len, self._unchanged.values())), evaluator.precision.name
        self._quickened = not wanted.eight_bits and pays(
            network.module, images, splits.image_size, evaluator.device, precision
        )

    @cached_property
    def key(self) -> str | None:
        """The name of the entry in the cache; None for images that may be others the next time."""
        network, splits, evaluator, wanted = self._network, self._splits, self._evaluator, self._wanted
        images_key = splits.key if splits.whole is None else splits.whole.key
        if images_key is None:
            return None
        settings = network.head, images_key, repr(splits.normalisation), evaluator.precision.name, evaluator.device.type
        pooling = [] if network.pooling is None else [repr(network.pooling)]
        quantiser = [f"int8 by {version_of('onnxruntime')}"] if wanted.eight_bits else []
        views = [] if wanted.views is None else [f"{wanted.views.count} views alone", wanted.views.name]
        quick = [f"by onnxruntime {version_of('onnxruntime')}"] if self._quickened else []
        kind = [*["mirror images alone"] * wanted.mirrored, *quantiser, *quick, *views]
        return cache_key("features", wanted.model, network.backbone_key, *settings, *pooling, *kind)

    @property
    def stored(self) -> Entry | None:
        """The entry, if this machine has it."""
        return None if self.key is None else ArrayCache().find(self.key)

    @property
    def passes(self) -> int:
        """How many images go through the backbone."""
        return sum(map(len, self.parts.values()))

    @cached_property
    def parts(self) -> dict[str, Split]:
        """The images whose features are computed, by name: those of a cross-validation once for all its networks."""
        found, views = self._unchanged, self._wanted.views
        if self._wanted.mirrored:  # of images that training alone needs too, where all are one part
            return {f"{part}{MIRRORED}": split for part, split in found.items() if part != "train"}
        if views is not None:
            part, split = next(iter(found.items()))
            return {view_name(part, number): split for number in range(views.count)}
        return found

    def array(self, part: str, progress: _Counted) -> np.ndarray:
        """The head's input for each image of a part: [N, features] float32."""
        split, normalise, views = self.parts[part], self._splits.normalisation, self._wanted.views
        with ExitStack() as stack:
            backbone = self._by_onnxruntime
            if backbone is None:
                backbone = stack.enter_context(_headless(self._network))
            change = mirror(normalise) if self._wanted.mirrored else normalise
            if views is not None:
                stack.enter_context(seeded(derive_seed(int(part.partition(VIEW)[2]), VIEWS), self._evaluator.device))
                change = views.change
            return self._evaluator.logits(backbone, split, progress.counting(change)).cpu().numpy()

    @cached_property
    def _by_onnxruntime(self) -> nn.Module | None:
        if self._wanted.eight_bits:
            return quantised(self._network.module, self._splits.calibration())
        if not self._quickened:
            return None
        split = next(iter(self._unchanged.values()))
        with _headless(self._network) as backbone:
            return by_onnxruntime(backbone, self._splits.normalisation(split.images(torch.arange(min(3, len(split))))))


def view_name(part: str, number: int) -> str:
    """The name of the array with the features of a view of the part's images."""
    return f"{part}{VIEW}{number}"


class _Counted:
    """Counts images on their way through the backbone, and tells the progress now and then.

    `passes` says how many they are in all; it is asked once, and only if something is computed.
    """

    def __init__(self, model: str, *, images: int, passes: Callable[[], int]) -> None:
        self._model, self._images, self._asked, self._done = model, images, passes, 0
        self._begun = self._next = 0.0

    def counting(self, normalise: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """The function, whose next call says that the images of the one before are done."""
        _ = self._passes  # before an entry is stored

        def counted(images: Tensor) -> Tensor:
            self._tell(time.perf_counter())
            self._done += len(images)
            return normalise(images)

        return counted

    @cached_property
    def _passes(self) -> int:
        return self._asked()

    def _tell(self, now: float) -> None:
        if not self._done:
            self._begun, self._next = now, now + FIRST_SECONDS
        tell = _tell.get()
        if tell is None or not self._done or now < self._next:
            return
        share, seconds = min(1.0, self._done / self._passes), now - self._begun
        left = seconds * (1 - share) / share
        tell(asdict(FeatureProgress(self._model, int(share * self._images), self._images, seconds, left)))
        self._next = now + BETWEEN_SECONDS


@contextmanager
def _headless(network: Network) -> Iterator[nn.Module]:
    """The network, whose output is its head's input within the block."""
    head = network.head_layer
    network.module.set_submodule(network.head, nn.Identity())
    try:
        yield network.module
    finally:
        network.module.set_submodule(network.head, head)


def _joined(before: Features, splits: Splits) -> Features:
    """Features of training images, then of validation images, as `cut` joins them, and none for validation."""
    parts = [before.train] if splits.before is not None and splits.before.whole else [before.train, before.validation]
    values = torch.cat([part.images() for part in parts])
    none = HeldSplit(values[:0], splits.train.labels[:0])
    views = tuple(splits.train.of_features(view.images()) for view in before.views)
    return Features(splits.train.of_features(values), none, before.notes, views)


def _as_splits(arrays: dict[str, np.ndarray], splits: Splits, notes: tuple[str, ...]) -> Features:
    train, validation = (_as_split(arrays, splits, part) for part in PARTS)
    part, rows = ("train", None) if splits.whole is None else (WHOLE, splits.whole.places["train"])
    names = takewhile(lambda name: name in arrays, (view_name(part, number) for number in count()))
    views = tuple(splits.train.of_features(torch.from_numpy(arrays[name]), rows) for name in names)
    return Features(train, validation, notes, views)


def _as_split(arrays: dict[str, np.ndarray], splits: Splits, part: str) -> HeldSplit:
    split: Split = getattr(splits, part)
    if splits.whole is None and part not in arrays:  # no image is for validation
        return split.of_features(torch.from_numpy(arrays["train"][:0]))
    name, rows = (part, None) if splits.whole is None else (WHOLE, splits.whole.places[part])
    values = torch.from_numpy(arrays[name])
    if part == "validation" and f"{name}{MIRRORED}" in arrays:
        values = mean_of_views(values, torch.from_numpy(arrays[f"{name}{MIRRORED}"]))
    return split.of_features(values, rows)
