"""Training without torch's compiler: `torch._dynamo` stays unloaded until something is compiled.

Its import takes as long as that of torch itself, 1.4 CPU seconds, and 250 MB in each process. Four things load it
needlessly (torch 2.15, torchvision 0.29): torchvision, for one query; optimizers, to keep their methods out of compiled
code; `DistributedDataParallel` and `FakeTensorMode`, for both. Where other versions load it, it is loaded as usual.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import nn
from torch._guards import Source
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
    with compiler_not_needed():
        return _Averaging(module, **options)


@contextmanager
def compiler_not_needed() -> Iterator[None]:
    """Within the block torch asks stand-ins for the compiler's settings, which have their defaults as nothing has set
    them, and for its guards, which aren't needed as nothing is compiled. Whatever else is used of it loads it.
    """
    if "torch._dynamo" in sys.modules:
        yield
        return
    vars(torch)["_dynamo"] = package = _package()
    sys.modules.update({module.__name__: module for module in (package, package.config, package.source, package.utils)})
    try:
        yield
    finally:
        package.leave()


class _StandIn(ModuleType):
    """Has what is asked of one of the compiler's modules before it is loaded; anything else loads the module.

    `leave` takes the stand-ins away.
    """

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        # the machinery of imports asks for such names; only to load a module in a package it needs one
        if name.startswith("__") and (name != "__path__" or self.__name__.count(".") > 1):
            raise AttributeError(name)
        self.leave()
        return getattr(importlib.import_module(self.__name__), name)


def _package() -> _StandIn:
    unguarded: list[Any] = []

    def disable(function: Any, *_: object, **__: object) -> Any:
        """Instead of the guard that torch asks for where a function is called for the first time, and keeps."""
        unguarded.append(function)
        return function

    def leave() -> None:
        for function in unguarded:  # it gets its guard with its next call
            vars(function).pop("__dynamo_disable", None)
        unguarded.clear()
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]
        if isinstance(vars(torch).get("_dynamo"), _StandIn):
            del vars(torch)["_dynamo"]

    def module(name: str, **known: Any) -> _StandIn:
        return _StandIn(f"torch._dynamo{name}", **known, leave=leave)

    caching = {"fake_tensor_cache_enabled": True, "fake_tensor_cache_crosscheck_enabled": False}
    sources = {"RandomValueSource": Source, "CallMethodItemSource": Source, "FloatTensorSource": Source}
    return module(
        "",
        disable=disable,
        config=module(".config", **caching, _custom_ops_profile=None),
        source=module(".source", **sources, ConstantSource=lambda name: Source()),  # where a tensor comes from
        utils=module(".utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
    )


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
