"""The optimizer, its groups of parameters, and their state as plain tensors and scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer

from tuner.train.without_compiler import uncompiled
from tuner.trial.only_the_head import LBFGS

Group = dict[str, Any]  # "params", "lr_scale", "weight_decay"

SGD, Adam, AdamW = uncompiled(optim.SGD), uncompiled(optim.Adam), uncompiled(optim.AdamW)


def parameter_groups(parameters: Iterable[tuple[nn.Parameter, float]], weight_decay: float) -> list[Group]:
    """Parameters in groups that are treated alike: biases and weights of norms, which have one axis, don't decay.

    Args:
        parameters: each with its share of the learning rate
        weight_decay: of the other parameters
    """
    groups: dict[tuple[float, float], Group] = {}
    for parameter, scale in parameters:
        decay = weight_decay if parameter.ndim > 1 else 0.0
        empty: Group = {"params": [], "lr_scale": scale, "weight_decay": decay}
        groups.setdefault((scale, decay), empty)["params"].append(parameter)
    return list(groups.values())


def build_optimizer(groups: list[Group], hyperparameters: dict[str, Any]) -> Optimizer:
    """The configuration's optimizer; fused, because that takes a third less time for a small step.

    For lbfgs it only holds the groups: `tuner.train.heads.solver` takes no steps of it, and keeps no state.
    """
    lr = hyperparameters["lr"]
    if hyperparameters["optimizer"] == LBFGS:
        return SGD(groups, lr=1.0)
    if hyperparameters["optimizer"] == "adam":
        return Adam(groups, lr=lr, fused=True)
    if hyperparameters["optimizer"] == "adamw":
        return AdamW(groups, lr=lr, fused=True)
    momentum = hyperparameters["momentum"]
    return SGD(groups, lr=lr, momentum=momentum, nesterov=hyperparameters["nesterov"] and momentum > 0, fused=True)


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Give every group its share of `lr`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]


def begin_state(optimizer: Optimizer) -> None:
    """Allocate the state that parameters with a gradient don't have yet, before a step changes any of them.

    Torch allocates it group by group: if memory ran out for a later group, earlier ones would be updated already. And
    if its fused SGD skips the first step because a gradient overflowed, it doesn't fill momentum, which then starts
    with whatever the memory held (torch 2.15).
    """
    groups = optimizer.param_groups
    if len(optimizer.state) == sum(len(group["params"]) for group in groups):  # as in all steps except the first
        return
    for group in groups:
        for parameter in group["params"]:
            if parameter.grad is not None and not optimizer.state.get(parameter):
                begun = _first_state(optimizer, group, parameter)
                if begun:
                    optimizer.state[parameter] = begun


def _first_state(optimizer: Optimizer, group: Group, parameter: Tensor) -> dict[str, Tensor]:
    """The initial state of torch's fused optimizers."""
    if isinstance(optimizer, optim.SGD):
        return {"momentum_buffer": torch.zeros_like(parameter)} if group["momentum"] else {}
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def drop_unfinished_state(optimizer: Optimizer) -> None:
    """Delete state that was being allocated for a parameter when memory ran out, so that it is allocated again."""
    kinds = max((len(state) for state in optimizer.state.values()), default=0)
    for parameter in [parameter for parameter, state in optimizer.state.items() if len(state) < kinds]:
        del optimizer.state[parameter]


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by "<number of the parameter>.<name>"."""
    return {
        f"{index}.{name}": value
        for index, entry in optimizer.state_dict()["state"].items()
        for name, value in entry.items()
        if isinstance(value, Tensor)
    }


def load_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor], groups: list[Group]) -> None:
    """Load the tensors of `optimizer_tensors` and the `state_dict`'s groups into an optimizer of the same parameters.

    Each tensor gets its parameter's memory layout, whatever the given one's.

    Raises:
        ValueError: they belong to other parameters; the optimizer is unchanged.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        if int(index) >= len(parameters) or tensor.shape != (() if name == "step" else parameters[int(index)].shape):
            raise ValueError(f"the optimizer's {key} has the shape {tuple(tensor.shape)}, its parameter another")
        state.setdefault(int(index), {})[name] = tensor if name == "step" else _like(parameters[int(index)], tensor)
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy with the parameter's strides: files hold contiguous tensors, and CUDA's fused kernels refuse a mixture."""
    return torch.empty_like(parameter, requires_grad=False).copy_(tensor)
