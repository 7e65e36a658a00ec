"""An epoch of several heads with the same batch size: they take each step at once, on batches of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn

from tuner.errors import TrialDiverged
from tuner.train.assembly import check_loss
from tuner.train.heads.features import SharedFeatures
from tuner.train.heads.head import Head, parts_of
from tuner.train.heads.losses import Losses
from tuner.train.heads.updates import UPDATES, kind_of
from tuner.train.models.network import dropped
from tuner.train.optimisation.average import averaging_weight
from tuner.train.randomness import STEPS, derive_seeds, epoch_order, reseed
from tuner.train.step import in_batches

DRAWING = Lock()  # held while the process's generator is used
NORM_EPSILON = 1e-6  # of torch.nn.utils.clip_grads_with_norm_


def diverged(head: Head, loss: float, lr: float | None) -> TrialDiverged | None:
    """The error of a head whose loss in its next epoch isn't finite."""
    try:
        check_loss(loss, "training", epoch=head.epoch + 1, lr=lr)
    except TrialDiverged as error:
        return error
    return None


def _order(head: Head, features: SharedFeatures) -> Tensor:
    return features.drawn(epoch_order(len(features), head.seed, head.epoch), head.seed, head.epoch)


class Epoch:
    """The next epoch of M heads, whose optimizers are of one kind; `layer` has their shape."""

    def __init__(self, heads: Sequence[Head], features: SharedFeatures, layer: nn.Linear, *, least: int) -> None:
        """Prepare; `least` is the least number of images in a batch."""
        self._heads, self._features, self._layer = heads, features, layer
        self._parts_of = partial(parts_of, layer=layer)
        orders = torch.stack([_order(head, features) for head in heads])
        self._batches = in_batches(orders, heads[0].chosen["batch_size"], least)
        self._rates = torch.tensor([head.rates(len(self._batches)) for head in heads], dtype=torch.float64).T
        self._live = torch.stack([head.live for head in heads])
        self._gradients = torch.empty_like(self._live)
        self._losses = Losses([head.objective for head in heads], self._live, layer.out_features)
        self._update = UPDATES[kind_of(heads[0])](heads, self._rates, layer.weight.numel())
        self._memory = features.memory(max(batch.numel() for batch in self._batches))
        norms = torch.tensor([[head.chosen["clip_norm"] or torch.inf] for head in heads])
        self._clip_norms = norms.to(self._live) if bool(norms.isfinite().any()) else None
        self._averages, self._weights = self._averaging()
        self._seeds = {
            place: derive_seeds(len(self._batches), head.seed, STEPS, head.epoch)
            for place, head in enumerate(heads)
            if head.chosen["dropout"]
        }
        self._sums = torch.zeros(len(heads), dtype=torch.float64, device=features.device)
        self.diverged: dict[int, TrialDiverged] = {}

    def run(self, check_every: int | None) -> list[float]:
        """Take all steps, within `seeded`; returns the sums of the heads' losses, over images.

        With `check_every`, loss of diverged heads is noted after so many steps, as by a trainer.
        """
        for step, chosen in enumerate(self._batches):
            self._take(step, chosen)
            if check_every is not None and (step + 1) % check_every == 0:
                self.check(self._sums.tolist(), step)
        self._keep()
        return self._sums.tolist()

    def check(self, losses: Sequence[float], step: int) -> None:
        """Note the heads whose loss isn't finite."""
        for place, (head, loss) in enumerate(zip(self._heads, losses, strict=True)):
            if place not in self.diverged and (error := diverged(head, loss, float(self._rates[step, place]))):
                self.diverged[place] = error

    def _take(self, step: int, chosen: Tensor) -> None:
        values, labels, weights = self._features.batch(chosen, self._memory)
        for place, seeds in self._seeds.items():
            with DRAWING:
                reseed(seeds[step], self._features.device)
                values[place] = dropped(values[place], self._heads[place].chosen["dropout"])
        kernels, biases = self._parts_of(self._live)
        logits = torch.baddbmm(biases[..., None], kernels, values.transpose(1, 2))
        losses, errors = self._losses(logits, labels, weights)
        self._sums += losses.double() * chosen.shape[1]
        of_kernels, of_biases = self._parts_of(self._gradients)
        of_kernels.copy_(torch.bmm(errors, values))  # straight into it, torch would multiply head by head
        torch.sum(errors, 2, out=of_biases)
        self._clip()
        self._update(self._live, self._gradients, step)
        if self._averages is not None:
            self._averages.lerp_(self._live, self._weights[step])

    def _clip(self) -> None:
        """As `torch.nn.utils.clip_grads_with_norm_`, each head's whole gradient."""
        if self._clip_norms is not None:
            norms = torch.linalg.vector_norm(self._gradients, dim=1, keepdim=True)
            self._gradients.mul_((self._clip_norms / (norms + NORM_EPSILON)).clamp_(max=1))

    def _averaging(self) -> tuple[Tensor | None, Tensor]:
        """The averages, and the weights [S, M, 1] of the present parameters in them; 1 for heads without one."""
        decays = np.array([head.chosen["ema_decay"] for head in self._heads])
        updates = np.arange(len(self._batches))[:, None] + [head.updates for head in self._heads]
        weights = torch.from_numpy(averaging_weight(decays, updates)).to(self._live)[:, :, None]
        return torch.stack([head.best for head in self._heads]) if decays.any() else None, weights

    def _keep(self) -> None:
        """Give the heads what they have learnt."""
        self._update.keep()
        for place, head in enumerate(self._heads):
            head.live.copy_(self._live[place])
            if head.average is not None and self._averages is not None:
                head.average.copy_(self._averages[place])
                head.updates += len(self._batches)
            head.set_learning_rate(float(self._rates[-1, place]))
