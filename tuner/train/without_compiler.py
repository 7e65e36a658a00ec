"""Training without torch's compiler: `torch._dynamo` stays unloaded until something is compiled.

Its import takes as long as that of torch itself, 1.4 CPU seconds, and 250 MB in each process. Three things load it
needlessly (torch 2.15, torchvision 0.29): torchvision, for one query; optimizers, to keep their methods out of compiled
code; and `DistributedDataParallel`, for both. Where other versions load it, it is loaded as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from tuner.deferring import deferred

with deferred(functions={"torch._dynamo.utils": "is_compile_supported"}):
    import torchvision  # noqa: F401

Kind = TypeVar("Kind", bound=Optimizer)


def uncompiled(kind: type[Kind]) -> type[Kind]:
    """A subclass of one of torch's optimizers with the same methods, without their guards against being compiled.

    For optimizers that are called outside of compiled code, where the guards only decide whether gradients are
    recorded: they aren't, so `differentiable=True` has no effect.
    """
    bare = {name: _bare(getattr(kind, name)) for name in dir(kind) if not name.startswith("__")}
    changed = {name: method for name, method in bare.items() if method is not getattr(kind, name)}
    return type(kind.__name__, (kind,), {"__doc__": kind.__doc__, "__module__": __name__, **changed})


def _bare(method: Any) -> Any:
    """The function inside torch's two guards; a step also loses its call counter, which each optimizer adds again."""
    inner = method
    while getattr(inner, "__code__", None) in _GUARDS or getattr(inner, "hooked", False):
        inner = inner.__wrapped__
    return torch.no_grad()(inner) if inner is not method and method.__name__ == "step" else inner


def averaging_gradients(module: nn.Module, **options: Any) -> DistributedDataParallel:
    """`DistributedDataParallel` of a module that isn't called from compiled code; it may be compiled itself."""
    if "torch._dynamo" in sys.modules:
        return DistributedDataParallel(module, **options)
    with _default_mode():
        return _Averaging(module, **options)


@contextmanager
def _default_mode() -> Iterator[None]:
    """The default of the compiler's setting that `DistributedDataParallel` reads: nothing has set it yet."""
    stand_in = SimpleNamespace(utils=SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer"))
    names = vars(torch)
    names["_dynamo"] = stand_in
    try:
        yield
    finally:
        if names.get("_dynamo") is stand_in:
            del names["_dynamo"]


def _guards() -> set[Any]:
    """The code with which torch's guards wrap any function; none if this version of torch has other guards."""
    made: list[Callable[..., Any] | None] = [
        getattr(torch, "_disable_dynamo", None),
        getattr(sys.modules[Optimizer.__module__], "_use_grad_for_differentiable", None),
    ]
    return {guard(_guards).__code__ for guard in made if guard is not None}


_GUARDS = _guards()


def _entering() -> Any:
    """What `DistributedDataParallel` enters in each forward pass, without its guard; its own if torch has others."""
    own: Any = DistributedDataParallel._inside_ddp_forward
    guarded: Any = getattr(own, "__wrapped__", None)
    return contextmanager(guarded.__wrapped__) if getattr(guarded, "__code__", None) in _GUARDS else own


class _Averaging(DistributedDataParallel):
    _inside_ddp_forward = _entering()
