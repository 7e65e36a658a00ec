"""Hyperparameters that a function computes from the others."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.errors import SpaceError, shown
from tuner.space.domain import Domain
from tuner.space.values import has_named, is_recordable, plain


@dataclass(frozen=True)
class SampleFrom(Domain):
    """A value that a function computes from the rest of the configuration; it is not part of the encoding.

    A function that draws random numbers of its own draws them outside of the study's seed.
    """

    function: Callable[..., Any]

    @property
    def encodable(self) -> bool:
        return False

    def validate(self, name: str) -> None:
        if not callable(self.function):
            raise SpaceError(
                f"sample_from needs a function of the configuration, got {shown(self.function)} for {name!r}; pass one"
            )
        if not (self._takes(1) or self._takes(0)):
            raise SpaceError(
                f"sample_from needs a function of at most one argument, the configuration, got {self.describe()} for "
                f"{name!r}; take one argument"
            )

    def resolve(self, config: dict[str, Any]) -> Any:
        """The function's result for the configuration, as plain values; the function may also take no argument."""
        return plain(self.function(config) if self._takes(1) else self.function())

    def _takes(self, arguments: int) -> bool:
        """Whether the function can be called with this number of arguments; a built-in that doesn't say takes one."""
        try:
            inspect.signature(self.function).bind(*[None] * arguments)
        except TypeError:
            return False
        except ValueError:
            return arguments == 1
        return True

    def contains(self, value: Any) -> bool:
        return is_recordable(value) and not has_named(value)  # no list says which function a name stands for

    def coerce(self, value: Any) -> Any:
        return plain(value)

    def encode(self, value: Any) -> float:
        return math.nan

    def decode(self, unit: float) -> Any:
        raise SpaceError("sample_from has no place in the unit cube, got one to decode; use Random")

    def describe(self) -> str:
        return f"sample_from({getattr(self.function, '__name__', self.function)})"
