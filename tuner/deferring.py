"""Modules that a library imports at its top but rarely uses: they are loaded when something in them is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """Stands for a module, which is loaded when an attribute is used, or one of these functions is called."""

    def __init__(self, name: str, functions: str = ""):
        """The functions are separated by spaces."""
        super().__init__(name)
        self._functions = functions.split()

    def __getattr__(self, name: str) -> Any:
        if name in self._functions and sys.modules.get(self.__name__) is self:
            return _called_later(self.__name__, name)
        # `from … import …` asks for `__path__`, and `inspect` asks every module for `__file__`
        if self._functions and name.startswith("__"):
            raise AttributeError(name)
        _unbind(self)
        return getattr(importlib.import_module(self.__name__), name)


def _called_later(module: str, name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **options)

    return function


@contextmanager
def deferred(*names: str, functions: Mapping[str, str] | None = None) -> Iterator[None]:
    """Within the block an import of one of the modules only loads it when something in it is used.

    `functions` are modules and names of functions, separated by spaces: `from module import function` loads the module
    only once the function is called.

    After the block they are imported as usual; a name that was bound within it loads its module when it is used. The
    standard library's `LazyLoader` loads a module as soon as a second `import` names it (Python 3.11).
    """
    by_name = dict.fromkeys(names, "") | dict(functions or {})
    standing = [_Deferred(name, of_it) for name, of_it in by_name.items() if name not in sys.modules]
    for module in standing:
        _bind(module)
    try:
        yield
    finally:
        for module in standing:
            _unbind(module)


def _bind(module: _Deferred) -> None:
    """Bind the module like an import does: by its name, and as an attribute of its package."""
    sys.modules[module.__name__] = module
    package, _, name = module.__name__.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], name, module)


def _unbind(module: _Deferred) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
    package, _, name = module.__name__.rpartition(".")
    if package in sys.modules and vars(sys.modules[package]).get(name) is module:
        delattr(sys.modules[package], name)
