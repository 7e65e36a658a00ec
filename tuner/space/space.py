"""A search space: named domains and constants, nested and conditional."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import SpaceError, describe_error, did_you_mean, shown
from tuner.space.domains import Conditions, Domain, GridSearch, SampleFrom, contains_domain
from tuner.space.ray_compat import from_ray
from tuner.space.values import canonical, is_writable, plain, same

Config = dict[str, Any]
Constraint = Callable[[Config], bool]
LARGEST_LISTED = 100_000  # configurations that are listed one by one to be counted, or tried on a grid
DRAWS = 10_000  # until a constraint counts as one that can't be met
_ANOTHER = object()  # any value that no condition asks for


class Space:
    """The configurations that a mapping of names to domains, constants or such mappings stands for.

    Nested names are joined by dots. `constraint` takes a whole configuration and says whether it may be tried: what
    it rules out is never sampled, nor part of a grid. Raises SpaceError, with rule, value and fix, for a space that
    can't work.
    """

    def __init__(self, declaration: Mapping[str, Any], constraint: Constraint | None = None) -> None:
        if not isinstance(declaration, Mapping):
            raise SpaceError(f"space needs a dict of names and domains, got {shown(declaration)}; write space={{...}}")
        entries = _entries(declaration)
        self._order = {name: position for position, name in enumerate(entries)}
        self.constants: dict[str, Any] = {n: v for n, v in entries.items() if not isinstance(v, Domain)}
        declared = {name: value for name, value in entries.items() if isinstance(value, Domain)}
        for name, domain in declared.items():
            domain.validate(name)
        self._conditions = {name: self._resolve_conditions(name, domain, entries) for name, domain in declared.items()}
        self.dimensions: dict[str, Domain] = {name: declared[name] for name in self._sorted(declared)}
        for name in self.dimensions:
            self._check_possible(name)
        if constraint is not None and not callable(constraint):
            raise SpaceError(
                f"constraint needs a function of a configuration, got {shown(constraint)}; write "
                'constraint=lambda config: config["batch_size"] <= 64'
            )
        self.constraint = constraint

    def __repr__(self) -> str:
        """The mapping, nested again."""
        return f"Space({self.unflatten({**self.constants, **self.dimensions})!r})"

    def __eq__(self, other: object) -> bool:
        """Spaces are equal where their domains, conditions and constants are."""
        same = isinstance(other, Space) and self.dimensions == other.dimensions
        same = same and isinstance(other, Space) and self.constraint == other.constraint
        return same and isinstance(other, Space) and self.constants == other.constants

    __hash__ = None  # type: ignore[assignment]

    @property
    def names(self) -> list[str]:
        """All dotted names, as declared."""
        return list(self._order)

    @property
    def conditions(self) -> dict[str, Conditions]:
        """For each dimension the dotted names of others and the values of theirs under which it is active."""
        return self._conditions

    @property
    def grid_dimensions(self) -> list[str]:
        """Names declared with `grid_search`."""
        return [name for name, domain in self.dimensions.items() if isinstance(domain, GridSearch)]

    @cached_property
    def size(self) -> float:
        """Number of distinct configurations, infinite where any dimension is continuous.

        With a constraint only those that meet it count, up to LARGEST_LISTED without it; beyond, all do.
        """
        if any(math.isinf(domain.size) for domain in self.dimensions.values()):
            return math.inf
        size = math.prod(self._count(group, self.constants) for group in self._linked_groups())
        return size if self.constraint is None or size > LARGEST_LISTED else sum(1 for _ in self.grid())

    # Drawing and checking

    def sample(self, generator: np.random.Generator) -> Config:
        """A random configuration."""
        return self.complete({}, generator)

    def complete(self, config: Config, generator: np.random.Generator) -> Config:
        """The configuration with what is missing sampled and the constants filled in.

        What is missing is drawn such that what is given is part of the configuration and the constraint holds;
        `sample_from` functions may use each other's values. Raises SpaceError where a function fails, or the constraint
        holds for none of many draws.
        """
        for _ in range(DRAWS):
            drawn = self._complete(config, generator)
            if self.allows(drawn):
                return drawn
        given = f" with {shown(config)}" if config else ""
        fix = "or change the configuration" if config else "or narrow the space to where it holds"
        raise SpaceError(
            f"constraint needs to leave some configurations, got none{given} in {DRAWS:,} draws, the last one "
            f"{shown(drawn)}; loosen it, {fix}"
        )

    def allows(self, config: Config) -> bool:
        """Whether the constraint, if any, holds for a whole configuration. Raises SpaceError where it fails."""
        if self.constraint is None:
            return True
        try:
            holds = self.constraint(self.unflatten(self.flatten(config)))
        except (Exception, SystemExit) as error:
            raise SpaceError(
                f"constraint needs to take every configuration, got {describe_error(error)} for {shown(config)}; "
                "correct it, with config.get(...) for what is not part of every configuration"
            ) from error
        if not isinstance(holds, bool | np.bool_):
            raise SpaceError(
                f"constraint needs to return True or False, got {shown(holds)} for {shown(config)}; correct it"
            )
        return bool(holds)

    def _complete(self, config: Config, generator: np.random.Generator) -> Config:
        """The same with or without meeting the constraint."""
        flat = {**self.constants, **self.flatten(config)}
        demanded = self._demanded(flat)
        waiting = [name for name in self.dimensions if name not in flat]
        while waiting:
            unresolved: dict[str, _NotSampled] = {}
            for name in waiting:
                early = next((unresolved[other] for other, _ in self._conditions[name] if other in unresolved), None)
                try:
                    if early is not None:
                        unresolved[name] = early
                    elif self._is_active(name, flat):
                        flat[name] = self._draw(name, flat, demanded.get(name), generator)
                except _NotSampled as error:
                    unresolved[name] = error
            if len(unresolved) == len(waiting):
                raise self._failed_function(waiting[0], flat, next(iter(unresolved.values())))
            waiting = list(unresolved)
        return self.unflatten(flat)

    def check(self, config: Config, where: str) -> Config:
        """The configuration with plain values and constants, what is missing left out.

        Raises SpaceError naming `where` for an unknown or inactive name, names that exclude each other, or a value
        outside its domain.
        """
        if not isinstance(config, Mapping):
            raise SpaceError(f"{where} needs a dict of names and values, got {shown(config)}; write {{'name': value}}")
        if not is_writable(config):
            raise SpaceError(f"{where} needs plain values, got {shown(config)}; use numbers and texts")
        flat = self.flatten(config)
        for name, value in flat.items():
            self._check_value(where, name, value)
        result = {
            **self.constants,
            **{n: self.dimensions[n].coerce(v) for n, v in flat.items() if n in self.dimensions},
        }
        for name in flat:
            if not self._is_active(name, result, missing=True):
                others = " and ".join(f"{other} in {list(values)}" for other, values in self._conditions[name])
                raise SpaceError(f"{where}: {name!r} is part of a configuration only when {others}; leave it out")
        self._check_together(where, result)
        return self.unflatten(result)

    def project(self, config: Config) -> Config:
        """What of a configuration of another version of this space fits here; constants are this space's."""
        flat = self.flatten(config)
        kept = {
            n: self.dimensions[n].coerce(v)
            for n, v in flat.items()
            if n in self.dimensions and self.dimensions[n].contains(v)
        }
        active = self._active(kept)
        return self.unflatten({**self.constants, **{name: value for name, value in kept.items() if name in active}})

    def active(self, config: Config) -> set[str]:
        """Dotted names of the dimensions that are part of the configuration."""
        return self._active(self.flatten(config))

    def fix(self, values: Mapping[str, Any], more: Iterable[str] = ()) -> Space:
        """The space with dimensions (or constants) replaced by constants, by dotted name; `more` names may be new.

        Conditions on a fixed dimension are settled: what they rule out leaves the space. Raises SpaceError for an
        unknown name.
        """
        known = [*self.names, *more]
        for name in values:
            if name not in known:
                raise SpaceError(f"{name!r} is not a hyperparameter of the study; {did_you_mean(name, known)}")
        entries: dict[str, Any] = {
            **self.constants,
            **self._settled(values),
            **{name: self._coerce(name, value) for name, value in values.items()},
        }
        names = dict.fromkeys([*self._order, *values])
        return Space(nest({name: entries[name] for name in names if name in entries}), self.constraint)

    def constrained(self, constraint: Constraint) -> Space:
        """The space with another constraint."""
        return Space(self.unflatten({**self.constants, **self.dimensions}), constraint)

    # The unit cube

    def encode(self, config: Config) -> npt.NDArray[np.float64]:
        """The configuration in the unit cube, [len(dimensions)] float; nan where inactive or not encodable."""
        flat = self.flatten(config)
        active = self._active(flat)
        columns = [
            domain.encode(flat[name]) if name in flat and name in active else math.nan
            for name, domain in self.dimensions.items()
        ]
        return np.array(columns, dtype=float)

    def decode(self, unit: Sequence[float] | npt.NDArray[np.float64]) -> Config:
        """The configuration at a point [len(dimensions)] of the unit cube; inactive columns do not matter.

        A name is left out where its column is nan.
        """
        flat = dict(self.constants)
        for (name, domain), column in zip(self.dimensions.items(), unit, strict=True):
            if domain.encodable and not math.isnan(column) and self._is_active(name, flat):
                flat[name] = domain.decode(float(column))
        return self.unflatten(flat)

    def snap(self, units: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Points [n, len(dimensions)] of the unit cube, each as the encoding of the configuration that it decodes to.

        The same as `encode(decode(unit))` row by row, and much faster where dimensions are continuous.
        """
        snapped: npt.NDArray[np.float64] = np.clip(np.array(units, dtype=float), 0.0, 1.0)
        values: dict[str, list[Any]] = {}
        active: dict[str, npt.NDArray[np.bool_]] = {}
        asked = {other for conditions in self._conditions.values() for other, _ in conditions}
        for column, (name, domain) in enumerate(self.dimensions.items()):
            active[name] = np.full(len(snapped), domain.encodable)
            for other, allowed in self._conditions[name]:
                if other in self.constants:
                    active[name] &= _is_among(self.constants[other], allowed)
                else:
                    active[name] &= active[other] & np.array([_is_among(v, allowed) for v in values[other]], dtype=bool)
            if domain.encodable:
                snapped[:, column] = domain.snap(snapped[:, column])
            if name in asked:
                values[name] = [domain.decode(unit) for unit in snapped[:, column].tolist()]
            snapped[~active[name], column] = math.nan
        return snapped

    # All of it

    def grid(self) -> Iterator[Config]:
        """Every configuration of a finite space that meets the constraint, each once.

        Raises SpaceError naming a dimension that isn't finite.
        """
        for name, domain in self.dimensions.items():
            if math.isinf(domain.size):
                raise SpaceError(
                    f"a grid needs a finite set of values, got {domain.describe()} for {name!r}; "
                    "use grid_search([...]), choice([...]) or a q… domain"
                )
        configs = map(self.unflatten, self._combinations(list(self.dimensions), self.constants))
        yield from filter(self.allows, configs)

    def key(self, config: Config) -> str:
        """A text that two configurations share exactly where they are the same to a trial."""
        return canonical({name: self._coerce(name, value) for name, value in self.flatten(config).items()})

    def flatten(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Nested to dotted names, as deep as the space is nested: a dict that is a value stays one."""
        return dict(self._flatten(config, ""))

    def unflatten(self, flat: Mapping[str, Any]) -> Config:
        """Dotted to nested names, in the order of the declaration."""
        return nest({name: flat[name] for name in sorted(flat, key=lambda n: self._order.get(n, len(self._order)))})

    # Inside

    def _flatten(self, config: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in config.items():
            path = f"{prefix}{name}"
            if isinstance(value, Mapping) and self._is_section(path):
                yield from self._flatten(value, path + ".")
            else:
                yield path, plain(value)

    def _is_section(self, path: str) -> bool:
        return any(name.startswith(path + ".") for name in self.names)

    def _is_active(self, name: str, flat: Mapping[str, Any], *, missing: bool = False) -> bool:
        """Whether all conditions hold; `missing` is the answer where the other dimension has no value yet."""
        for other, allowed in self._conditions.get(name, ()):
            if other not in flat:
                if not missing or not self._is_active(other, flat, missing=missing):
                    return False
            elif not _is_among(flat[other], allowed):
                return False
        return True

    def _active(self, flat: Mapping[str, Any]) -> set[str]:
        """Dimensions whose conditions hold, on others that are active themselves."""
        present, active = dict(self.constants), set()
        for name in self.dimensions:
            if self._is_active(name, present):
                active.add(name)
                present |= {name: flat[name]} if name in flat else {}
        return active

    def _demanded(self, flat: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """The values that missing dimensions may have, for all that are there to be active."""
        demanded: dict[str, tuple[Any, ...]] = {}
        names = list(flat)
        while names:
            for other, allowed in self._conditions.get(names.pop(), ()):
                if other not in flat:
                    demanded[other] = tuple(v for v in demanded.get(other, allowed) if _is_among(v, allowed))
                    names.append(other)
        return demanded

    def _draw(
        self,
        name: str,
        flat: dict[str, Any],
        demanded: tuple[Any, ...] | None,
        generator: np.random.Generator,
    ) -> Any:
        """A value for a dimension, one of those demanded if any are; raises _NotSampled for a function too early."""
        domain = self.dimensions[name]
        if demanded is not None:
            return domain.coerce(demanded[int(generator.random() * len(demanded))])
        if not isinstance(domain, SampleFrom):
            return domain.sample(generator)
        try:
            value = domain.resolve(_Resolved(self.unflatten(flat)))
        except _NotSampled:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed_function(name, flat, error) from error
        if not is_writable(value):
            raise SpaceError(
                f"sample_from needs a function that returns plain values, got {shown(value)} for {name!r}; correct it"
            )
        return value

    def _failed_function(self, name: str, flat: dict[str, Any], error: BaseException) -> SpaceError:
        what = f"{error.kind}: {error}" if isinstance(error, _NotSampled) else describe_error(error)
        return SpaceError(
            f"sample_from needs a function of what was sampled before, got {what} for "
            f"{name!r} from {shown(self.unflatten(flat))}; correct the function"
        )

    def _coerce(self, name: str, value: Any) -> Any:
        """A value as its dimension or the space's constant has it; what fits neither stays."""
        if name in self.dimensions and self.dimensions[name].contains(value):
            return self.dimensions[name].coerce(value)
        return self.constants[name] if name in self.constants and same(value, self.constants[name]) else value

    def _check_together(self, where: str, flat: Mapping[str, Any]) -> None:
        for other, allowed in self._demanded(flat).items():
            if not allowed:
                names = [name for name in flat if other in self._demanded({**self.constants, name: None})]
                raise SpaceError(
                    f"{where}: {' and '.join(map(repr, names))} are never part of one configuration, as they need "
                    f"different values of {other!r}; leave one out"
                )

    def _check_possible(self, name: str) -> None:
        for other, allowed in self._demanded({**self.constants, name: None}).items():
            if not allowed:
                raise SpaceError(
                    f"when needs conditions that can hold together, got several values of {other!r} for {name!r}; "
                    f"write one .when({other}=[...])"
                )

    def _check_value(self, where: str, name: str, value: Any) -> None:
        if name in self.constants:
            if not same(value, self.constants[name]):
                raise SpaceError(
                    f"{where}: {name!r} is the constant {shown(self.constants[name])} in the space, "
                    f"got {shown(value)}; leave it out"
                )
            return
        if name not in self.dimensions:
            raise SpaceError(f"{where}: {name!r} is not in the space; {did_you_mean(name, self.names)}")
        domain = self.dimensions[name]
        if not domain.contains(value):
            raise SpaceError(
                f"{where} needs values inside the space, got {name}={shown(value)} outside of {domain.describe()}; "
                "change the value or widen the space"
            )

    def _combinations(self, names: list[str], flat: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """All values of the named dimensions, inactive ones left out, on top of what `flat` has."""
        if not names:
            yield flat
            return
        name, rest = names[0], names[1:]
        if not self._is_active(name, flat):
            yield from self._combinations(rest, flat)
            return
        for value in self.dimensions[name].values():
            yield from self._combinations(rest, {**flat, name: value})

    def _linked_groups(self) -> list[list[str]]:
        """The dimensions in groups that no condition crosses, each in order: their counts multiply."""
        groups: list[list[str]] = []
        for name in self.dimensions:
            others = {other for other, _ in self._conditions[name]}
            linked = [group for group in groups if others & set(group)]
            groups = [group for group in groups if group not in linked]
            groups.append([*(member for group in linked for member in group), name])
        return groups

    def _count(self, names: Sequence[str], flat: Mapping[str, Any]) -> int:
        """Configurations of finite dimensions on top of what `flat` has; values alike to all conditions multiply."""
        if not names:
            return 1
        name, rest = names[0], names[1:]
        if not self._is_active(name, flat):
            return self._count(rest, flat)
        return sum(times * self._count(rest, {**flat, name: value}) for value, times in self._told_apart(name))

    def _told_apart(self, name: str) -> list[tuple[Any, int]]:
        """The values that conditions ask of a finite dimension, once each; then one for all others, as often."""
        domain = self.dimensions[name]
        allowed = [
            v for conditions in self._conditions.values() for o, values in conditions if o == name for v in values
        ]
        asked = {canonical(value): value for value in map(domain.coerce, allowed)}
        others = int(domain.size) - len(asked)
        return [(value, 1) for value in asked.values()] + ([(_ANOTHER, others)] if others else [])

    def _settled(self, fixed: Mapping[str, Any]) -> dict[str, Domain]:
        """The dimensions that are left, with their conditions on fixed names decided."""
        left: dict[str, Domain] = {}
        for name, domain in self.dimensions.items():
            conditions = self._conditions[name]
            hold = [_is_among(fixed[other], allowed) for other, allowed in conditions if other in fixed]
            open_conditions = tuple(condition for condition in conditions if condition[0] not in fixed)
            if all(hold) and all(other in left or other in self.constants for other, _ in open_conditions):
                left[name] = replace(domain, conditions=open_conditions)
        return left

    def _resolve_conditions(self, name: str, domain: Domain, entries: Mapping[str, Any]) -> Conditions:
        """Conditions with dotted names: a sibling in the same section first, then a name from the top."""
        section = name.rpartition(".")[0]
        resolved = []
        for other, allowed in domain.conditions:
            found = next((n for n in (f"{section}.{other}" if section else other, other) if n in entries), None)
            if found is None:
                raise SpaceError(
                    f"when needs another dimension of the space, got {other!r} for {name!r}; "
                    f"{did_you_mean(other, entries)}"
                )
            if found == name:
                raise SpaceError(f"when needs another dimension, got {name!r} on itself; remove the condition")
            self._check_condition(name, found, entries[found], allowed)
            resolved.append((found, allowed))
        return tuple(resolved)

    def _check_condition(self, name: str, other: str, target: Any, allowed: tuple[Any, ...]) -> None:
        for value in allowed:
            possible = target.contains(value) if isinstance(target, Domain) else canonical(value) == canonical(target)
            if not possible:
                what = target.describe() if isinstance(target, Domain) else repr(target)
                raise SpaceError(
                    f"when needs a value that {other!r} can take, got {other}={shown(value)} for {name!r}, but it is "
                    f"{what}; correct one"
                )

    def _sorted(self, declared: Mapping[str, Domain]) -> list[str]:
        """Names with those that conditions ask for before those that ask, functions as late as can be.

        Raises SpaceError for a cycle.
        """
        order: list[str] = []
        waiting = list(declared)
        while waiting:
            ready = [n for n in waiting if all(other not in waiting for other, _ in self._conditions[n])]
            if not ready:
                raise SpaceError(
                    f"conditions need an order, got a cycle through {', '.join(map(repr, waiting))}; break it"
                )
            ready = [name for name in ready if not isinstance(declared[name], SampleFrom)] or ready
            order += ready
            waiting = [name for name in waiting if name not in ready]
        return order


class _NotSampled(KeyError, AttributeError):  # noqa: N818 -- a state, told to the loop that resolves functions
    """A `sample_from` function asked for what the configuration doesn't have, or not yet."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.message, self.kind = message, kind

    def __str__(self) -> str:
        return self.message


class _Resolved(dict[str, Any]):
    """A configuration as `sample_from` functions see it: by item, by attribute, and as Ray's `spec.config`."""

    def __init__(self, config: Config) -> None:
        super().__init__({n: _Resolved(v) if isinstance(v, dict) else v for n, v in config.items()})

    def __missing__(self, name: str) -> Any:
        raise _NotSampled(repr(name), "KeyError")

    def __getattr__(self, name: str) -> Any:
        if name == "config":
            return self
        if name not in self:
            raise _NotSampled(f"the configuration has no {name!r} yet", "AttributeError")
        return self[name]


def _entries(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """Domains and constants by dotted name; raises SpaceError for constants that can't be written down."""
    try:
        entries = dict(_flatten(declaration))
    except RecursionError as error:
        raise SpaceError(
            f"space needs dicts and values that end, got {shown(declaration)}; take out what contains itself"
        ) from error
    for name, value in entries.items():
        if not isinstance(value, Domain) and not is_writable(value):
            raise SpaceError(f"a constant needs to be plain, got {shown(value)} for {name!r}; use numbers or texts")
    return entries


def _flatten(declaration: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, raw in declaration.items():
        if not isinstance(name, str) or not name or "." in name or not name.isprintable():
            raise SpaceError(
                f"a hyperparameter's name is a text without dots, got {shown(name)}; nest dicts instead of dots"
            )
        value = plain(from_ray(raw))
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        elif not isinstance(value, Domain) and contains_domain(value):
            raise SpaceError(
                f"a constant needs to be plain, got a domain inside {shown(value)} for {prefix + name!r}; name each one"
            )
        else:
            yield prefix + name, value


def nest(flat: Mapping[str, Any]) -> Config:
    """Dotted names as nested ones."""
    nested: Config = {}
    for path, value in flat.items():
        *sections, name = path.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return nested


def _is_among(value: Any, allowed: tuple[Any, ...]) -> bool:
    return any(same(value, one) for one in allowed)
