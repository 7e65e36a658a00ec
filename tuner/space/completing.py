"""Fills in missing parts of a configuration: random values, and results of `sample_from` functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.errors import SpaceError, describe_error, shown
from tuner.space.conditions import ConditionGraph
from tuner.space.domain import Domain
from tuner.space.functions import SampleFrom


class Sampler:
    """Completes configurations of a space; `unflatten` nests dotted names as the space is nested."""

    def __init__(
        self,
        dimensions: Mapping[str, Domain],
        conditions: ConditionGraph,
        unflatten: Callable[[Mapping[str, Any]], dict[str, Any]],
    ) -> None:
        self._dimensions, self._conditions, self._unflatten = dimensions, conditions, unflatten

    def complete(self, given: Mapping[str, Any], generator: np.random.Generator) -> dict[str, Any]:
        """The given values, by dotted names, and drawn values for the missing ones, such that all given ones are
        active.

        Raises SpaceError if a function fails.
        """
        flat = dict(given)
        demanded = self._conditions.demanded(flat)
        waiting = [name for name in self._dimensions if name not in flat]
        while waiting:
            unresolved: dict[str, NotSampled] = {}
            for name in waiting:
                early = next((unresolved[other] for other, _ in self._conditions.of[name] if other in unresolved), None)
                try:
                    if early is not None:
                        unresolved[name] = early
                    elif self._conditions.is_active(name, flat):
                        flat[name] = self._draw(name, flat, demanded.get(name), generator)
                except NotSampled as error:
                    unresolved[name] = error
            if len(unresolved) == len(waiting):
                raise self._failed_function(waiting[0], flat, next(iter(unresolved.values())))
            waiting = list(unresolved)
        return flat

    def _draw(
        self,
        name: str,
        flat: dict[str, Any],
        demanded: tuple[Any, ...] | None,
        generator: np.random.Generator,
    ) -> Any:
        """A value for a dimension, one of those demanded, if any; raises NotSampled for a function called too early."""
        domain = self._dimensions[name]
        if demanded is not None:
            return domain.coerce(demanded[int(generator.random() * len(demanded))])
        if not isinstance(domain, SampleFrom):
            return domain.sample(generator)
        try:
            return domain.resolve(_Resolved(self._unflatten(flat)))
        except NotSampled:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed_function(name, flat, error) from error

    def _failed_function(self, name: str, flat: dict[str, Any], error: BaseException) -> SpaceError:
        what = f"{error.kind}: {error}" if isinstance(error, NotSampled) else describe_error(error)
        return SpaceError(
            f"sample_from needs a function of what was sampled before, got {what} for "
            f"{name!r} from {shown(self._unflatten(flat))}; correct the function"
        )


class NotSampled(KeyError, AttributeError):  # noqa: N818 -- a state, for the loop that resolves functions
    """A `sample_from` function asked for a value that the configuration doesn't have, or doesn't have yet."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.message, self.kind = message, kind

    def __str__(self) -> str:
        return self.message


class _Resolved(dict[str, Any]):
    """A configuration as `sample_from` functions see it: by item, by attribute, and as Ray's `spec.config`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__({n: _Resolved(v) if isinstance(v, dict) else v for n, v in config.items()})

    def __missing__(self, name: str) -> Any:
        raise NotSampled(repr(name), "KeyError")

    def __getattr__(self, name: str) -> Any:
        if name == "config":
            return self
        if name not in self:
            raise NotSampled(f"the configuration has no {name!r} yet", "AttributeError")
        return self[name]
