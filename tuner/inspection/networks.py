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
from tuner.train.data import Normalisation, Split, Splits, load_splits
from tuner.train.evaluation import Evaluator
from tuner.train.models import Ensemble, Member, answering_network, empty_model, empty_network, load_state
from tuner.train.tasks import Targets
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
        module: from normalised images to outputs, in evaluation mode
        validated: outputs [N, L] for validation images, of networks that did not learn from them, and labels, on the
            CPU; None if there are none
        tested: outputs [N, L] for the test images, on the CPU
        parts: its networks, if there are several
    """

    splits: Splits
    module: nn.Module
    validated: tuple[Tensor, Tensor] | None
    tested: Tensor
    parts: tuple[Part, ...] = ()


def trained(
    trial: ImageClassifier,
    config: dict[str, Any],
    checkpoint: Path,
    split_seed: int,
    device: torch.device | str = "cpu",
) -> Trained:
    """A trial's model from its checkpoint; see `tuner.inspection.score` for arguments and exceptions."""
    return Pool(trial, [Candidate("", 0, config, checkpoint)], split_seed, device).winner()


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
        outputs: [M, N, L] float32 for the validation images, on the CPU; None if there are none
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
        self._tested: dict[int, Tensor] = {}  # outputs [H, N, L] for the test images, by the backbone's place
        folds = range(self._trial.folds)
        parts = [self._split_of(part) for part in folds] or [self.splits.validation]
        self.labels = torch.cat([split.labels for split in parts])
        self.outputs = self._answers(parts) if len(self.labels) else None

    def winner(self) -> Trained:
        """The first candidate's own model: a plain network, or those of its cross-validation."""
        shares = torch.zeros(len(self.members))
        shares[0] = 1
        found = self.averaged(shares)
        if self._trial.folds:
            return found
        own, config, (backbone, *_) = self._trial.of(self._config), self._config, self._backbones
        channels, classes, task = self.splits.channels, len(self.splits.classes), self.splits.task
        module = empty_model(own, channels=channels, classes=classes, config=own.hyperparameters(config), task=task)
        source = str(self.members[0].checkpoint)
        load_state(module, backbone.state | backbone.heads[0][2], source=source, name=own.model_name)
        return replace(found, module=module.to(self._device).eval(), parts=())

    def averaged(self, shares: Tensor) -> Trained:
        """The model that averages the candidates with these shares [M]."""
        folds = max(1, self._trial.folds)
        weighed, tested = [], []
        for place, one in enumerate(self._backbones):
            rows = [row for row, (number, _, _) in enumerate(one.heads) if shares[number] > 0]
            if rows:
                heads = [one.heads[row] for row in rows]
                told = tuple(float(shares[number]) / folds for number, _, _ in heads)
                trials = tuple(self.members[number].trial for number, _, _ in heads)
                weighed.append((replace(one, heads=heads), replace(one.part, trials=trials, shares=told)))
                tested.append(self._test_answers(place)[rows])
        targets = self.splits.targets
        module = Ensemble([self._member(one, part) for one, part in weighed], targets.together).to(self._device).eval()
        parts = tuple(part for _, part in weighed)
        by_head = torch.tensor([share for part in parts for share in part.shares])
        validated = None
        if self.outputs is not None:
            chosen = shares > 0
            validated = _together(targets, self.outputs[chosen], shares[chosen].float()), self.labels
        return Trained(self.splits, module, validated, _together(targets, torch.cat(tested), by_head), parts)

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
        source = str(self.members[one.heads[0][0]].checkpoint)
        load_state(member.network, one.state | heads, source=source, name=one.part.model)
        return member

    def _split_of(self, part: int) -> Split:
        """The validation images of a part of the cross-validation."""
        winner = self._trial.of(self._config)
        return trial_splits(winner.fold(part), self._config, split_seed=self._seed).validation

    def _answers(self, parts: Sequence[Split]) -> Tensor:
        """Outputs [M, N, L] for validation images, of each part by the networks that didn't learn from it."""
        told: dict[tuple[int, int], Tensor] = {}
        for one in self._backbones:
            for fold, outputs in enumerate(self._asked(one, parts)):
                told |= {(number, fold): outputs[row] for row, (number, of, _) in enumerate(one.heads) if of == fold}
        each = [torch.cat([told[number, fold] for fold in range(len(parts))]) for number in range(len(self.members))]
        return torch.stack(each)

    def _test_answers(self, place: int) -> Tensor:
        """Outputs [H, N, L] of a backbone's heads for the test images."""
        if place not in self._tested:
            (self._tested[place],) = self._asked(self._backbones[place], [self.splits.test])
        return self._tested[place]

    def _asked(self, one: _Backbone, splits: Sequence[Split]) -> list[Tensor]:
        """Outputs [H, N, L] of a backbone's heads for the images of each split."""
        evaluator, shares = Evaluator(self._device), (1.0,) * len(one.heads)
        member = self._member(one, replace(one.part, trials=("",) * len(shares), shares=shares)).to(self._device)
        return [member.apart(evaluator.logits(member, split, self.splits.normalisation)).cpu() for split in splits]


def _together(targets: Targets, outputs: Tensor, shares: Tensor) -> Tensor:
    """Outputs [N, L] that say the weighted mean of outputs [K, N, L]; of one network they are its own."""
    return targets.together(outputs, shares / shares.sum()) if len(outputs) > 1 else outputs[0]


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
