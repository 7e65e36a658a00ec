"""A pretended GPU: CPU tensors that say that they lie on `cuda:0`, so that code for GPUs runs where there is none.

    with pretending() as gpu:
        trainer = Trainer(trial, config, epochs=3, device="cuda")
        trainer.train(steps=1)
        gpu.clear()
        trainer.train(steps=2)
    assert not gpu.syncs
    assert not gpu.mixed

Every tensor carries a mark, which operators hand on to their results. It counts, with the line of `tuner` that is to
blame, operators that make the host wait, copies from the host, and operators on tensors of two devices, which CUDA
would refuse. Fused optimizers refuse what CUDA's kernels refuse.

What it can't show: speed and the memory that is used; CUDA graphs, streams and what runs at the same time; rounding,
cuDNN's choices, and operators that CUDA lacks. The CPU's generator stands in for the GPU's, and the CPU's autocast for
CUDA's, which keeps other operators in float32. What C++ does inside an operator, and so all of a backward pass, is
unseen, as is what torch's own Python functions do inside a function that can be overridden (`F.*`, `torch.*`). There is
one GPU, no pinned memory, and no other process knows of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

import tuner
from tuner.train.data.device_images import _KEPT
from tuner.train.data.normalisation import _constants
from tuner.train.data.policies import _magnitudes

GPU, HOST = torch.device("cuda", 0), torch.device("cpu")
PACKAGE = Path(tuner.__file__).parent

SYNCS = {
    *(Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__format__, Tensor.__repr__),
    *(Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.__contains__),
    *(Tensor.equal, torch.equal, Tensor.allclose, torch.allclose, Tensor.is_nonzero, torch.is_nonzero),
    *(Tensor.nonzero, torch.nonzero, Tensor.argwhere, torch.argwhere, Tensor.masked_select, torch.masked_select),
    *(Tensor.unique, torch.unique, Tensor.bincount, torch.bincount),
}
TO_HOST = {Tensor.cpu, Tensor.numpy, Tensor.tolist}
FROM_DATA = {torch.tensor, torch.as_tensor, torch.asarray}  # these copy what they are given to the device
BETWEEN_DEVICES = {
    *(Tensor.copy_, Tensor.to, Tensor.__getitem__, Tensor.__setitem__),
    *(torch._foreach_copy_, torch._has_compatible_shallow_copy_type),
}
FUSED = {torch._fused_adam_: 5, torch._fused_adamw_: 5, torch._fused_sgd_: 3}  # lists that must be alike


def on_gpu(value: object) -> bool:
    """Whether a value is a tensor on the pretended GPU."""
    return isinstance(value, Tensor) and vars(value).get("on_gpu", False)


def put(value: object, *, gpu: bool) -> None:
    """Mark a value, if it is a tensor."""
    if isinstance(value, Tensor):
        vars(value)["on_gpu"] = gpu


class Call:
    """A call of one of torch's functions.

    Attributes:
        tensors: all that it was given, in lists too
        device: that it names; None for none
        gpu: whether its results lie on the GPU
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.name = getattr(function, "__name__", str(function))
        self.values = tree_leaves((args, kwargs))
        self.tensors = [value for value in self.values if isinstance(value, Tensor)]
        self.device = self._named_device()
        self.gpu = any(map(on_gpu, self.tensors)) if self.device is None else self.device.type == "cuda"

    def _named_device(self) -> torch.device | None:
        if self.function in TO_HOST:
            return HOST
        if self.function is Tensor.to and len(self.tensors) == 2:
            return GPU if on_gpu(self.tensors[1]) else HOST
        return next(filter(None, map(_as_device, self.values)), None)

    def run(self) -> Any:
        """Call it with the CPU in place of the GPU, and mark what comes out; what went in keeps its mark."""
        args, kwargs = tree_map(lambda value: HOST if _as_device(value) == GPU else value, (self.args, self.kwargs))
        given = set(map(id, self.tensors))
        result = self.function(*args, **kwargs)
        if self.device is not None and id(result) in given and on_gpu(result) != self.gpu:
            result = result.clone()  # between real devices it is another tensor
        for value in tree_leaves(result):
            if id(value) not in given:
                put(value, gpu=self.gpu)
        return result


def _as_device(value: object) -> torch.device | None:
    """The device that an argument names; any GPU is the pretended one."""
    if isinstance(value, torch.device):
        return GPU if value.type == "cuda" else HOST
    if isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu"):
        return GPU if value.startswith("cuda") else HOST
    return None


class PretendedGPU(TorchFunctionMode):
    """Marks tensors and counts what they are used for, by "operator at file:line".

    Attributes:
        syncs: operators for which the host waits until the device is done, copies to the host among them
        copies: from the host; those of them that block make the host wait too
        mixed: operators on tensors of both devices
    """

    def __init__(self) -> None:
        super().__init__()
        self.syncs: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        self.mixed: Counter[str] = Counter()

    def clear(self) -> None:
        """Count from zero."""
        for counter in (self.syncs, self.copies, self.mixed):
            counter.clear()

    @property
    def waits(self) -> Counter[str]:
        """All that makes the host wait."""
        return self.syncs + Counter({place: n for place, n in self.copies.items() if place.startswith("blocking")})

    def synchronize(self, device: object = None) -> None:
        """In place of `torch.cuda.synchronize`."""
        self.syncs[f"synchronize at {_line()}"] += 1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.device or getattr(func, "__name__", "") == "_parse_to":  # that of `nn.Module.to`
            return func(*args, **(kwargs or {}))
        if (of_tensor := _ABOUT_A_TENSOR.get(func)) is not None:
            return of_tensor(func, *args)
        call = Call(func, args, kwargs or {})
        self._count(call)
        if func in FUSED and on_gpu(call.tensors[0]):
            check_fused(call)
        return call.run()

    def _count(self, call: Call) -> None:
        if makes_the_host_wait(call):
            self.syncs[f"{call.name} at {_line()}"] += 1
        if copies_from_the_host(call):
            kind = "copy" if call.kwargs.get("non_blocking") or True in call.args[2:] else "blocking copy"
            self.copies[f"{kind} at {_line()}"] += 1
        if is_mixed(call):
            self.mixed[f"{call.name} at {_line()}"] += 1


def makes_the_host_wait(call: Call) -> bool:
    """Whether a call needs the values of a tensor on the GPU, or sizes its result by them."""
    if not any(map(on_gpu, call.tensors)):
        return False
    if call.function in SYNCS or (call.device == HOST and call.function in (Tensor.to, Tensor.cpu)):
        return True
    if call.function in (Tensor.copy_, torch._foreach_copy_):
        return not on_gpu(call.tensors[0])
    if call.function in (torch.where, Tensor.where):
        return len(call.values) == 1
    if call.function in (torch.repeat_interleave, Tensor.repeat_interleave):
        return on_gpu(call.tensors[-1]) and "output_size" not in call.kwargs
    return call.function in (Tensor.__getitem__, Tensor.__setitem__) and _by_mask(call)


def _by_mask(call: Call) -> bool:
    """Whether elements are chosen by a mask; a mask that is filled with a number needs no wait."""
    masks = [value for value in tree_leaves(call.args[1]) if isinstance(value, Tensor) and value.dtype == torch.bool]
    return bool(masks) and not (call.function is Tensor.__setitem__ and not isinstance(call.args[2], Tensor))


def copies_from_the_host(call: Call) -> bool:
    """Whether a call brings values from the host to the GPU."""
    if call.function is Tensor.copy_:
        return on_gpu(call.tensors[0]) and not on_gpu(call.tensors[1])
    if call.function in (Tensor.__getitem__, Tensor.__setitem__):
        return on_gpu(call.tensors[0]) and any(value.ndim and not on_gpu(value) for value in call.tensors[1:])
    if call.function in FROM_DATA:
        return call.gpu and not any(map(on_gpu, call.tensors))
    return call.gpu and call.function in (Tensor.to, Tensor.cuda) and not on_gpu(call.tensors[0])


def is_mixed(call: Call) -> bool:
    """Whether CUDA would refuse a call for its tensors' devices: of the host's it takes those of a single value."""
    if call.function in BETWEEN_DEVICES or not any(map(on_gpu, call.tensors)):
        return False
    return any(value.ndim > 0 and not on_gpu(value) for value in call.tensors)


def check_fused(call: Call) -> None:
    """Raise RuntimeError where CUDA's fused optimizers do.

    The rules are those of `check_fast_path_restrictions` in torch's header ATen/native/ForeachUtils.h; the kernels
    (FusedAdamKernel.cu, FusedSgdKernel.cu) insist on it. Counters of steps are read on the GPU.
    """
    lists = [list(tensors) for tensors in call.args[: FUSED[call.function]] if tensors]
    if not _share_device_and_dtype(lists):
        raise RuntimeError(f"{call.name}: params, grads and state must have the same dtype and device, and be dense")
    for tensors in lists[1:]:
        for parameter, tensor in zip(lists[0], tensors, strict=True):
            if not _share_sizes_and_strides(parameter, tensor):
                raise RuntimeError(
                    f"{call.name}: params, grads and state must have the same layout, got a parameter "
                    f"{tuple(parameter.shape)} with strides {parameter.stride()} and {tensor.stride()}"
                )
    if not all(map(on_gpu, call.tensors)):
        raise RuntimeError(f"{call.name}: counters of steps, scale and learning rate must be on the GPU")


def _share_device_and_dtype(lists: Sequence[Sequence[Tensor]]) -> bool:
    return all(
        on_gpu(tensor)
        and tensor.layout == torch.strided
        and tensor.dtype == lists[0][0].dtype
        and torch.ops.aten.is_non_overlapping_and_dense(tensor)
        for tensors in lists
        for tensor in tensors
    )


def _share_sizes_and_strides(left: Tensor, right: Tensor) -> bool:
    """Along axes of one element strides may differ."""
    strides = zip(left.shape, left.stride(), right.stride(), strict=True)
    return left.shape == right.shape and all(size == 1 or one == other for size, one, other in strides)


def _gradient(getter: Callable[[Tensor], Tensor | None], tensor: Tensor) -> Tensor | None:
    gradient = getter(tensor)
    put(gradient, gpu=on_gpu(tensor))
    return gradient


def _set_data(setter: Callable[[Tensor, Tensor], None], tensor: Tensor, data: Tensor) -> None:
    setter(tensor, data)
    put(tensor, gpu=on_gpu(data))


_ABOUT_A_TENSOR: dict[Callable[..., Any], Callable[..., Any]] = {
    Tensor.device.__get__: lambda _, tensor: GPU if on_gpu(tensor) else HOST,  # type: ignore[attr-defined]
    Tensor.is_cuda.__get__: lambda _, tensor: on_gpu(tensor),  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda _, tensor: not on_gpu(tensor),  # type: ignore[attr-defined]
    Tensor.get_device: lambda _, tensor: 0 if on_gpu(tensor) else -1,
    Tensor.grad.__get__: _gradient,  # type: ignore[attr-defined]
    Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
}


def _line() -> str:
    """The innermost line of `tuner` that is being run."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "no line of tuner"


@contextmanager
def pretending(
    *,
    free_bytes: int = 60 * 10**9,
    total_bytes: int = 80 * 10**9,
    reserved_bytes: int = 0,
    share: float = 1.0,
    capability: tuple[int, int] = (9, 0),
) -> Iterator[PretendedGPU]:
    """Within it there is a GPU of this much memory and of this compute capability, `cuda:0`.

    Torch has reserved some of the memory, and may reserve a `share` of all.
    """
    gpu = PretendedGPU()
    with pytest.MonkeyPatch.context() as patch:
        memory = {
            "mem_get_info": (free_bytes, total_bytes),
            "memory_reserved": reserved_bytes,
            "get_per_process_memory_fraction": share,
        }
        for name, value in memory.items():
            patch.setattr(torch.cuda, name, lambda device=None, value=value: value)
        for name, stub in _cuda(gpu, total_bytes, capability).items():
            patch.setattr(torch.cuda, name, stub)
        patch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)  # optimizers ask
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        patch.setattr(torch.autocast, "__init__", _autocast_of_the_host(torch.autocast.__init__))
        patch.setattr(torch._C, "_group_tensors_by_device_and_dtype", _grouped(torch._C))
        patch.setattr(nn.Parameter, "__new__", _new_parameter(nn.Parameter.__new__))
        try:
            with gpu:
                yield gpu
        finally:
            _KEPT.clear()
            _magnitudes.cache_clear()
            _constants.cache_clear()  # else a real GPU would be given the pretended one's


def _cuda(gpu: PretendedGPU, total_bytes: int, capability: tuple[int, int]) -> dict[str, Callable[..., Any]]:
    """What stands in for functions of `torch.cuda`."""
    properties = SimpleNamespace(
        name="pretended", uuid="0", total_memory=total_bytes, major=capability[0], minor=capability[1]
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "device": lambda device: nullcontext(),
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: properties.name,
        "synchronize": gpu.synchronize,
        "manual_seed": lambda seed: None,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "empty_cache": lambda: None,
    }


def _autocast_of_the_host(original: Callable[..., None]) -> Callable[..., None]:
    def initialise(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    return initialise


def _grouped(library: Any) -> Callable[..., Any]:
    """Torch sorts an optimizer's tensors by device in C++, which sees the CPU only."""
    original = library._group_tensors_by_device_and_dtype

    def group(lists: list[list[Tensor | None]], with_indices: bool = False) -> dict[Any, Any]:
        groups = original(lists, with_indices)
        return {(GPU if on_gpu(lists[0][0]) else HOST, dtype): group for (_, dtype), group in groups.items()}

    return group


def _new_parameter(original: Callable[..., nn.Parameter]) -> Callable[..., nn.Parameter]:
    """A parameter lies where its data lies, that of a copied module too."""

    def new(cls: type[nn.Parameter], data: Tensor | None = None, requires_grad: bool = True) -> nn.Parameter:
        parameter = original(cls, data, requires_grad)
        put(parameter, gpu=on_gpu(data))
        return parameter

    return new
