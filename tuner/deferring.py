"""Modules that a library imports at its top and uses rarely, left unloaded until something is taken from them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """Stands for a module, which is loaded when an attribute is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Within the block an import of one of the modules loads it only once something is taken from it.

    After the block they are imported as ever; a name that was bound within it loads its module when it is used. The
    standard library's `LazyLoader` loads a module as soon as a second `import` names it (Python 3.11).
    """
    standing = {name: _Deferred(name) for name in names if name not in sys.modules}
    sys.modules.update(standing)
    try:
        yield
    finally:
        for name, module in standing.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
