"""Training without torch's compiler: `torch._dynamo` stays unloaded until something is compiled.

It takes as long to import as torch itself, 1.4 CPU seconds, and 250 MB of each process. Two things load it by the way
(torch 2.15, torchvision 0.29): torchvision, for one question, and optimizers, whose methods keep themselves out of
compiled code. Where another version does so elsewhere, it is loaded as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

from tuner.deferring import deferred

with deferred(functions={"torch._dynamo.utils": "is_compile_supported"}):
    import torchvision  # noqa: F401

Kind = TypeVar("Kind", bound=Optimizer)


def uncompiled(kind: type[Kind]) -> type[Kind]:
    """A subclass of one of torch's optimizers with the same methods, without what guards them from being compiled.

    For optimizers that are called outside of compiled code, where the guards change nothing but whether gradients are
    recorded: they aren't, so `differentiable=True` has no effect.
    """
    bare = {name: _bare(getattr(kind, name)) for name in dir(kind) if not name.startswith("__")}
    changed = {name: method for name, method in bare.items() if method is not getattr(kind, name)}
    return type(kind.__name__, (kind,), {"__doc__": kind.__doc__, "__module__": __name__, **changed})


def _bare(method: Any) -> Any:
    """What torch's two guards wrap; of a step also what counts its calls, which each optimizer adds again."""
    inner = method
    while getattr(inner, "__code__", None) in _GUARDS or getattr(inner, "hooked", False):
        inner = inner.__wrapped__
    return torch.no_grad()(inner) if inner is not method and method.__name__ == "step" else inner


def _guards() -> set[Any]:
    """The code that torch's guards put around a function, whichever it is; none where torch has others."""
    made: list[Callable[..., Any] | None] = [
        getattr(torch, "_disable_dynamo", None),
        getattr(sys.modules[Optimizer.__module__], "_use_grad_for_differentiable", None),
    ]
    return {guard(_guards).__code__ for guard in made if guard is not None}


_GUARDS = _guards()
