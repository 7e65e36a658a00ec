"""A split of a data set, in memory or streamed from files, and how its batches are brought to the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tuner.errors import DataError
from tuner.train.data.images import as_tensor, resize
from tuner.train.data.normalisation import Normalisation
from tuner.train.randomness import generators_kept, reseed_all
from tuner.train.tasks import Targets, targets_of
from tuner.trial.framing import Framing
from tuner.trial.pixels import NO_DEEP, DeepScale
from tuner.trial.tasks import ONE_LABEL, Task

LOADER_WORKERS = {"cpu": 4, "cuda": 16}  # the most; on the CPU they take time from the training
GATHERED_BYTES = 2**22  # of images that are gathered at once
CALIBRATED = 64  # images by which a network is quantised
SAMPLE = 2048  # images whose statistics stand for all if the others would have to be decoded

Batch = tuple[Tensor, Tensor]
Draw = tuple[int, int]  # index of an image, seed of the pass


@dataclass(frozen=True)
class Weights:
    """How much images count in the training loss.

    Attributes:
        values: [N] float32, on the CPU, 1 on average
        classes: number of classes
    """

    values: Tensor
    classes: int

    def targets(self, labels: Tensor, chosen: Tensor) -> Tensor:
        """Labels with their weights, for labels and the indices [B] of their images.

        [B, classes] probabilities times the weight from labels [B] int64; otherwise [B, L + 1], the weight last.
        """
        weights = self.values.to(chosen.device).index_select(0, chosen).to(labels.device)[:, None]
        if labels.ndim == 2:
            return torch.cat([labels, weights], 1)
        return one_hot(labels, self.classes).mul_(weights)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """[B, classes] float32 from labels [B] int64."""
    return torch.zeros(len(labels), classes, device=labels.device).scatter_(1, labels[:, None], 1.0)


class Split(ABC):
    """Images and their labels.

    Attributes:
        labels: [N] int64 of classes, or [N, L] of another task, on the CPU
        weights: of the images in the training loss; None if all are equal
    """

    labels: Tensor
    weights: Weights | None = None
    deterministic: bool = True  # whether an image is the same each time it is read

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batches(self, chosen: Iterable[Tensor], device: torch.device | str) -> Iterator[Batch]:
        """Images [B, C, H, W] uint8 or float32 and labels on `device`, for each of the index tensors [B].

        Labels are those of `labels`, or what `Weights.targets` makes of them.
        """

    @abstractmethod
    def images(self, chosen: Tensor | None = None) -> Tensor:
        """The images at some indices [B], or all: [B, C, H, W] uint8 or float32, a copy on the CPU."""

    @abstractmethod
    def normalisation(self) -> Normalisation:
        """Statistics of the images."""

    def reseeded(self, seed: int) -> Split:
        """The same split, with the randomness of its images from `seed` instead of 0."""
        return self

    def of_features(self, values: Tensor, rows: Tensor | None = None) -> HeldSplit:
        """The same split with features [M, ...] for images; `rows` [N] says where they are, None for all in order."""
        return HeldSplit(values, self.labels, rows, weights=self.weights)


@dataclass(frozen=True)
class HeldSplit(Split):
    """Images in memory; several splits share one pool of them.

    Attributes:
        pool: [M, C, H, W] uint8 (or float32), never written: other processes may share the memory
        labels: see `Split`
        rows: [N] int64, where in the pool the split's images are; None for all of it
        framing: how the images are resized for the network; None for the pool's own size
        weights: see `Split`
    """

    pool: Tensor
    labels: Tensor
    rows: Tensor | None = None
    framing: Framing | None = None
    weights: Weights | None = None

    def take(self, chosen: np.ndarray) -> HeldSplit:
        """The split of the images that a mask [N] bool chooses, in their order, with the same pool."""
        mask = torch.from_numpy(chosen)
        return replace(self, labels=self.labels[mask], rows=self.pool_rows[mask])

    def images(self, chosen: Tensor | None = None) -> Tensor:
        """See `Split.images`."""
        indices = torch.arange(len(self)) if chosen is None else chosen
        return self._gather(indices.to(self.pool.device)).cpu()

    def batches(self, chosen: Iterable[Tensor], device: torch.device | str) -> Iterator[Batch]:
        """See `Split.batches`: gathered on the pool's device, several small batches at once."""
        labels = self._device_labels
        for batches in self._blocks(self._on_the_pools_device(list(chosen))):
            sizes = [len(indices) for indices in batches]
            rows = torch.cat(batches)
            images = self._gather(rows).to(device, non_blocking=True)
            wanted = labels.index_select(0, rows)
            if self._device_weights is not None:
                wanted = self._device_weights.targets(wanted, rows)
            wanted = wanted.to(device, non_blocking=True)
            yield from zip(torch.split(images, sizes), torch.split(wanted, sizes), strict=True)

    def _on_the_pools_device(self, chosen: list[Tensor]) -> Iterable[Tensor]:
        """All of a pass's indices in one copy, because the host waits for the device at each copy."""
        if self.pool.device.type == "cpu" or not chosen:
            return chosen
        return torch.split(torch.cat(chosen).to(self.pool.device), [len(indices) for indices in chosen])

    def _blocks(self, chosen: Iterable[Tensor]) -> Iterator[list[Tensor]]:
        """Batches in groups that take about as much memory as `GATHERED_BYTES`."""
        pixels = 1 if self.framing is None else self.framing.pixels**2 / self.pool[0, 0].numel()
        room = GATHERED_BYTES / max(1.0, self.pool[0].nbytes * pixels)
        block: list[Tensor] = []
        for indices in chosen:
            block.append(indices)
            if sum(map(len, block)) >= room:
                yield block
                block = []
        if block:
            yield block

    def normalisation(self) -> Normalisation:
        """Statistics of all the split's images."""
        return Normalisation.of(
            self.pool.index_select(0, self.pool_rows[rows]) for rows in in_chunks(len(self), SAMPLE)
        )

    def _gather(self, indices: Tensor) -> Tensor:
        images = self.pool.index_select(0, indices if self.rows is None else self.rows.index_select(0, indices))
        return images if self.framing is None else resize(images, self.framing)

    @property
    def pool_rows(self) -> Tensor:
        """[N] int64, where in the pool the images are."""
        return torch.arange(len(self.pool)) if self.rows is None else self.rows

    @cached_property
    def _device_labels(self) -> Tensor:
        return self.labels.to(self.pool.device)

    @cached_property
    def _device_weights(self) -> Weights | None:
        own = self.weights
        return None if own is None else replace(own, values=own.values.to(self.pool.device))


class StreamedSplit(Split):
    """Images of a torch `Dataset`, fetched by worker processes while the device computes.

    As many processes as the trial has threads, at most 4, or 16 beside a GPU; they live as long as the split. The data
    set yields (image, anything), the image a tensor [C, H, W] uint8 or float, an array [H, W] or [H, W, C], or a PIL
    image. Before it is asked for an image, the global generators of `random`, numpy and torch start from the split's
    seed and the image's index: what it draws from them is the same in any process, for any number of processes.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        labels: Tensor,
        *,
        framing: Framing | None = None,
        deterministic: bool = False,
        weights: Weights | None = None,
    ) -> None:
        self.dataset, self.labels, self.deterministic, self.framing = dataset, labels, deterministic, framing
        self.weights = weights
        self._seed = 0
        self._passes = Passes(Images(dataset, framing, random=not deterministic))

    def reseeded(self, seed: int) -> StreamedSplit:
        """See `Split.reseeded`; the processes stay the same."""
        other = copy(self)
        other._seed = seed
        return other

    def images(self, chosen: Tensor | None = None) -> Tensor:
        """See `Split.images`."""
        indices = torch.arange(len(self)) if chosen is None else chosen
        with generators_kept():
            return torch.stack([self._passes.dataset[index, self._seed] for index in indices.tolist()])

    def batches(self, chosen: Iterable[Tensor], device: torch.device | str) -> Iterator[Batch]:
        """See `Split.batches`."""
        chosen = list(chosen)
        drawn = [[(index, self._seed) for index in indices.tolist()] for indices in chosen]
        batches = self._passes.over(drawn, torch.device(device).type)
        for indices, images in zip(chosen, batches, strict=True):
            wanted = self.labels[indices]
            if self.weights is not None:
                wanted = self.weights.targets(wanted, indices)
            yield images.to(device, non_blocking=True), wanted.to(device, non_blocking=True)

    def normalisation(self) -> Normalisation:
        """Statistics of 2,048 images spread over the split, or of all if it has fewer."""
        chosen = torch.linspace(0, len(self) - 1, min(SAMPLE, len(self))).long()
        return Normalisation.of(
            images for images, _ in self.batches(torch.tensor_split(chosen, 1 + len(chosen) // 64), "cpu")
        )


class Passes:
    """Passes over a data set repeatedly, by worker processes that live as long as this object."""

    def __init__(self, dataset: Images) -> None:
        self.dataset = dataset
        self._order: list[list[Draw]] = []  # a loader with lasting workers iterates over it again in every pass
        self._loader: DataLoader[Any] | None = None

    def over(self, batches: list[list[Draw]], device: str) -> Iterator[Tensor]:
        """The images of each batch, on the CPU, ready to be copied to a "cuda" device."""
        self._order[:] = batches
        try:
            yield from self._open_loader(device)
        except DataError as error:  # torch puts the process's traceback before the sentence
            raise DataError(str(error).splitlines()[-1].partition(": ")[2]) from error

    def _open_loader(self, device: str) -> DataLoader[Any]:
        pinned = device == "cuda"
        if self._loader is None or self._loader.pin_memory != pinned:
            self._loader = DataLoader(
                self.dataset,
                batch_sampler=self._order,
                num_workers=loader_workers(device, torch.get_num_threads()),
                pin_memory=pinned,
                persistent_workers=True,
                prefetch_factor=4,
                generator=torch.Generator(),  # otherwise it would use the process's own
            )
        return self._loader


class Images(Dataset[Tensor]):
    """A data set whose images are all tensors of one size, each with its own random numbers if `random`."""

    def __init__(self, dataset: Dataset[Any], framing: Framing | None, *, random: bool) -> None:
        self._dataset, self._framing, self._random = dataset, framing, random

    def __len__(self) -> int:
        return len(self._dataset) if isinstance(self._dataset, Sized) else 0

    def __getitem__(self, draw: Draw) -> Tensor:
        index, seed = draw
        if self._random:
            reseed_all(seed, index)
        tensor = as_tensor(self._dataset[index][0])
        return resize(tensor[None], self._framing)[0] if self._framing else tensor


def loader_workers(device: str, cpus: int) -> int:
    """How many processes load images for one that trains on a "cpu" or "cuda" device; never more than its CPUs."""
    return min(LOADER_WORKERS.get(device, LOADER_WORKERS["cpu"]), cpus)


def in_chunks(count: int, size: int) -> list[Tensor]:
    """The indices 0 to count - 1 in tensors of `size`; the last one has the rest."""
    return [torch.arange(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True)
class Whole:
    """All cross-validated images, which include the training and validation images of each part.

    Attributes:
        split: the images
        key: changes with the images and their order
        places: where the images of "train" and "validation" are in `split`, each [N] int64
    """

    split: Split
    key: str
    places: dict[str, Tensor]


@dataclass(frozen=True)
class Splits:
    """A data set cut into splits: the search uses training and validation, the winner is scored once on test.

    Attributes:
        classes: the names of a network's outputs, in their order
        notes: what the user should know of how the data is held, in sentences
        key: changes with the images, their order and their cut; None if unknown
        prescribed: statistics that the weights expect instead of the training images' own
        framing: how the images were brought to their size; None if that is their own size
        scale: of the deep images among the files
        whole: in a cross-validation, all images of it; None otherwise
        files: the files of a part's images, "validation" or "test", as messages name them; none if images aren't files
        before: if validation images are trained on, after those for training: the splits before that
        task: what labels are
    """

    train: Split
    validation: Split
    test: Split
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    key: str | None = None
    prescribed: Normalisation | None = None
    framing: Framing | None = None
    scale: DeepScale = NO_DEEP
    whole: Whole | None = None
    files: Callable[[str], Sequence[str]] = lambda part: ()
    before: Splits | None = None
    task: Task = ONE_LABEL

    @cached_property
    def targets(self) -> Targets:
        """What networks are trained to answer; what it takes of the training images is as in `normalisation`."""
        return targets_of(self.task).of(self.classes, self._learnt_from.labels)

    @property
    def _learnt_from(self) -> Split:
        return self.train if self.whole is None else self.whole.split

    def calibration(self) -> Tensor:
        """Normalised training images [N, C, H, W], at most 64, by whose activations a network is quantised.

        They are the same for all trials with these images, and for those that also train on validation images.
        """
        split = (self.before or self)._learnt_from
        drawn = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:CALIBRATED]
        return self.normalisation(split.images(drawn))

    @cached_property
    def _example(self) -> Tensor:
        return self.train.images(torch.zeros(1, dtype=torch.int64))

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return self._example.shape[1]

    @property
    def image_size(self) -> int:
        """Edge of the images in pixels."""
        return self._example.shape[-1]

    @cached_property
    def normalisation(self) -> Normalisation:
        """The weights' own statistics, or those of the training images, without validation and test.

        In a cross-validation, whose networks share features and predict together, they are those of all its images. The
        weights' statistics don't apply to images with other channels, nor to floats, which may be normalised.
        """
        fits = self.prescribed and self.channels == len(self.prescribed.mean) and self._example.dtype == torch.uint8
        if self.prescribed and fits:
            return self.prescribed
        return self._learnt_from.normalisation()
