"""How large a trial's checkpoints will be, found without weights: the network's tensors have no contents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tuner.train.fine_tuning import FineTuning
from tuner.train.models import Network, empty_network
from tuner.train.optimisation import parameter_groups
from tuner.trial import ImageClassifier
from tuner.trial.only_the_head import LBFGS

COPIES = {"adam": 2, "adamw": 2, LBFGS: 0}  # copies of each learning weight in the optimizer's state
MATTERS = (
    *("model", "pooling", "blocks", "optimizer", "ema_decay", "finetune", "stem", "freeze_batch_norm", "probe_epochs"),
)
MOST_MODELS = 24  # that are created: a user's function may take a while for each
HEADER_BYTES = 110  # of a tensor in a file: its name, type, shape and offsets
STATE_NAMES = {"adam": 3, "adamw": 3, "sgd": 1}  # tensors for each learning weight


def checkpoint_bytes(
    trial: ImageClassifier, configs: Sequence[dict[str, Any]], *, epochs: int, channels: int, classes: int
) -> tuple[int, dict[str, Any]]:
    """Bytes of the largest checkpoint that one of these configurations saves, and which configuration that is.

    If more than MOST_MODELS differ in what matters, the first ones count.

    Args:
        trial: whose network it is; weights are neither read nor downloaded
        configs: hyperparameters by name
        epochs: the budget's length of a trial, in which `finetune="gradual"` opens stage after stage
        channels: of the images
        classes: of the data

    Raises:
        Exception: whatever a user's function raises if it can't make its model.
    """
    chosen = {_key(trial, config): config for config in configs}
    sizes = [
        (_bytes(trial, trial.hyperparameters(config), epochs=epochs, channels=channels, classes=classes), config)
        for config in list(chosen.values())[:MOST_MODELS]
    ]
    return max(sizes, key=lambda pair: pair[0])


def _key(trial: ImageClassifier, config: dict[str, Any]) -> str:
    """A key that configurations share if their checkpoints are alike; for a function's model all of it matters."""
    if not isinstance(trial.model, str):
        return json.dumps(config, sort_keys=True, default=str)
    chosen = trial.hyperparameters(config)
    return json.dumps([chosen.get(name) for name in MATTERS] + [bool(chosen["momentum"])], default=str)


def _bytes(trial: ImageClassifier, chosen: dict[str, Any], *, epochs: int, channels: int, classes: int) -> int:
    with torch.device("meta"), _Undrawn():
        network = empty_network(trial.of(chosen), channels=channels, classes=classes, config=chosen)
    model = list(network.module.state_dict().values())
    if _leaves_out(trial.of(chosen), chosen, network):
        model = list(network.head_layer.state_dict().values())
    learning = _learning(network, chosen, epochs)
    size = _size(model) * (2 if chosen["ema_decay"] else 1)
    size += _copies(chosen) * _size(learning)
    tensors = len(model) * (2 if chosen["ema_decay"] else 1)
    tensors += STATE_NAMES[chosen["optimizer"]] * len(learning) if _copies(chosen) else 0
    return max(1, trial.folds) * (size + HEADER_BYTES * tensors)


def _leaves_out(trial: ImageClassifier, chosen: dict[str, Any], network: Network) -> bool:
    """Whether checkpoints only have the head, see `tuner.train.state`."""
    fresh_stem = network.stem in network.new and chosen["stem"] == "new"
    return chosen["finetune"] == "head" and trial.starts_from_weights and not fresh_stem


class _Undrawn(TorchFunctionMode):
    """Skips random values for tensors without contents, for which torch would load its compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in (Tensor.normal_, Tensor.uniform_) else func(*args, **(kwargs or {}))


def _copies(chosen: dict[str, Any]) -> int:
    return COPIES.get(chosen["optimizer"], 1 if chosen["momentum"] else 0)


def _learning(network: Network, chosen: dict[str, Any], epochs: int) -> list[nn.Parameter]:
    """The weights that learn in the last epoch, when most do."""
    total = min(epochs, chosen["epochs"] or epochs)
    fine_tuning = FineTuning(network, chosen, total)
    groups = parameter_groups(fine_tuning.open(fine_tuning.due(total - 1)), chosen["weight_decay"])
    return [parameter for group in groups for parameter in group["params"]]


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
