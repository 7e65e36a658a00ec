"""A search space: named domains and constants, nested and conditional."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import SpaceError, describe_error, did_you_mean, shown
from tuner.space.choices import Choice, GridSearch
from tuner.space.completing import Sampler
from tuner.space.conditions import ConditionGraph
from tuner.space.dimensions import Dimensions
from tuner.space.domain import Conditions, Domain, contains_domain
from tuner.space.foreign import check_no_sweep
from tuner.space.functions import SampleFrom
from tuner.space.nesting import entries_of, nest
from tuner.space.numeric import Float, Integer
from tuner.space.values import (
    LARGEST_EXACT,
    canonical,
    is_recordable,
    is_writable,
    plain,
    recorded,
    unrecordable,
    value_of,
)

Config = dict[str, Any]
Constraint = Callable[[Config], bool]
LARGEST_LISTED = 100_000  # configurations that are listed one by one to be counted, or tried on a grid
DRAWS = 10_000  # after so many draws a constraint counts as impossible


class NothingDrawn(SpaceError):  # noqa: N818 -- what happened; a search may try again
    """None of many random draws may be tried; some configurations may be."""


class Space:
    """The configurations described by a mapping of names to domains, constants or nested mappings.

    Nested names are joined by dots. `constraint` takes a whole configuration and says whether it may be tried: others
    are never sampled, nor part of a grid. Raises SpaceError, with rule, value and fix, for a space that can't work.

    Long because it is what users and searches ask of a space; counting, encoding and completing are other modules.
    """

    def __init__(self, declaration: Mapping[str, Any], constraint: Constraint | None = None) -> None:
        if not isinstance(declaration, Mapping):
            raise SpaceError(f"space needs a dict of names and domains, got {shown(declaration)}; write space={{...}}")
        entries = entries_of(declaration)
        self._order = {name: position for position, name in enumerate(entries)}
        self.constants: dict[str, Any] = {n: v for n, v in entries.items() if not isinstance(v, Domain)}
        declared = {name: value for name, value in entries.items() if isinstance(value, Domain)}
        for name, domain in declared.items():
            domain.validate(name)
        self._conditions = ConditionGraph(entries)
        self.dimensions: dict[str, Domain] = {name: declared[name] for name in self._conditions.order}
        self._together = Dimensions(self.dimensions, self._conditions, self.constants)
        if constraint is not None and not callable(constraint):
            raise SpaceError(
                f"constraint needs a function of a configuration, got {shown(constraint)}; write "
                'constraint=lambda config: config["batch_size"] <= 64'
            )
        self.constraint = constraint
        self._computed = {name: d for name, d in self.dimensions.items() if isinstance(d, SampleFrom)}

    def __repr__(self) -> str:
        """The mapping, nested again."""
        return f"Space({self.unflatten({**self.constants, **self.dimensions})!r})"

    def __eq__(self, other: object) -> bool:
        """Spaces are equal if their domains, conditions and constants are, and the types of all values."""
        same = isinstance(other, Space) and self.dimensions == other.dimensions
        same = same and isinstance(other, Space) and self.constraint == other.constraint
        same = same and isinstance(other, Space) and self.constants == other.constants
        return same and isinstance(other, Space) and canonical(self._listed) == canonical(other._listed)

    __hash__ = None  # type: ignore[assignment]

    @property
    def names(self) -> list[str]:
        """All dotted names, as declared."""
        return list(self._order)

    @property
    def conditions(self) -> dict[str, Conditions]:
        """For each dimension the dotted names of others, with the values for which it is active."""
        return self._conditions.of

    def possible(self, name: str) -> list[Any]:
        """The values that a hyperparameter may have, for a range both ends; empty if the space doesn't name it."""
        if name in self.constants:
            return [self.constants[name]]
        domain = self.dimensions.get(name)
        if isinstance(domain, Choice | GridSearch):
            return list(domain.values())
        return [domain.low, domain.high] if isinstance(domain, Float | Integer) else []

    @property
    def grid_dimensions(self) -> list[str]:
        """Names declared with `grid_search`."""
        return [name for name, domain in self.dimensions.items() if isinstance(domain, GridSearch)]

    @property
    def in_json(self) -> bool:
        """Whether JSON has all values of configurations; a function's results are unknown."""
        if self._computed or any(getattr(each, "high", 0) > LARGEST_EXACT for each in self.dimensions.values()):
            return False
        held = recorded(self._listed)
        return bool(held == value_of(held))

    @cached_property
    def size(self) -> float:
        """Number of distinct configurations, infinite if any dimension is continuous.

        With a constraint only those that meet it count, up to LARGEST_LISTED without it; beyond, all do.
        """
        if any(math.isinf(domain.size) for domain in self.dimensions.values()):
            return math.inf
        size = self._together.count()
        return size if self.constraint is None or size > LARGEST_LISTED else sum(1 for _ in self.grid())

    # Drawing and checking

    def sample(self, generator: np.random.Generator) -> Config:
        """A random configuration."""
        return self.complete({}, generator)

    def complete(self, config: Config, generator: np.random.Generator) -> Config:
        """The configuration with missing values sampled and the constants filled in.

        Missing values are drawn such that the given ones are part of the configuration and the constraint holds;
        `sample_from` functions may use each other's values. Raises SpaceError if a function fails, or NothingDrawn if
        `allows` holds for none of many draws.
        """
        known = self.constants.keys() | self.flatten(config).keys()
        for drawn in islice(self.draws(config, generator), DRAWS):
            if self.allows(drawn):
                return drawn
            if self.flatten(drawn).keys() <= known:  # nothing is drawn: the next one would be the same
                raise NothingDrawn(
                    self._why_not(drawn)
                    or f"constraint needs to allow the configuration, got {shown(drawn)}; change one of them"
                )
        if (said := self.unrecordable(drawn)) is not None:
            raise NothingDrawn(said)
        if config and (said := self._why_not(drawn)) is not None:
            raise NothingDrawn(said)
        given = f" with {shown(config)}" if config else ""
        fix = "or change the configuration" if config else "or narrow the space to where it holds"
        raise NothingDrawn(
            f"constraint needs to leave some configurations, got none{given} in {DRAWS:,} draws, the last one "
            f"{shown(drawn)}; loosen it, {fix}"
        )

    def _why_not(self, config: Config) -> str | None:
        """What a constraint of tuner's own says of a configuration that it rules out."""
        why = getattr(self.constraint, "why_not", None)
        return None if why is None else why(config)

    def draws(self, config: Config, generator: np.random.Generator) -> Iterator[Config]:
        """The configuration with missing values sampled, again and again; some may not be what `allows` asks for."""
        sampler = Sampler(self.dimensions, self._conditions, self.unflatten)
        flat = {**self.constants, **self.flatten(config)}
        while True:
            yield self.unflatten(sampler.complete(flat, generator))

    def several(self, count: int, generator: np.random.Generator) -> list[Config]:
        """Up to so many random configurations: fewer if the constraint allows so few that drawing takes long.

        Raises NothingDrawn if not even one is found.
        """
        found = [self.sample(generator)]
        with suppress(NothingDrawn):
            while len(found) < count:
                found.append(self.sample(generator))
        return found

    def unrecordable(self, config: Config) -> str | None:
        """What is wrong with the value of a `sample_from` that a run's files can't hold; None if there is none."""
        flat = self.flatten(config) if self._computed else {}
        wrong = (name for name, domain in self._computed.items() if name in flat and not domain.contains(flat[name]))
        return next((unrecordable("sample_from", flat[name], name) for name in wrong), None)

    def allows(self, config: Config) -> bool:
        """Whether a whole configuration may be tried: the constraint, if any, holds, and a run's files can hold it.

        Raises SpaceError if the constraint fails.
        """
        if self.unrecordable(config) is not None:
            return False
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

    def check(self, config: Config, where: str) -> Config:
        """The configuration with plain values and constants, what is missing left out.

        Raises SpaceError naming `where` for an unknown or inactive name, names that exclude each other, or a value
        outside its domain.
        """
        if not isinstance(config, Mapping):
            raise SpaceError(f"{where} needs a dict of names and values, got {shown(config)}; write {{'name': value}}")
        for name, value in self.flatten(config).items() if is_writable(config) else ():
            if contains_domain(value):
                raise SpaceError(f"{where} needs values, got the domain {shown(value)} for {name!r}; choose a value")
        if not is_recordable(dict(config)):
            raise SpaceError(unrecordable(where, config))
        flat = self.flatten(config)
        for name, value in flat.items():
            self._check_value(where, name, value)
        result = {
            **self.constants,
            **{n: self.dimensions[n].coerce(v) for n, v in flat.items() if n in self.dimensions},
        }
        for name in flat:
            if not self._conditions.is_active(name, result, missing=True):
                others = " and ".join(f"{other} in {list(values)}" for other, values in self.conditions[name])
                raise SpaceError(f"{where}: {name!r} is part of a configuration only when {others}; leave it out")
        self._conditions.check_together(result, where)
        return self.unflatten(result)

    def project(self, config: Config) -> Config:
        """The part of a configuration of another version of this space that fits here; constants are this space's."""
        flat = self.flatten(config)
        kept = {
            n: self.dimensions[n].coerce(v)
            for n, v in flat.items()
            if n in self.dimensions and self.dimensions[n].contains(v)
        }
        active = self._conditions.active(kept)
        return self.unflatten({**self.constants, **{name: value for name, value in kept.items() if name in active}})

    def active(self, config: Config) -> set[str]:
        """Dotted names of the dimensions that are part of the configuration."""
        return self._conditions.active(self.flatten(config))

    def fix(self, values: Mapping[str, Any], spellings: Mapping[str, str] | None = None) -> Space:
        """The space with dimensions (or constants) replaced by constants, by dotted name.

        Conditions on a fixed dimension are decided: what they rule out leaves the space.

        Args:
            values: of the constants
            spellings: names that may be new to the space, by what users call them

        Raises:
            SpaceError: an unknown name.
        """
        spellings = spellings or {}
        known = dict.fromkeys([*self.names, *spellings.values()])
        for name in values:
            if name not in known:
                near = did_you_mean(name, known, spellings)
                raise SpaceError(f"{name!r} is not a hyperparameter of the study; {near}")
        entries: dict[str, Any] = {
            **self.constants,
            **self._conditions.settled(self.dimensions, values),
            **{name: self._conditions.coerced(name, value) for name, value in values.items()},
        }
        names = dict.fromkeys([*self._order, *values])
        return Space(nest({name: entries[name] for name in names if name in entries}), self.constraint)

    def constrained(self, constraint: Constraint) -> Space:
        """The space with another constraint."""
        return Space(self.unflatten({**self.constants, **self.dimensions}), constraint)

    # The unit cube

    def encode(self, config: Config) -> npt.NDArray[np.float64]:
        """The configuration in the unit cube, [len(dimensions)] float; nan where inactive or not encodable."""
        return self._together.encode(self.flatten(config))

    def decode(self, unit: Sequence[float] | npt.NDArray[np.float64]) -> Config:
        """The configuration at a point [len(dimensions)] of the unit cube; inactive columns do not matter.

        A name is left out where its column is nan.
        """
        return self.unflatten(self._together.decode(unit))

    def snap(self, units: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Points [n, len(dimensions)] of the unit cube, each as the encoding of the configuration that it decodes to.

        The same as `encode(decode(unit))` row by row, and much faster for continuous dimensions.
        """
        return self._together.snap(units)

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
        configs = map(self.unflatten, self._together.combinations())
        yield from filter(self.allows, configs)

    def key(self, config: Config) -> str:
        """A text that two configurations share exactly if they are the same for a trial."""
        return canonical(self._coerced(config))

    def restored(self, config: Mapping[str, Any]) -> Config:
        """A configuration from the files of a run with the space's own values: a function, say, is its name there."""
        return self.unflatten(self._coerced(config))

    def flatten(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Nested to dotted names, as deep as the space is nested: a dict that is a value stays one."""
        return dict(self._flatten(config, ""))

    def unflatten(self, flat: Mapping[str, Any]) -> Config:
        """Dotted to nested names, in the order of the declaration."""
        return nest({name: flat[name] for name in sorted(flat, key=lambda n: self._order.get(n, len(self._order)))})

    # Inside

    @property
    def _listed(self) -> dict[str, Any]:
        """Constants, and options of choices."""
        return self.constants | {n: list(d.options) for n, d in self.dimensions.items() if isinstance(d, Choice)}

    def _flatten(self, config: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in config.items():
            path = f"{prefix}{name}"
            if isinstance(value, Mapping) and self._is_section(path):
                yield from self._flatten(value, path + ".")
            else:
                yield path, plain(value)

    def _is_section(self, path: str) -> bool:
        return any(name.startswith(path + ".") for name in self.names)

    def _coerced(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._conditions.coerced(name, value) for name, value in self.flatten(config).items()}

    def _check_value(self, where: str, name: str, value: Any) -> None:
        domain = self._conditions.domains.get(name)
        if domain is None:
            raise SpaceError(f"{where}: {name!r} is not in the space; {did_you_mean(name, self.names)}")
        if name in self.constants:
            if not domain.contains(value):
                raise SpaceError(
                    f"{where}: {name!r} is the constant {shown(self.constants[name])} in the space, "
                    f"got {shown(value)}; leave it out"
                )
            return
        if not domain.contains(value):
            raise SpaceError(
                f"{where} needs values inside the space, got {name}={shown(value)} outside of {domain.describe()}; "
                "change the value or widen the space"
            )


def declared_space(declaration: Mapping[str, Any], constraint: Constraint | None = None) -> Space:
    """The space as a user declares it: raises SpaceError also for the domains of W&B's sweeps, which are dicts."""
    space = Space(declaration, constraint)
    check_no_sweep(declaration)
    return space
