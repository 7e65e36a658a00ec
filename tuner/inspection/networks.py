"""The networks of one trial or of several as one model, with what they answer to images that they didn't learn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.history.combination import Candidate
from tuner.inspection.card import Part
from tuner.space.values import recorded
from tuner.train.cross_validation import NETWORKS, whole_model
from tuner.train.data import Normalisation, Splits, load_splits
from tuner.train.evaluation import Evaluator
from tuner.train.models import Ensemble, Member, answering_network, empty_model, empty_network, load_state
from tuner.trial import ImageClassifier

OF_FORWARD = (
    "stem",
    "image_size",
    "pooling",
    "blocks",
    "test_time_flip",
)  # hyperparameters that change what is computed

State = dict[str, Tensor]


@dataclass(frozen=True)
class Trained:
    """A trained model on its device, and the data as it takes them.

    Attributes:
        splits: the data
        module: from normalised images to outputs
        validated: outputs [N, L] for validation images, of networks that did not learn from them, and labels, on the
            CPU; None if there are none
        parts: its networks, if there are several
    """

    splits: Splits
    module: nn.Module
    validated: tuple[Tensor, Tensor] | None
    parts: tuple[Part, ...] = ()


def trained(
    trial: ImageClassifier,
    config: dict[str, Any],
    checkpoint: Path,
    split_seed: int,
    device: torch.device | str = "cpu",
) -> Trained:
    """A trial's model from its checkpoint; see `tuner.inspection.score` for arguments and exceptions."""
    trial = trial.of(config)
    if trial.folds:
        return Pool(trial, [Candidate("", 0, config, checkpoint)], split_seed, device).averaged(torch.ones(1))
    splits, chosen = trial_splits(trial, config, split_seed=split_seed), trial.hyperparameters(config)
    channels, classes = splits.channels, len(splits.classes)
    module = empty_model(trial, channels=channels, classes=classes, config=chosen, task=splits.task)
    state = whole_model(checkpoint, trial, config, channels=channels, classes=classes)
    load_state(module, state, source=str(checkpoint), name=trial.model_name)
    module.to(device)
    validation = splits.validation
    if not len(validation):
        return Trained(splits, module, None)
    outputs = Evaluator(device).logits(module, validation, splits.normalisation).cpu()
    return Trained(splits, module, (outputs, validation.labels))


def trial_splits(trial: ImageClassifier, config: dict[str, Any], *, split_seed: int) -> Splits:
    """The data as the trial with this configuration saw it."""
    return load_splits(trial.of(config), seed=split_seed, image_size=trial.asked_size(config))


def empty_member(
    trial: ImageClassifier,
    part: Part,
    config: dict[str, Any],
    *,
    channels: int,
    classes: int,
    given: tuple[int, Normalisation],
) -> Member:
    """A part of a model without its weights; `config` has all hyperparameters, `given` is what the model takes."""
    outputs = classes * len(part.shares)
    size, normalisation = given
    return Member(
        answering_network(trial, channels=channels, outputs=outputs, config=config),
        part.shares,
        size=None if part.image_size == size else part.image_size,
        normalisation=None if part.normalisation == normalisation else (normalisation, part.normalisation),
    )


@dataclass
class _Backbone:
    """Networks of candidates that differ only in their last layers: `heads` has each one's candidate and part.

    `part` has no trials and shares yet.
    """

    trial: ImageClassifier
    config: dict[str, Any]
    part: Part
    head: str
    state: State
    heads: list[tuple[int, int, State]]

    def joins(self, other: State) -> bool:
        """Whether a network's tensors before the head are these."""
        return self.state.keys() == other.keys() and all(
            torch.equal(one, other[name]) for name, one in self.state.items()
        )


class Pool:
    """The candidates' networks, with what they answer to validation images.

    Attributes:
        splits: the data as the winner takes it
        members: the candidates that take the same part of an image as the winner does, the winner first
        left_out: names of the others
        outputs: [M, N, L] float32 for the validation images, on the CPU
        labels: of these, [N] or [N, L]
    """

    def __init__(
        self, trial: ImageClassifier, candidates: Sequence[Candidate], split_seed: int, device: torch.device | str
    ) -> None:
        """Load the networks and let them answer; raises as `score`."""
        self._trial, self._device, self._seed = trial, device, split_seed
        self._config = candidates[0].config
        self.splits = trial_splits(trial, self._config, split_seed=split_seed)
        seen: dict[Any, Splits] = {}
        self.members: list[Candidate] = []
        self._backbones: list[_Backbone] = []
        left_out = []
        for candidate in candidates:
            own = trial.of(candidate.config)
            key = own.model_name, own.asked_size(candidate.config)
            if key not in seen:
                seen[key] = trial_splits(own, candidate.config, split_seed=split_seed)
            if _same_region(seen[key], self.splits):
                self._add(own, candidate, seen[key])
            else:
                left_out.append(candidate.trial)
        self.left_out = tuple(left_out)
        self.outputs, self.labels = self._answers()

    def averaged(self, shares: Tensor) -> Trained:
        """The model that averages the candidates with these shares [M]."""
        folds = max(1, self._trial.folds)
        weighed = []
        for one in self._backbones:
            heads = [head for head in one.heads if shares[head[0]] > 0]
            if heads:
                told = tuple(float(shares[number]) / folds for number, _, _ in heads)
                trials = tuple(self.members[number].trial for number, _, _ in heads)
                weighed.append((replace(one, heads=heads), replace(one.part, trials=trials, shares=told)))
        targets = self.splits.targets
        module = Ensemble([self._member(one, part) for one, part in weighed], targets.together).to(self._device)
        chosen = shares > 0
        outputs = self.outputs[chosen]
        together = targets.together(outputs, shares[chosen].float()) if len(outputs) > 1 else outputs[0]
        return Trained(self.splits, module, (together, self.labels), tuple(part for _, part in weighed))

    def _add(self, trial: ImageClassifier, candidate: Candidate, splits: Splits) -> None:
        number, config = len(self.members), trial.hyperparameters(candidate.config)
        channels, classes = splits.channels, len(splits.classes)
        state = whole_model(candidate.checkpoint, trial, candidate.config, channels=channels, classes=classes)
        shape = config | ({"image_size": splits.image_size} if isinstance(trial.model, str) else {})
        head = empty_network(trial, channels=channels, classes=classes, config=shape).head
        part = Part(
            *(trial.model_name, str(trial.own_weights), recorded(candidate.config), splits.image_size),
            splits.normalisation,
            *((), (), trial.commit),
        )
        for fold, tensors in enumerate(_networks(state, trial.folds)):
            before = {name: one for name, one in tensors.items() if not name.startswith(f"{head}.")}
            last = {name: one for name, one in tensors.items() if name not in before}
            same = (
                one
                for one in self._backbones
                if isinstance(trial.model, str)  # a function's last layer has the outputs that it gives it
                and (one.part.model, one.part.image_size) == (part.model, part.image_size)
                and all(one.config.get(name) == shape.get(name) for name in OF_FORWARD)
                and one.joins(before)
            )
            found = next(same, None)
            if found is None:
                found = _Backbone(trial, shape, part, head, before, [])
                self._backbones.append(found)
            found.heads.append((number, fold, last))
        self.members.append(candidate)

    def _member(self, one: _Backbone, part: Part) -> Member:
        given = self.splits.image_size, self.splits.normalisation
        channels, classes = self.splits.channels, len(self.splits.classes)
        member = empty_member(one.trial, part, one.config, channels=channels, classes=classes, given=given)
        names = one.heads[0][2]
        heads = {name: torch.cat([head[name] for _, _, head in one.heads]) for name in names}
        member.network.load_state_dict(one.state | heads)
        return member

    def _answers(self) -> tuple[Tensor, Tensor]:
        """Outputs [M, N, L] and labels of the validation images, in a cross-validation part by part."""
        folds = self._trial.folds
        winner = self._trial.of(self._config)
        parts = [
            trial_splits(winner.fold(part), self._config, split_seed=self._seed).validation for part in range(folds)
        ] or [self.splits.validation]
        told: dict[tuple[int, int], Tensor] = {}
        evaluator = Evaluator(self._device)
        for one in self._backbones:
            shares = tuple(1.0 for _ in one.heads)
            member = self._member(one, replace(one.part, trials=("",) * len(shares), shares=shares)).to(self._device)
            for fold, split in enumerate(parts):
                outputs = member.apart(evaluator.logits(member, split, self.splits.normalisation)).cpu()
                told |= {(number, fold): outputs[row] for row, (number, of, _) in enumerate(one.heads) if of == fold}
        each = [torch.cat([told[number, fold] for fold in range(len(parts))]) for number in range(len(self.members))]
        return torch.stack(each), torch.cat([split.labels for split in parts])


def _networks(state: State, folds: int) -> Iterable[State]:
    """The tensors of each network of a trial."""
    if not folds:
        return [state]
    prefixes = [f"{NETWORKS}.{fold}." for fold in range(folds)]
    return [{name.removeprefix(p): one for name, one in state.items() if name.startswith(p)} for p in prefixes]


def _same_region(splits: Splits, other: Splits) -> bool:
    """Whether both take the same part of an image, in the same shape; at whatever size."""
    if (splits.channels, splits.classes) != (other.channels, other.classes):
        return False
    one, two = splits.framing, other.framing
    if one is None or two is None:
        return one is two
    margins = [framing.resize / framing.pixels if framing.resize else 0.0 for framing in (one, two)]
    return math.isclose(*margins, abs_tol=0.01) and one.squash == two.squash
