"""Which layers of a network learn in which epoch, and how fast: all, only the head, or one stage after another."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tuner.train.models.network import Network
from tuner.train.models.stages import Stage, find_stages

LP_FT = "lp-ft"


class FineTuning:
    """Opens a network's stages to learning.

    `finetune="all"` opens them all at once; "head" the last one; "gradual" the last one, then one more every
    `unfreeze_every` epochs from the output to the input (Howard and Ruder 2018); "lp-ft" the last one for
    `probe_epochs`, then all (Kumar et al. 2022, https://arxiv.org/abs/2202.10054). Layers without pretrained weights
    learn from the beginning, at the full learning rate. A stage that isn't open works as in evaluation: its batch norms
    keep their statistics, its dropout is off. Frozen batch norms keep theirs in every stage.
    """

    def __init__(self, network: Network, hyperparameters: dict[str, Any], epochs: int) -> None:
        """Begin a trial of this many epochs; nothing learns yet."""
        self._network = network
        self._kind: str = hyperparameters["finetune"]
        self._every: int = hyperparameters["unfreeze_every"]
        self._probe = probe_epochs(hyperparameters, epochs)
        self._frozen = _batch_norms(network.module) if hyperparameters["freeze_batch_norm"] else []
        self._never = {id(parameter) for layer in self._frozen for parameter in layer.parameters()}
        self._scale: float = hyperparameters["backbone_lr_scale"]
        self._decay: float = hyperparameters["layer_decay"]
        self._stages = find_stages(network.module, network.head, network.layers)
        self._open: list[Stage] = []
        self._fresh = {
            f"{layer}.{name}"
            for layer in network.new
            for name, _ in network.module.get_submodule(layer).named_parameters()
        }
        network.module.requires_grad_(requires_grad=False)

    @property
    def opened(self) -> int:
        """Number of stages that learn, not counting fresh layers in other stages."""
        return len(self._open)

    @property
    def learns_beside_the_head(self) -> tuple[str, ...]:
        """Names of layers before the head that have no pretrained weights, and so learn from the first epoch on."""
        return tuple(name for name in self._network.new if name != self._network.head)

    @property
    def only_the_head_learns(self) -> bool:
        """Whether everything before the head is as it was loaded, and doesn't learn in this epoch."""
        return len(self._open) == 1 and not self.learns_beside_the_head

    @property
    def probing(self) -> bool:
        """Whether it is one of the first epochs of "lp-ft", in which images aren't augmented."""
        return self._kind == LP_FT and not self.everything_learns

    @property
    def everything_learns(self) -> bool:
        """Whether all stages learn."""
        return len(self._open) == len(self._stages)

    def due(self, epoch: int) -> int:
        """How many stages are open in the epoch after `epoch` finished ones."""
        if self._kind == "all":
            return len(self._stages)
        if self._kind == LP_FT:
            return len(self._stages) if epoch >= self._probe else 1
        return 1 if self._kind == "head" else min(len(self._stages), 1 + epoch // self._every)

    def open(self, count: int) -> list[tuple[nn.Parameter, float]]:
        """Open stages until `count` are open; returns newly learning parameters, each with its share of the rate."""
        learning: list[tuple[nn.Parameter, float]] = []
        while len(self._open) < count:
            stage = self._stages[-1 - len(self._open)]
            learning += self._learning(stage.parameters, self._share(len(self._open)))
            self._open.append(stage)
        return learning + self._learning(sorted(self._fresh), 1.0)

    def set_mode(self) -> None:
        """Training mode for what learns, evaluation mode for the rest."""
        self._network.module.eval()
        if self.everything_learns:
            self._network.module.train()
        else:
            for name in [*(name for stage in self._open for name in stage.modules), *self._network.new]:
                self._network.module.get_submodule(name).train()
        for layer in self._frozen:
            layer.eval()

    def _share(self, distance: int) -> float:
        """The share of the learning rate for the stage `distance` stages before the head."""
        return 1.0 if distance == 0 else self._scale * self._decay**distance

    def _learning(self, names: Iterable[str], share: float) -> list[tuple[nn.Parameter, float]]:
        """Let parameters learn; returns those that didn't before, each with its share, which is 1 for fresh layers."""
        begun = []
        for name in names:
            parameter = self._network.module.get_parameter(name)
            if not parameter.requires_grad and id(parameter) not in self._never:
                parameter.requires_grad_(True)
                begun.append((parameter, 1.0 if name in self._fresh else share))
        return begun


def probe_epochs(hyperparameters: dict[str, Any], epochs: int) -> int:
    """Epochs of a "lp-ft" trial in which only the head learns; the default leaves at least one other epoch."""
    chosen: int | None = hyperparameters["probe_epochs"]
    return min(math.ceil(epochs / 3), epochs - 1) if chosen is None else chosen


def _batch_norms(module: nn.Module) -> list[nn.Module]:
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
