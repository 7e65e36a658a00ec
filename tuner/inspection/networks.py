"""The networks of one trial or of several as one model, with what they answer to images that they didn't learn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.history.combination import Candidate, kind_of
from tuner.inspection.card import Part
from tuner.space.values import recorded
from tuner.train.cross_validation import NETWORKS, whole_model
from tuner.train.data import Normalisation, Split, Splits, load_splits
from tuner.train.evaluation import Evaluator
from tuner.train.feed import validation_features
from tuner.train.models import Ensemble, Member, Network, answering_network, empty_network, load_state
from tuner.train.models.eight_bits import EightBits, quantised
from tuner.train.models.onnx_layers import answer_by, quickened
from tuner.train.tasks import Targets
from tuner.trial import ImageClassifier
from tuner.trial.hyperparameters import INT8
from tuner.trial.inference_cost import OF_FORWARD

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
    return _as_member(answering_network(trial, channels=channels, outputs=outputs, config=config), part, given)


def _as_member(network: nn.Module, part: Part, given: tuple[int, Normalisation]) -> Member:
    size, normalisation = given
    return Member(
        network,
        part.shares,
        scales=part.scales or None,
        size=None if part.image_size == size else part.image_size,
        normalisation=None if part.normalisation == normalisation else (normalisation, part.normalisation),
    )


@dataclass
class _Backbone:
    """Networks of candidates that differ only in their last layers.

    Attributes:
        trial: whose model it is
        config: all hyperparameters of one of the candidates
        splits: the data as its trials take it
        part: says how images are taken; without trials and shares
        state: tensors before the last layer, or all where it isn't known
        heads: each last layer's candidate, part of the cross-validation, and tensors
        quantised: the layers before the last one in 8 bits, once they were asked for
        network: with all heads, on the device, if it is kept there
        tested: outputs [H, N, L] for the test images at a size, once these were asked for
    """

    trial: ImageClassifier
    config: dict[str, Any]
    splits: Splits
    part: Part
    state: State
    heads: list[tuple[int, int, State]]
    network: nn.Module | None = None
    quantised: EightBits | None = None
    tested: dict[int, Tensor] = field(default_factory=dict)

    def joins(self, config: Mapping[str, Any], part: Part, state: State) -> bool:
        """Whether a network of these hyperparameters, part and tensors before the last layer is this one."""
        return (
            (self.part.model, self.part.image_size) == (part.model, part.image_size)
            and all(self.config.get(name) == config.get(name) for name in OF_FORWARD)
            and self.state.keys() == state.keys()
            and all(torch.equal(one, state[name]) for name, one in self.state.items())
        )

    def quantise(self, network: nn.Module) -> None:
        """Let a network with these layers answer in 8 bits if the trial did."""
        if self.config["quantization"] == INT8:
            self.quantised = self.quantised or quantised(network, self.splits.calibration())
            answer_by(network, self.quantised)

    def rows_of(self, shares: Tensor) -> list[int]:
        """The places of the heads whose candidate has a share, of shares [M]."""
        return [row for row, (number, _, _) in enumerate(self.heads) if shares[number] > 0]


class Pool:
    """The candidates' networks, with what they answer to validation and test images.

    Attributes:
        splits: the data as the winner takes it
        members: the candidates that take the same part of an image as the winner does, the winner first
        left_out: names of the others
        outputs: [M, N, L] float32 for the validation images as each takes them, on the CPU; None if there are none
        labels: of these, [N] or [N, L]
        parts: the splits with these validation images: of each part of a cross-validation, or the only ones
    """

    def __init__(
        self, trial: ImageClassifier, candidates: Sequence[Candidate], split_seed: int, device: torch.device | str
    ) -> None:
        """Load the networks and let them answer; raises as `score`."""
        self._trial, self._device, self._seed = trial, device, split_seed
        self._config = candidates[0].config
        self.splits = trial_splits(trial, self._config, split_seed=split_seed)
        self._shared = bool(trial.folds) or len(candidates) > 1  # whether networks may have the same layers
        self._heads: dict[str, str] = {}  # the last layer's name, by model
        self.members: list[Candidate] = []
        self._backbones: list[_Backbone] = []
        seen: dict[Any, Splits] = {}
        left_out = []
        for candidate in candidates:
            own = trial.of(candidate.config)
            key = own.model_name, own.asked_size(candidate.config)
            if key not in seen:
                seen[key] = trial_splits(own, candidate.config, split_seed=split_seed) if seen else self.splits
            if _same_region(seen[key], self.splits):
                self._add(own, candidate, seen[key])
            else:
                left_out.append(candidate.trial)
        self.left_out = tuple(left_out)
        self.parts = self._parts_as(self._backbones[0])
        self.labels = torch.cat([splits.validation.labels for splits in self.parts])
        self.outputs = self._answers() if len(self.labels) else None

    def mix(self) -> tuple[int, ...]:
        """Add a network with the mean of the weights of several members, and say of which, if there is a good one.

        It is a greedy soup (Wortsman et al. 2022, "Model soups"): the winner's network is joined by that of the next
        best member with the same layers and published weights, as long as the loss on the validation images falls.
        Networks that learned from other weights don't lie in one valley, so they have no part in it.
        """
        taken: tuple[int, ...] = (0,)
        if self.outputs is None:
            return ()
        losses = [self._loss(each) for each in self.outputs]
        least, best = losses[0], None
        alike = [number for number in range(1, len(self.members)) if self._mixes(number)]
        linear = bool(alike) and self._ends_with_head()
        for number in sorted(alike, key=losses.__getitem__):
            mixed = self._mixed((*taken, number), linear=linear)
            if (loss := self._loss(mixed[0])) < least:
                taken, least, best = (*taken, number), loss, mixed
        if best is None:
            return ()
        self._take(*best)
        return taken

    def winner(self) -> Trained:
        """The first candidate's own model: a plain network, or those of its cross-validation."""
        shares = torch.zeros(len(self.members))
        shares[0] = 1
        return self.averaged(shares)

    def averaged(self, shares: Tensor, scales: Tensor | None = None) -> Trained:
        """The model that averages the candidates with these shares [M], their outputs times `scales` [M].

        It takes images as the network with the largest ones does; others get them smaller. The winner alone, a soup, or
        another network by the winner's name is one network, whose last layer takes in the factor, unless a function
        made it.
        """
        only, *several = shares.nonzero()[:, 0].tolist()
        if not several and not self._trial.folds and self.members[only].trial == self.members[0].trial:
            factor = 1.0 if scales is None else float(scales[only])
            if factor == 1 or isinstance(self._trial.of(self._config).model, str):
                return self._alone(only, factor)
        tested, sharing = [], [one for one in self._backbones if one.rows_of(shares)]
        given = max((one.splits for one in sharing), key=lambda one: one.image_size)
        members, parts = self._members(sharing, shares, scales, given)
        for one, part in zip(sharing, parts, strict=True):
            answers = self._test_answers(one, given)[one.rows_of(shares)]
            tested.append(_scaled(answers, torch.tensor(part.scales) if part.scales else None))
        targets, by_head = self.splits.targets, torch.tensor([share for part in parts for share in part.shares])
        validated = None
        if self.outputs is not None:
            chosen = shares > 0
            scaled = _scaled(self.outputs[chosen], None if scales is None else scales[chosen])
            validated = _together(targets, scaled, shares[chosen].float()), self.labels
        module = Ensemble(members, targets.together).to(self._device).eval()
        return Trained(given, module, validated, _together(targets, torch.cat(tested), by_head), tuple(parts))

    def teacher(self, shares: Tensor, scales: Tensor) -> nn.Module:
        """As `averaged`, of images as the winner takes them: the module alone, on the device."""
        sharing = [one for one in self._backbones if one.rows_of(shares)]
        members, _ = self._members(sharing, shares, scales, self.splits)
        return Ensemble(members, self.splits.targets.together).to(self._device).eval()

    def _members(
        self, sharing: Sequence[_Backbone], shares: Tensor, scales: Tensor | None, given: Splits
    ) -> tuple[list[Member], list[Part]]:
        """Networks with the heads that have a share, of images as a model takes them, and what they are."""
        members, parts = [], []
        for one in sharing:
            rows = one.rows_of(shares)
            heads = [one.heads[row] for row in rows]
            told = tuple(float(shares[number]) / max(1, self._trial.folds) for number, _, _ in heads)
            trials = tuple(self.members[number].trial for number, _, _ in heads)
            factors = () if scales is None else tuple(float(scales[number]) for number, _, _ in heads)
            parts.append(replace(one.part, trials=trials, shares=told, scales=factors))
            whole = one if len(rows) == len(one.heads) else replace(one, heads=heads, network=None)
            members.append(_as_member(self._network(whole), parts[-1], _taken(given)))
        return members, parts

    def _alone(self, number: int, factor: float) -> Trained:
        """The one network of the winner or of a soup, its outputs times a factor."""
        own = self._trial.of(self._config)
        one, row = next(
            (one, row) for one in self._backbones for row, head in enumerate(one.heads) if head[0] == number
        )
        if len(one.heads) == 1 and factor == 1:
            module = self._whole(one)
        else:
            state = one.state | one.heads[row][2]
            if factor != 1:
                head = f"{self._head_of(own, one.config)}."
                state = {name: each * factor if name.startswith(head) else each for name, each in state.items()}
            module = answering_network(own, channels=self.splits.channels, outputs=self._classes, config=one.config)
            load_state(module, state, source=self._source(one), name=own.model_name)
            one.quantise(module)
        validated = None if self.outputs is None else (self.outputs[number] * factor, self.labels)
        tested = self._test_answers(one, one.splits)[row] * factor
        return Trained(self.splits, module.to(self._device).eval(), validated, tested)

    @property
    def _classes(self) -> int:
        return len(self.splits.classes)

    def _add(self, trial: ImageClassifier, candidate: Candidate, splits: Splits) -> None:
        number, config = len(self.members), trial.hyperparameters(candidate.config)
        state = whole_model(
            candidate.checkpoint, trial, candidate.config, channels=splits.channels, classes=self._classes
        )
        library = isinstance(trial.model, str)
        if library:  # a function's images may have a size of their own
            config["image_size"] = splits.image_size
        part = Part(
            *(trial.model_name, str(trial.own_weights), recorded(candidate.config), splits.image_size),
            splits.normalisation,
            *((), (), trial.commit),
        )
        self.members.append(candidate)
        apart = self._shared or config.get("finetune") == "head"
        head = self._head_of(trial, config) if library and apart else None  # a function makes its own outputs
        for fold, tensors in enumerate(_networks(state, trial.folds)):
            last = {name: one for name, one in tensors.items() if head is not None and name.startswith(f"{head}.")}
            before = {name: one for name, one in tensors.items() if name not in last}
            found = next((one for one in self._backbones if last and one.joins(config, part, before)), None)
            if found is None:
                found = _Backbone(trial, config, splits, part, before, [])
                self._backbones.append(found)
            found.heads.append((number, fold, last))

    def _mixes(self, number: int) -> bool:
        """Whether a member's networks have the winner's layers, and learned from the same published weights."""
        own, other = (self._trial.of(self.members[one].config) for one in (0, number))
        alike = (own.model_name, own.own_weights) == (other.model_name, other.own_weights)
        return (
            own.starts_from_weights
            and alike
            and kind_of(self.members[0].config) == kind_of(self.members[number].config)
        )

    def _loss(self, outputs: Tensor) -> float:
        """The mean loss of outputs [N, L] for the validation images, with the factor that suits them."""
        targets = self.splits.targets
        scaled = outputs[None] * targets.scales(outputs[None], self.labels).to(outputs)
        return float(targets.losses(targets.merits(scaled, self.labels)).mean())

    def _networks_of(self, number: int) -> list[tuple[_Backbone, State]]:
        """For each part of the cross-validation, or the only one, a member's backbone and last layer."""
        each = {fold: (one, last) for one in self._backbones for of, fold, last in one.heads if of == number}
        return [each[fold] for fold in sorted(each)]

    def _ends_with_head(self) -> bool:
        """Whether outputs of the mean of last layers are the mean of their outputs."""
        own, one = self._trial.of(self.members[0].config), self._backbones[0]
        network = empty_network(own, channels=self.splits.channels, classes=self._classes, config=one.config)
        images = self.splits.normalisation(self.splits.train.images(torch.zeros(1, dtype=torch.int64)))
        return network.head_is_last(images)

    def _mixed(self, taken: tuple[int, ...], *, linear: bool) -> tuple[Tensor, list[tuple[_Backbone, State]]]:
        """Outputs [N, L] for the validation images, and for each part a backbone and a last layer, of a mean."""
        assert self.outputs is not None
        networks, told = [], []
        lengths = [len(splits.validation.labels) for splits in self.parts]
        answered = torch.split(self.outputs[list(taken)].mean(0), lengths)
        for fold, several in enumerate(zip(*map(self._networks_of, taken), strict=True)):
            one, first = several[0]
            if linear and first and all(each is one for each, _ in several):
                networks.append((one, _mean([last for _, last in several])))
                told.append(answered[fold])
                continue
            mean = _mean([each.state | last for each, last in several])
            mixed = replace(one, state=mean, heads=[(0, fold, {})], network=None, quantised=None, tested={})
            networks.append((mixed, {}))
            told.append(self._validated(mixed, None, self.parts[fold])[0])
        return torch.cat(told), networks

    def _take(self, outputs: Tensor, networks: list[tuple[_Backbone, State]]) -> None:
        """Make a mean a further member, by the winner's name."""
        assert self.outputs is not None
        number = len(self.members)
        for fold, (one, last) in enumerate(networks):
            if last:
                one.heads.append((number, fold, last))
                one.network, one.tested = None, {}
            else:
                one.heads = [(number, fold, {})]
                self._backbones.append(one)
        self.members.append(self.members[0])
        self.outputs = torch.cat([self.outputs, outputs[None]])

    def _head_of(self, trial: ImageClassifier, config: dict[str, Any]) -> str:
        """The name of the last layer of a library's model."""
        if trial.model_name not in self._heads:
            network = empty_network(trial, channels=self.splits.channels, classes=self._classes, config=config)
            self._heads[trial.model_name] = network.head
        return self._heads[trial.model_name]

    def _source(self, one: _Backbone) -> str:
        return str(self.members[one.heads[0][0]].checkpoint)

    def _network(self, one: _Backbone) -> nn.Module:
        """The network with the heads of a backbone, whose outputs stand side by side."""
        if one.network is not None:
            return one.network
        outputs = self._classes * len(one.heads)
        network = answering_network(one.trial, channels=self.splits.channels, outputs=outputs, config=one.config)
        load_state(network, self._state(one), source=self._source(one), name=one.part.model)
        one.quantise(network)
        return network

    def _state(self, one: _Backbone) -> State:
        """All tensors of the network with the heads of a backbone."""
        return one.state | {name: torch.cat([last[name] for _, _, last in one.heads]) for name in one.heads[0][2]}

    def _whole(self, one: _Backbone) -> nn.Module:
        """The network with all heads, on the device; of several trials' backbones none stays there."""
        found = self._network(one).to(self._device)
        one.network = found if len(self._backbones) == 1 or len(self.members) == 1 else None
        return found

    def _parts_as(self, one: _Backbone) -> list[Splits]:
        """The parts of the cross-validation, or the only one, as a backbone's trials take them."""
        config = self.members[one.heads[0][0]].config
        folds = [self._trial.of(config).fold(number) for number in range(self._trial.folds)]
        return [trial_splits(fold, config, split_seed=self._seed) for fold in folds] or [one.splits]

    def _answers(self) -> Tensor:
        """Outputs [M, N, L] for validation images, of each part by the networks that didn't learn from it."""
        told: dict[tuple[int, int], Tensor] = {}
        parts = {id(self.splits): self.parts}  # of each way to take images
        for one in self._backbones:
            if id(one.splits) not in parts:
                parts[id(one.splits)] = self._parts_as(one)
            frozen = self._frozen(one)
            for fold in {fold for _, fold, _ in one.heads}:
                outputs = self._validated(one, frozen, parts[id(one.splits)][fold])
                told |= {(number, fold): outputs[row] for row, (number, of, _) in enumerate(one.heads) if of == fold}
        each = [
            torch.cat([told[number, fold] for fold in range(len(self.parts))]) for number in range(len(self.members))
        ]
        return torch.stack(each)

    def _frozen(self, one: _Backbone) -> Network | None:
        """The network with all heads of a backbone that learned nothing; None of others."""
        if one.config.get("finetune") != "head" or not one.heads[0][2]:
            return None
        outputs = self._classes * len(one.heads)
        network = empty_network(one.trial, channels=self.splits.channels, classes=outputs, config=one.config)
        load_state(network.module, self._state(one), source=self._source(one), name=one.part.model)
        network.module.to(self._device).eval()
        return network

    def _validated(self, one: _Backbone, frozen: Network | None, splits: Splits) -> Tensor:
        """Outputs [H, N, L] of a backbone's heads for the validation images of splits, as its trials take them."""
        device, features = self._device, None
        if frozen is not None:
            features = validation_features(frozen, splits, device, one.config, model=one.part.model)
        if frozen is not None and features is not None:
            with torch.inference_mode():
                outputs: Tensor = frozen.head_layer(features.to(device))
        else:
            outputs = self._asked(self._whole(one), splits.validation, splits.normalisation)
        return outputs.cpu().reshape(-1, len(one.heads), self._classes).transpose(0, 1)

    def _test_answers(self, one: _Backbone, given: Splits) -> Tensor:
        """Outputs [H, N, L] of a backbone's heads for the test images of splits as a model takes them."""
        if given.image_size not in one.tested:
            count = len(one.heads)
            part = replace(one.part, trials=("",) * count, shares=(1.0,) * count)
            member = _as_member(self._whole(one), part, _taken(given)).to(self._device)
            outputs = self._asked(member, given.test, given.normalisation)
            one.tested[given.image_size] = member.apart(outputs).cpu()
        return one.tested[given.image_size]

    def _asked(self, module: nn.Module, split: Split, normalisation: Normalisation) -> Tensor:
        """The outputs of a network, or of a member, for the images of a split."""
        device = torch.device(self._device)
        images = normalisation(split.images(torch.arange(min(3, len(split)))).to(device))
        network = module
        if isinstance(module, Member):
            network, images = module.network, module.fitted(images)
        with quickened(network, images, count=len(split)):
            return Evaluator(device).logits(module, split, normalisation)


def _mean(states: Sequence[State]) -> State:
    """The mean of tensors with the same names; whole numbers, such as counts of batches, are the first's."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if one.is_floating_point() else one
        for name, one in states[0].items()
    }


def _taken(splits: Splits) -> tuple[int, Normalisation]:
    """What a model takes: images of this size with this normalisation."""
    return splits.image_size, splits.normalisation


def _scaled(outputs: Tensor, scales: Tensor | None) -> Tensor:
    """Outputs [K, N, L] times factors [K]."""
    return outputs if scales is None else outputs * scales.to(outputs)[:, None, None]


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
