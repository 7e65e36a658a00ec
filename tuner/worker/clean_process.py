"""A worker process that runs many trials, each as if the process were new."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np

from tuner.worker.spoiling import ProcessState

CONTEXT_BYTES = 600 * 2**20  # GPU memory of a CUDA context and its libraries, in addition to torch's allocator


@contextmanager
def clean_process(
    *, seed: int, threads: int, gpu_share: float = 0.0, spoiled: Callable[[str], None] = lambda what: None
) -> Iterator[None]:
    """Random states from `seed`, torch's process-wide settings as in a new process on `threads` CPU threads.

    With a `gpu_share` between 0 and 1 torch takes no more of the GPU's memory than that share. At the end the process's
    settings are restored, and `spoiled` is called with what can't be. Torch is not imported for this: if the trial
    imports it, it is set up as soon as it is loaded, so that a worker's first trial is like its fifth.
    """
    state = ProcessState()
    random.seed(seed)
    np.random.seed(seed)

    def prepare() -> None:
        state.watch()
        _set_up_torch(seed, threads)
        if gpu_share:
            _cap_gpu_memory(gpu_share)

    hook = _AfterImport("torch", prepare)
    if "torch" in sys.modules:
        prepare()
    else:
        sys.meta_path.insert(0, hook)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        if hook in sys.meta_path:
            sys.meta_path.remove(hook)
        for what in state.restore():
            spoiled(what)
        _give_memory_back()


def _give_memory_back() -> None:
    """Free memory of the trial that ended: others may share the machine before this worker gets its next one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()  # a failure's traceback holds the trial's tensors in a reference cycle
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        with suppress(AttributeError):  # not GNU's C library, which keeps freed memory
            ctypes.CDLL(None).malloc_trim(0)


def _set_up_torch(seed: int, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(False)
    torch.autograd.set_detect_anomaly(False)
    for name, hooks in vars(torch.nn.modules.module).items():  # hooks of all modules
        if name.startswith("_global_") and isinstance(hooks, dict):
            hooks.clear()
    if torch.are_deterministic_algorithms_enabled():  # changing this loads torch's compiler
        torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.enabled = True
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def _cap_gpu_memory(share: float) -> None:
    """Let torch allocate the share of the GPU minus CONTEXT_BYTES; all of the GPU if the share is 1 or more.

    This happens when CUDA is initialised, before anything is allocated. The trial decides when that is: a function that
    forks must do so before.
    """
    import torch

    def cap() -> None:
        total = torch.cuda.get_device_properties(0).total_memory
        most = 1.0 if share >= 1 else max(share / 2, share - CONTEXT_BYTES / total)
        torch.cuda.set_per_process_memory_fraction(most, 0)

    torch.cuda._lazy_call(cap)  # type: ignore[no-untyped-call]


class _AfterImport(MetaPathFinder):
    """Calls `then` once, right after the module `name` was loaded."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self._looking:
            return None
        self._looking = True  # ask the other finders; it stays installed, because a search isn't an import yet
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (load(module), self._then())[0]  # type: ignore[method-assign]
        return spec
