"""Training without torch's compiler: `torch._dynamo` stays unloaded until something is compiled.

Its import takes as long as that of torch itself, 1.4 CPU seconds, and 250 MB in each process. Six things load it
needlessly (torch 2.15, torchvision 0.29): torchvision and its `transforms.v2`, pipelines, optimizers,
`DistributedDataParallel` and `FakeTensorMode`, to ask for a setting or to keep their methods out of compiled code.
Where other versions load it, it is loaded as usual.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch._guards import Source
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

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
    absent = _AbsentCompiler()
    absent.come()
    try:
        yield
    finally:
        absent.leave()


class _StandIn(ModuleType):
    """Has what is asked of one of the compiler's modules before it is loaded; anything else loads the module."""

    def __init__(self, name: str, leave: Callable[[], None], **known: Any) -> None:
        super().__init__(name)
        vars(self).update(known)
        self._leave = leave

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the machinery of imports asks
            raise AttributeError(name)
        self._leave()
        return getattr(importlib.import_module(self.__name__), name)


class _AbsentCompiler:
    """The stand-ins of the compiler's modules, until something else of it is asked for; a finder of imports."""

    def __init__(self) -> None:
        self._unguarded: list[Any] = []
        caching = {"fake_tensor_cache_enabled": True, "fake_tensor_cache_crosscheck_enabled": False}
        sources = {"RandomValueSource": Source, "CallMethodItemSource": Source, "FloatTensorSource": Source}
        parts: dict[str, dict[str, Any]] = {
            "config": {**caching, "_custom_ops_profile": None},
            "source": {**sources, "ConstantSource": lambda name: Source()},  # where a tensor comes from
            "utils": {"get_optimize_ddp_mode": lambda: "ddp_optimizer", "is_compile_supported": _is_compile_supported},
        }
        modules = {part: _StandIn(f"torch._dynamo.{part}", self.leave, **known) for part, known in parts.items()}
        no_module = type("OptimizedModule", (), {})  # nothing is one
        own: dict[str, Any] = {"disable": self._disable, "OptimizedModule": no_module, "__path__": []}
        self._package = _StandIn("torch._dynamo", self.leave, **own, **modules)
        self._modules = {module.__name__: module for module in (self._package, *modules.values())}

    def come(self) -> None:
        """Take the place of the compiler's modules."""
        sys.modules.update(self._modules)
        vars(torch)["_dynamo"] = self._package
        sys.meta_path.insert(0, self)

    def leave(self) -> None:
        """From now on the compiler is imported as usual."""
        for function in self._unguarded:  # it gets its guard with its next call
            vars(function).pop("__dynamo_disable", None)
        self._unguarded.clear()
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        if vars(torch).get("_dynamo") is self._package:
            del vars(torch)["_dynamo"]
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Of any other of the compiler's modules: it is imported after the compiler itself, and only once."""
        if not name.startswith("torch._dynamo."):
            return None
        self.leave()
        return ModuleSpec(name, _Imported(importlib.import_module(name)))

    def _disable(self, function: Any, *_: object, **options: object) -> Any:
        """Instead of the guard that torch asks for where a function is called for the first time, and keeps. One that
        is asked for where a function is defined is as late as that.
        """
        if "wrapping" not in options:
            return cast(Any, torch)._disable_dynamo(function)
        self._unguarded.append(function)
        return function


def _is_compile_supported(device: str) -> bool:
    """Torchvision's operations import the function, and call it when they are used."""
    return bool(importlib.import_module("torch._dynamo.utils").is_compile_supported(device))


class _Imported(Loader):
    """Hands over a module that is imported already."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


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


with compiler_not_needed():
    import torchvision  # noqa: F401
