"""The training data of an epoch: images through the whole network, or their stored features through the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from tuner.train.data import Split, Splits
from tuner.train.data.augmentation import Augmentation
from tuner.train.data.device_images import on_device
from tuner.train.data.policies import Policy
from tuner.train.evaluation import Evaluator
from tuner.train.features import Views, Wanted, extract_features, stored_features
from tuner.train.fine_tuning import LP_FT, probe_epochs
from tuner.train.models.network import Network
from tuner.train.optimisation import Mixing
from tuner.train.optimisation.mixing import Numbers
from tuner.train.optimisation.precision import Precision
from tuner.train.parallel.strategy import Strategy
from tuner.trial.hyperparameters import INT8

Examples = tuple[Tensor, Tensor]


class Prepare(Protocol):
    """From stored training images [B, C, H, W] and labels [B] to the network's input and targets, augmented.

    `mixed` says how images are mixed, instead of drawn numbers.
    """

    def __call__(self, images: Tensor, labels: Tensor, mixed: Numbers | None = None) -> Examples: ...


@dataclass(frozen=True)
class Feed:
    """The data and the part of the network for it: images through the whole network, or features through the head.

    Attributes:
        whole: whether it is the whole network
        train: the split for training
        validation: the split for validation
        prepare: from stored training images and labels to input and targets
        normalise: from stored images to input, without augmentation
        changes: whether the input for an image differs in every epoch
        mixing: mixes images with one another; None if none are mixed
        views: splits of the features of augmented versions of the training images
    """

    whole: bool
    train: Split
    validation: Split
    prepare: Prepare
    normalise: Callable[[Tensor], Tensor]
    changes: bool
    mixing: Mixing | None = None
    views: tuple[Split, ...] = ()


class Feeds:
    """The feeds of one trial; features are computed when the first epoch can use them.

    Attributes:
        images: the feed through the whole network
    """

    def __init__(
        self,
        network: Network,
        splits: Splits,
        evaluator: Evaluator,
        strategy: Strategy,
        device: torch.device,
        chosen: Mapping[str, Any],
        *,
        epochs: int,
        model: str,
        note: Callable[[str], None],
    ) -> None:
        """Copy the images to the device, if it has room.

        Args:
            network: its backbone computes features
            splits: the images
            evaluator: computes features
            strategy: says whether this process needs images, and whether features can replace them
            device: of this process
            chosen: hyperparameters
            epochs: length of the trial
            model: name of the model's architecture
            note: takes what the user should know
        """
        self._network, self._splits, self._evaluator, self._device = network, splits, evaluator, device
        self._keeps_features, self._model, self._note = strategy.keeps_features, model, note
        frozen = {"head": epochs, LP_FT: probe_epochs(dict(chosen), epochs)}
        self._frozen_epochs = frozen.get(chosen["finetune"], chosen["unfreeze_every"])
        self._chosen = chosen
        self.images = _image_feed(splits, device, chosen, drawn=strategy.draws)
        self._unaugmented = _unchanged(self.images, splits, device, drawn=strategy.draws)
        self._features: Feed | None = None
        self._looked = False

    def of_epoch(self, *, head_alone: bool, probing: bool = False) -> Feed:
        """The feed of an epoch.

        Args:
            head_alone: only the head learns, so that features can replace the images
            probing: images are not augmented
        """
        images = self._unaugmented if probing else self.images
        if not head_alone or not self._keeps_features:
            return images
        if not self._looked:
            self._features = self._feature_feed(images)
            self._looked = True
        return self._features or images

    def change_images(self, change: Callable[[Feed], Feed]) -> None:
        """Change how images are learned from; stored features don't replace them any more."""
        self.images, self._unaugmented = change(self.images), change(self._unaugmented)
        self._keeps_features = False

    def _feature_feed(self, images: Feed) -> Feed | None:
        """The head's inputs instead of the images, or None if they would change or aren't worth computing."""
        shared = self._network.pretrained and self._splits.key is not None
        changes = images.changes if not self._chosen.get("views") else not images.train.deterministic
        if changes or (self._frozen_epochs < 2 and not shared):
            return None
        example = self._splits.train.images(torch.arange(min(2, len(self._splits.train)))).to(self._device)
        if not self._network.head_is_last(self._splits.normalisation(example)):
            self._note(
                f"{self._model} has layers after its head, so the features of the frozen backbone can't be stored: "
                "every epoch computes them again"
            )
            return None
        labels = self._splits.train.labels
        wanted = _wanted(self._model, self._chosen, lambda values: images.prepare(values, labels[: len(values)])[0])
        features = extract_features(self._network, self._splits, self._evaluator, wanted, keep=shared)
        for note in features.notes:
            self._note(note)
        train, validation, *views = on_device([features.train, features.validation, *features.views], self._device)
        return Feed(
            whole=False,
            train=train,
            validation=validation,
            prepare=_as_they_are,
            normalise=lambda values: values,
            changes=False,
            views=tuple(views),
        )


def validation_features(
    network: Network, splits: Splits, device: torch.device | str, chosen: Mapping[str, Any], *, model: str
) -> Tensor | None:
    """The head's inputs [N, features] for validation images as trials of this machine have stored them; else None.

    Args:
        network: with the frozen backbone, on the device
        splits: the images
        device: on which trials computed them
        chosen: hyperparameters of these trials
        model: name of the model's architecture
    """
    evaluator = Evaluator(device, Precision(chosen["precision"], torch.device(device)))
    found = stored_features(network, splits, evaluator, _wanted(model, chosen, splits.normalisation))
    return None if found is None else found.validation.images()


def _wanted(model: str, chosen: Mapping[str, Any], change: Callable[[Tensor], Tensor]) -> Wanted:
    """The features that a trial learns from, whose views `change` makes."""
    count = chosen.get("views", 0)
    views = Views(count, change, repr(_augmentation(chosen))) if count else None
    return Wanted(model, bool(chosen["test_time_flip"]), views, chosen["quantization"] == INT8)


def _image_feed(splits: Splits, device: torch.device, chosen: Mapping[str, Any], *, drawn: bool) -> Feed:
    """The feed with the hyperparameters' augmentation; only a process with `drawn` images prepares and keeps them."""
    augmentation = _augmentation(chosen)
    mixes = chosen["mixup"] or chosen["cutmix"]
    mixing = Mixing(chosen["mixup"], chosen["cutmix"], len(splits.classes)) if mixes else None
    train, validation = splits.train, splits.validation
    if drawn:
        train, validation = on_device([train, validation], device, keep=True)

    def prepare(images: Tensor, labels: Tensor, mixed: Numbers | None = None) -> Examples:
        prepared = _laid_out(augmentation(images, splits.normalisation), device)
        if mixing is None:
            return prepared, labels
        return mixing(prepared, labels, mixing.draw(*prepared.shape[2:]) if mixed is None else mixed)

    return Feed(
        whole=True,
        train=train,
        validation=validation,
        prepare=prepare if drawn else _as_they_are,
        normalise=splits.normalisation,
        changes=augmentation.active or mixing is not None or not train.deterministic,
        mixing=mixing,
    )


def _augmentation(chosen: Mapping[str, Any]) -> Augmentation:
    strengths = {field.name: chosen[field.name] for field in fields(Augmentation) if field.name in chosen}
    return Augmentation(**strengths, policy=_policy(chosen))


def _policy(chosen: Mapping[str, Any]) -> Policy | None:
    kind = chosen["auto_augment"]
    if kind == "rand":
        return Policy(kind, chosen["rand_augment_operations"], chosen["rand_augment_magnitude"])
    return None if kind == "none" else Policy(kind)


def _unchanged(feed: Feed, splits: Splits, device: torch.device, *, drawn: bool) -> Feed:
    """The feed of the same images, neither augmented nor mixed."""

    def prepare(images: Tensor, labels: Tensor, mixed: Numbers | None = None) -> Examples:
        return _laid_out(splits.normalisation(images), device), labels

    changes = not feed.train.deterministic
    return replace(feed, prepare=prepare if drawn else _as_they_are, changes=changes, mixing=None)


def _laid_out(images: Tensor, device: torch.device) -> Tensor:
    if images.ndim == 4 and device.type == "cuda":
        return images.contiguous(memory_format=torch.channels_last)
    return images


def _as_they_are(images: Tensor, labels: Tensor, mixed: Numbers | None = None) -> Examples:
    return images, labels
