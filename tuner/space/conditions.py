"""Which hyperparameters are part of a configuration: those whose conditions on others hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import SpaceError, did_you_mean, shown
from tuner.space.choices import Choice
from tuner.space.domain import Conditions, Domain
from tuner.space.functions import SampleFrom
from tuner.space.numeric import Float, Normal
from tuner.space.values import canonical


class ConditionGraph:
    """The conditions between the dimensions of a space, by dotted names.

    `entries` are all domains and constants of the space. `order` has the dimensions, each after those that its
    conditions name, functions as late as possible. Raises SpaceError for conditions on unknown names, on impossible
    values, on each other in a circle, or that never hold together.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        declared = {name: value for name, value in entries.items() if isinstance(value, Domain)}
        self._constants = {name: value for name, value in entries.items() if name not in declared}
        self.domains = {**entries, **{name: Choice((value,)) for name, value in self._constants.items()}}
        self.of = {name: _resolve(name, domain, self.domains, self._constants) for name, domain in declared.items()}
        self.order = self._sorted(declared)
        for name in self.order:
            self._check_possible(name)

    def is_active(self, name: str, flat: Mapping[str, Any], *, missing: bool = False) -> bool:
        """Whether all conditions hold; `missing` is the answer if the other dimension has no value yet."""
        for other, allowed in self.of.get(name, ()):
            if other not in flat:
                if not missing or not self.is_active(other, flat, missing=missing):
                    return False
            elif not is_among(self.coerced(other, flat[other]), allowed):
                return False
        return True

    def active(self, flat: Mapping[str, Any]) -> set[str]:
        """Dimensions whose conditions hold; inactive dimensions fulfil none."""
        present, active = dict(self._constants), set()
        for name in self.order:
            if self.is_active(name, present):
                active.add(name)
                present |= {name: flat[name]} if name in flat else {}
        return active

    def demanded(self, flat: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """The values that missing dimensions may have so that all given ones are active."""
        demanded: dict[str, tuple[Any, ...]] = {}
        names = list(flat)
        while names:
            for other, allowed in self.of.get(names.pop(), ()):
                if other not in flat:
                    demanded[other] = tuple(v for v in demanded.get(other, allowed) if is_among(v, allowed))
                    names.append(other)
        return demanded

    def asked_of(self, name: str) -> list[Any]:
        """The values of a dimension that the conditions of others name."""
        return [v for conditions in self.of.values() for other, values in conditions if other == name for v in values]

    def settled(self, dimensions: Mapping[str, Domain], fixed: Mapping[str, Any]) -> dict[str, Domain]:
        """The dimensions that are left, with their conditions on fixed names decided."""
        left: dict[str, Domain] = {}
        fixed = {name: self.coerced(name, value) for name, value in fixed.items()}
        for name, domain in dimensions.items():
            conditions = self.of[name]
            hold = [is_among(fixed[other], allowed) for other, allowed in conditions if other in fixed]
            open_conditions = tuple(condition for condition in conditions if condition[0] not in fixed)
            if all(hold) and all(other in left or other in self._constants for other, _ in open_conditions):
                left[name] = replace(domain, conditions=open_conditions)
        return left

    def check_together(self, flat: Mapping[str, Any], where: str) -> None:
        """Raise SpaceError if the named dimensions exclude each other."""
        for other, allowed in self.demanded(flat).items():
            if not allowed:
                names = [name for name in flat if other in self._demanded_by(name)]
                raise SpaceError(
                    f"{where}: {' and '.join(map(repr, names))} are never part of one configuration, as they need "
                    f"different values of {other!r}; leave one out"
                )

    def coerced(self, name: str, value: Any) -> Any:
        """A value as its domain or constant has it: 1 as 1.0, say; one that doesn't fit is returned unchanged."""
        domain = self.domains.get(name)
        return domain.coerce(value) if domain is not None and domain.contains(value) else value

    def _check_possible(self, name: str) -> None:
        for other, allowed in self._demanded_by(name).items():
            if not allowed:
                raise SpaceError(
                    f"when needs conditions that can hold together, got several values of {other!r} for {name!r}; "
                    f"write one .when({other}=[...])"
                )

    def _demanded_by(self, name: str) -> dict[str, tuple[Any, ...]]:
        return self.demanded({**self._constants, name: None})

    def _sorted(self, declared: Mapping[str, Domain]) -> list[str]:
        """Raises SpaceError for a cycle."""
        order: list[str] = []
        waiting = list(declared)
        while waiting:
            ready = [n for n in waiting if all(other not in waiting for other, _ in self.of[n])]
            if not ready:
                raise SpaceError(
                    f"conditions need an order, got a cycle through {', '.join(map(repr, waiting))}; break it"
                )
            ready = [name for name in ready if not isinstance(declared[name], SampleFrom)] or ready
            order += ready
            waiting = [name for name in waiting if name not in ready]
        return order


def is_among(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether the value is one of those that a condition allows, all as the domain has them."""
    return any(value is one or canonical(value) == canonical(one) for one in allowed)


def _resolve(name: str, domain: Domain, domains: Mapping[str, Domain], constants: Mapping[str, Any]) -> Conditions:
    """Conditions with dotted names: a sibling in the same section first, then a name from the top."""
    section = name.rpartition(".")[0]
    resolved = []
    for other, allowed in domain.conditions:
        found = next((n for n in (f"{section}.{other}" if section else other, other) if n in domains), None)
        if found is None:
            raise SpaceError(
                f"when needs another dimension of the space, got {other!r} for {name!r}; {did_you_mean(other, domains)}"
            )
        if found == name:
            raise SpaceError(f"when needs another dimension, got {name!r} on itself; remove the condition")
        what = repr(constants[found]) if found in constants else domains[found].describe()
        _check_condition(name, found, domains[found], what, allowed)
        resolved.append((found, tuple(map(domains[found].coerce, allowed))))
    return tuple(resolved)


def _check_condition(name: str, other: str, target: Domain, what: str, allowed: tuple[Any, ...]) -> None:
    if isinstance(target, Float | Normal) and target.q is None:
        raise SpaceError(
            f"when needs a dimension of separate values, got {other}={shown(allowed[0])} for {name!r}, but {other!r} "
            f"is {what}, which almost never draws exactly this value; use choice([...]) or quniform(...) for {other!r}"
        )
    for value in allowed:
        if not target.contains(value):
            raise SpaceError(
                f"when needs a value that {other!r} can take, got {other}={shown(value)} for {name!r}, but it is "
                f"{what}; correct one"
            )
