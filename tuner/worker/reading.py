"""A configuration that notes which of its values a trial's code reads.

It is a dict to its readers. Whatever copies, prints, compares or pickles the whole of it reads everything;
`dict(config)` and `f(**config)` ask for each value by `__getitem__`, because CPython takes no short cut for a class
with its own `__iter__`. A library in C that looks into a dict's memory, such as orjson, isn't seen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import wraps
from mmap import mmap
from types import MappingProxyType
from typing import Any

OF_TUNER = ("epochs", "strategy")  # tuner itself does what these say


class Reading:
    """What was read of one trial's `config`, by dotted name, also in processes that were forked."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.names: list[str] = []
        self.absent: dict[str, None] = {}  # names that were asked for, and aren't part of the configuration
        self.config = self.noting(config)
        self.flags = mmap(-1, max(1, len(self.names)))  # shared with forked processes
        self._told: tuple[bytes, int] | None = None
        for name in self.config.keys() & set(OF_TUNER):
            self.config.note(name)

    def noting(self, values: Mapping[str, Any], prefix: str = "") -> NotingDict:
        """The values as a dict that notes what is read of them here."""
        inner = {k: self.noting(v, f"{prefix}{k}.") if isinstance(v, dict) else v for k, v in values.items()}
        found = NotingDict(inner)
        found.reading, found.prefix = self, prefix
        found.waiting = dict(zip(values, range(len(self.names), len(self.names) + len(values)), strict=True))
        self.names += [f"{prefix}{name}" for name in values]
        return found

    def news(self) -> dict[str, list[str]] | None:
        """All that was `read`, and the names that are `absent`; None if that is the same as at the last call."""
        now = (self.flags[:], len(self.absent))
        if now == self._told:
            return None
        self._told = now
        read = [name for name, flag in zip(self.names, now[0], strict=False) if flag]
        return {"read": read, "absent": list(self.absent)}


class _LikeDict(type):
    """For what looks at classes instead of values, such as yaml's writers: the class has a dict's ancestors."""

    @property
    def __mro__(cls) -> tuple[type, ...]:
        return dict.__mro__


class NotingDict(dict[str, Any], metaclass=_LikeDict):
    """Notes the names that are read, unless their values were replaced before, and those that it doesn't have."""

    reading: Reading | None = None  # None for what a trial's code makes of this class: nothing is noted
    prefix: str = ""
    waiting: Mapping[Any, int] = MappingProxyType({})  # names to note, each with the place of its flag

    def note(self, name: object) -> None:
        """A value is asked for by its name."""
        if self.reading is None:
            return
        if name in self.waiting:
            self.reading.flags[self.waiting[name]] = 1
        elif not dict.__contains__(self, name):
            self.reading.absent[f"{self.prefix}{name}"] = None

    def note_all(self) -> None:
        """Everything is read."""
        for name, value in dict.items(self):
            self.note(name)
            if isinstance(value, NotingDict):
                value.note_all()

    def __iter__(self) -> Iterator[str]:
        """Names only; see the module."""
        return dict.__iter__(self)

    def __contains__(self, name: object) -> bool:
        """Reads no value, but may ask for a name that is absent."""
        found = dict.__contains__(self, name)
        if not found:
            self.note(name)
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        """What is read from now on is the code's own value."""
        self.waiting = {other: place for other, place in self.waiting.items() if other != name}
        dict.__setitem__(self, name, value)

    def update(self, *others: Any, **more: Any) -> None:
        """As `__setitem__` for each."""
        for name, value in dict(*others, **more).items():
            self[name] = value

    def __ior__(self, other: Any) -> NotingDict:  # type: ignore[override, misc]
        """As `update`."""
        self.update(other)
        return self

    def __copy__(self) -> dict[str, Any]:
        """A dict as any other."""
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """A dict as any other, and so are those in it."""
        return {deepcopy(name, memo): deepcopy(value, memo) for name, value in self.items()}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickled as an OrderedDict, the only kind of dict besides dict itself that `torch.load` takes."""
        return OrderedDict, (), None, None, iter(self.items())


def _noting(method: str, note: Any) -> Any:
    """The dict's method, which first notes."""
    whole = getattr(dict, method)

    @wraps(whole)
    def noting(self: NotingDict, *arguments: Any) -> Any:
        note(self, *arguments[:1])
        return whole(self, *arguments)

    return noting


for _method in ("__getitem__", "get", "pop", "setdefault"):
    setattr(NotingDict, _method, _noting(_method, NotingDict.note))
for _method in ("items", "values", "popitem", "__repr__"):
    setattr(NotingDict, _method, _noting(_method, NotingDict.note_all))
for _method in ("__eq__", "__ne__"):
    setattr(NotingDict, _method, _noting(_method, lambda self, _: self.note_all()))
