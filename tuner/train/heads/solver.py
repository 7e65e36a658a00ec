"""Heads that are solved: L-BFGS on all images at once, for several heads, each until its gradient is small.

The method is that of Liu and Nocedal (1989), "On the limited memory BFGS method for large scale optimization". What is
minimised is the mean loss of the training images plus half of `weight_decay` times the squares of the weights, without
the biases. That is convex, so a step that is halved until it pays is enough. Each epoch begins with an empty memory:
from one to the next a head keeps nothing but its weights.

Within it, features have the mean 0: with free biases this is the same problem, and takes a fraction of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tuner.train.heads.features import SharedFeatures
from tuner.train.heads.head import Head, parts_of
from tuner.train.heads.losses import Losses

ITERATIONS = 100  # of an epoch, at most; each goes through all images once, or a little more often
MEMORY = 10  # steps that tell of the curvature
SMALL = 1e-6  # largest element of the gradient of a head that is solved
ENOUGH = 1e-4  # share of the decrease that the gradient promises, by which a step pays
ROUNDING = 1e-6  # relative error of an objective in float32
HALVINGS = 20  # of a step; one that doesn't pay then is too small to be seen
BYTES_AT_ONCE = 2**25  # of outputs of all heads


class Solver:
    """An epoch of M heads."""

    def __init__(self, heads: Sequence[Head], features: SharedFeatures, layer: nn.Linear) -> None:
        """Prepare; `layer` has the heads' shape."""
        self._heads, self._layer = heads, layer
        values, self._labels, self._weights = features.every()
        self._mean = values.mean(0)
        self._features = values - self._mean
        self._images = max(1, BYTES_AT_ONCE // (4 * len(heads) * layer.out_features))
        self._decay = torch.zeros_like(torch.stack([head.live for head in heads]))
        for decay, head in zip(self._decay, heads, strict=True):
            decay[: layer.weight.numel()] = head.groups[0]["weight_decay"]

    def run(self) -> list[float]:
        """Take the steps, and give the heads their weights; returns their mean losses after that."""
        rows = torch.arange(len(self._heads), device=self._decay.device)
        live = self._shifted(torch.stack([head.live for head in self._heads]), self._mean)
        values, gradients = self._at(rows, live)
        found, objectives = live.clone(), values.clone()
        steps: list[Tensor] = []
        changes: list[Tensor] = []
        moved = torch.ones_like(rows, dtype=torch.bool)
        for _ in range(ITERATIONS):
            going = moved & (gradients.abs().amax(1) > SMALL) & values.isfinite()
            if not bool(going.all()):  # the others are left as they are
                rows, live, values, gradients = rows[going], live[going], values[going], gradients[going]
                steps, changes = [step[going] for step in steps], [change[going] for change in changes]
            if not len(rows):
                break
            before = live, gradients
            direction = -_by_curvature(gradients, steps, changes)
            live, values, gradients = self._searched(rows, live, values, gradients, direction)
            found[rows], objectives[rows], moved = live, values, (live != before[0]).any(1)
            steps = [*steps, live - before[0]][-MEMORY:]
            changes = [*changes, gradients - before[1]][-MEMORY:]
        for head, weights in zip(self._heads, self._shifted(found, -self._mean), strict=True):
            head.live.copy_(weights)
        return (objectives - self._penalties(found, self._decay)).tolist()

    def _searched(
        self, rows: Tensor, live: Tensor, values: Tensor, gradients: Tensor, direction: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, objectives and gradients after steps that pay; those of a head that finds none are as before."""
        live, values, gradients = live.clone(), values.clone(), gradients.clone()
        promised, before = (gradients * direction).sum(1), values.clone()
        length, left = 1.0, torch.arange(len(rows), device=rows.device)
        for _ in range(HALVINGS):
            there = live[left] + length * direction[left]
            new, slopes = self._at(rows[left], there)
            pays = new <= before[left] * (1 + ROUNDING) + ENOUGH * length * promised[left]
            chosen = left[pays]
            live[chosen], values[chosen], gradients[chosen] = there[pays], new[pays], slopes[pays]
            left, length = left[~pays], length / 2
            if not len(left):
                break
        return live, values, gradients

    def _at(self, rows: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
        """Objectives [R] and gradients [R, P] of some of the heads with weights [R, P]."""
        losses = Losses([self._heads[row].objective for row in rows.tolist()], live, self._layer.out_features)
        kernels, biases = parts_of(live, self._layer)
        decay = self._decay[rows]
        values, gradients = self._penalties(live, decay), decay * live
        of_kernels, of_biases = parts_of(gradients, self._layer)
        whole = losses.divisors(self._labels.expand(len(rows), -1))
        for first in range(0, len(self._labels), self._images):
            part = slice(first, first + self._images)
            features, labels = self._features[part], self._labels[part].expand(len(rows), -1)
            weights = None if self._weights is None else self._weights[part].expand(len(rows), -1)
            logits = (kernels.flatten(0, 1) @ features.T).view(*biases.shape, -1) + biases[..., None]
            told, errors = losses.totals(logits, labels, weights)
            errors /= whole[:, None, None]
            values += told / whole
            of_kernels += (errors.flatten(0, 1) @ features).view_as(of_kernels)
            of_biases += errors.sum(2)
        return values, gradients

    def _shifted(self, live: Tensor, shift: Tensor) -> Tensor:
        """Weights [M, P] whose outputs for features less `shift` are those of these weights for the features."""
        kernels, biases = parts_of(live, self._layer)
        found: Tensor = torch.cat([kernels.flatten(1), biases + kernels @ shift], 1)
        return found

    @staticmethod
    def _penalties(live: Tensor, decay: Tensor) -> Tensor:
        found: Tensor = (decay * live**2).sum(1) / 2
        return found


def _by_curvature(gradients: Tensor, steps: Sequence[Tensor], changes: Sequence[Tensor]) -> Tensor:
    """The inverse of the curvature, as steps and changes of gradients tell it, times gradients; all [M, P].

    Without steps it is that by which a first step has the length 1 at most.
    """
    if not steps:
        lengths: Tensor = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        return gradients / lengths.clamp(min=1)
    products = [(step * change).sum(1, keepdim=True) for step, change in zip(steps, changes, strict=True)]
    inverse = [torch.where(product > 0, 1 / product, 0.0) for product in products]  # a step not taken tells nothing
    found, shares = gradients.clone(), []
    for step, change, each in zip(reversed(steps), reversed(changes), reversed(inverse), strict=True):
        shares.append(each * (step * found).sum(1, keepdim=True))
        found -= shares[-1] * change
    newest = products[-1] / (changes[-1] ** 2).sum(1, keepdim=True)
    found *= torch.where(products[-1] > 0, newest, 1.0)
    for step, change, each, share in zip(steps, changes, inverse, reversed(shares), strict=True):
        found += step * (share - each * (change * found).sum(1, keepdim=True))
    return found
