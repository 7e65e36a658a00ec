"""Features: the output of a frozen backbone for every image, computed once and stored for all trials of this machine.

While nothing before the head learns and images aren't augmented, the head's inputs are the same in every epoch of every
trial: training on them gives the same result as training on the images, without computing the backbone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count, takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tuner.machine.installation import version_of
from tuner.train.data import Splits
from tuner.train.data.cache import ArrayCache, Builder, CacheUnavailable, cache_key
from tuner.train.data.splits import HeldSplit, Split
from tuner.train.evaluation import Evaluator
from tuner.train.models.eight_bits import quantised
from tuner.train.models.mirrored import mean_of_views, mirror
from tuner.train.models.network import Network
from tuner.train.models.onnx_layers import by_onnxruntime, pays
from tuner.train.randomness import VIEWS, derive_seed, seeded

PARTS = ("train", "validation")
WHOLE = "whole"  # of a cross-validation
WHOLE_MIRRORED = "whole-mirrored"  # the same for validation, if predictions are those of two views
MIRRORED = ("validation", WHOLE_MIRRORED)
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
    builder = _Extraction(network, splits, evaluator, wanted)
    notes: tuple[str, ...] = ()
    if keep and (key := _key(network, splits, evaluator, wanted)) is not None:
        try:
            entry = ArrayCache().get(key, builder.build)
            return _as_splits(entry.arrays, splits, entry.notes)
        except CacheUnavailable as error:
            notes = (
                f"the cache can't be used, so each trial computes and holds the backbone's features itself: {error}",
            )
    return _as_splits({part: builder.array(part) for part in builder.parts}, splits, notes)


def stored_features(network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted) -> Features | None:
    """Those that `extract_features` has stored on this machine; None if there are none."""
    key = _key(network, splits, evaluator, wanted)
    entry = None if key is None else ArrayCache().find(key)
    return None if entry is None else _as_splits(entry.arrays, splits, entry.notes)


def _key(network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted) -> str | None:
    """The name of an entry in the cache; None for images that may be others the next time."""
    images_key = splits.key if splits.whole is None else splits.whole.key
    if images_key is None:
        return None
    settings = network.head, images_key, repr(splits.normalisation), evaluator.precision.name, evaluator.device.type
    pooling = [] if network.pooling is None else [repr(network.pooling)]
    quantiser = [f"int8 by {version_of('onnxruntime')}"] if wanted.eight_bits else []
    views = [] if wanted.views is None else [f"{wanted.views.count} views", wanted.views.name]
    quick = [f"by onnxruntime {version_of('onnxruntime')}"] if _quickened(network, splits, evaluator, wanted) else []
    kind = [*["mirrored"] * wanted.mirrored, *quantiser, *quick, *views]
    return cache_key("features", wanted.model, network.backbone_key, *settings, *pooling, *kind)


def _quickened(network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted) -> bool:
    """Whether onnxruntime computes the backbone in float32, if it can; the same for all trials with these images."""
    images = sum(map(len, _unchanged(splits).values()))
    return not wanted.eight_bits and pays(
        network.module, images, splits.image_size, evaluator.device, evaluator.precision.name
    )


def _unchanged(splits: Splits) -> dict[str, Split]:
    """The images without views of them, by the name of their part."""
    if splits.whole is None:
        return {part: split for part in PARTS if len(split := getattr(splits, part))}
    return {WHOLE: splits.whole.split}


class _Extraction:
    def __init__(self, network: Network, splits: Splits, evaluator: Evaluator, wanted: Wanted) -> None:
        self._network, self._splits, self._evaluator, self._mirrored = network, splits, evaluator, wanted.mirrored
        self._changed, self._wanted = wanted.views, wanted
        self._progress = _Counted(
            wanted.model,
            images=sum(map(len, _unchanged(self._splits).values())),
            passes=sum(self._views(part) * len(split) for part, split in self.parts.items()),
        )

    def build(self, builder: Builder) -> None:
        """Fill a cache entry."""
        for part in self.parts:
            builder.put(part, self.array(part))

    @property
    def parts(self) -> dict[str, Split]:
        """The images whose features are computed, by name: those of a cross-validation once for all its networks."""
        found = _unchanged(self._splits)
        part, split = ("train", found["train"]) if self._splits.whole is None else (WHOLE, found[WHOLE])
        if self._mirrored and part == WHOLE:
            found |= {WHOLE_MIRRORED: split}
        views = 0 if self._changed is None else self._changed.count
        return found | {view_name(part, number): split for number in range(views)}

    def array(self, part: str) -> np.ndarray:
        """The head's input for each image of a part: [N, features] float32."""
        split, normalise = self.parts[part], self._splits.normalisation
        with ExitStack() as stack:
            backbone = self._by_onnxruntime
            if backbone is None:
                backbone = stack.enter_context(_headless(self._network))
            if VIEW in part and self._changed is not None:
                change, number = self._progress.counting(self._changed.change), int(part.partition(VIEW)[2])
                with seeded(derive_seed(number, VIEWS), self._evaluator.device):
                    return self._evaluator.logits(backbone, split, change).cpu().numpy()
            views = [self._progress.counting(view) for view in (normalise, mirror(normalise))[: self._views(part)]]
            outputs = [self._evaluator.logits(backbone, split, view) for view in views]
            features = outputs[0] if len(outputs) == 1 else mean_of_views(*outputs)
        return features.cpu().numpy()

    @cached_property
    def _by_onnxruntime(self) -> nn.Module | None:
        if self._wanted.eight_bits:
            return quantised(self._network.module, self._splits.calibration())
        if not _quickened(self._network, self._splits, self._evaluator, self._wanted):
            return None
        split = next(iter(_unchanged(self._splits).values()))
        with _headless(self._network) as backbone:
            return by_onnxruntime(backbone, self._splits.normalisation(split.images(torch.arange(min(3, len(split))))))

    def _views(self, part: str) -> int:
        return 2 if self._mirrored and part in MIRRORED else 1


def view_name(part: str, number: int) -> str:
    """The name of the array with the features of a view of the part's images."""
    return f"{part}{VIEW}{number}"


class _Counted:
    """Counts images on their way through the backbone, `passes` in all, and tells the progress now and then."""

    def __init__(self, model: str, *, images: int, passes: int) -> None:
        self._model, self._images, self._passes, self._done = model, images, passes, 0
        self._begun = self._next = 0.0

    def counting(self, normalise: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """The function, whose next call says that the images of the one before are done."""

        def counted(images: Tensor) -> Tensor:
            self._tell(time.perf_counter())
            self._done += len(images)
            return normalise(images)

        return counted

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
    if splits.whole is None:
        none = arrays["train"][:0]  # no image is for validation
        return split.of_features(torch.from_numpy(arrays.get(part, none)))
    name = WHOLE_MIRRORED if part in MIRRORED and WHOLE_MIRRORED in arrays else WHOLE
    return split.of_features(torch.from_numpy(arrays[name]), splits.whole.places[part])
