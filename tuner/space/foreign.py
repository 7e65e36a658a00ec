"""Domains of other libraries: Ray Tune's become ours; all others are refused, with ours of the same values.

They are recognised by modules and keys, so that none of the libraries is imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tuner.errors import SpaceError, shown
from tuner.space import constructors
from tuner.space.choices import Choice, GridSearch
from tuner.space.domain import Domain, contains_domain
from tuner.space.functions import SampleFrom
from tuner.space.numeric import Float, Integer, Normal
from tuner.space.values import is_ray_grid, library_of

# what a W&B sweep may say of a hyperparameter
SWEEP = {"distribution", "value", "values", "probabilities", "min", "max", "q", "mu", "sigma"}
PARTS = (("choices", "categories", "values"), ("low", "lower", "min"), ("high", "upper", "max"), ("step", "q"))


def own_domain(value: Any, name: str) -> Any:
    """The domain that a `ray.tune` object stands for; what is no domain is returned as it is.

    Raises SpaceError, naming the hyperparameter, for any other library's domain.
    """
    if is_ray_grid(value):
        return GridSearch(tuple(value["grid_search"]))
    library = library_of(value)
    if library is None:
        return value
    domain = _counterpart(value, library)
    if domain is None or library != "ray":
        raise _refusal(f"{shown(value)} of {library}", name, domain)
    return domain


def check_no_sweep(declaration: Mapping[str, Any]) -> None:
    """Raise SpaceError for a hyperparameter as W&B's sweeps have it, which would be a section of constants here."""
    for name, value in declaration.items():
        if isinstance(value, Mapping):
            told = value.keys() & {"distribution", "values", "value"} or {"min", "max"} <= value.keys()
            if told and value.keys() <= SWEEP and not contains_domain(value):
                raise _refusal(
                    shown(value), name, _counterpart(value, "wandb"), ", or choice([{...}]) for a constant dict"
                )
            check_no_sweep(value)


def _refusal(what: str, name: str, domain: Domain | None, otherwise: str = "") -> SpaceError:
    use = f"tuner's functions, as in uniform(0, 1){otherwise}" if domain is None else domain.describe()
    return SpaceError(f"a hyperparameter needs a domain of tuner or a constant, got {what} for {name!r}; use {use}")


def _counterpart(value: Any, library: str) -> Domain | None:
    """Our domain of the same values; None if there is none."""
    with suppress(Exception):  # whatever another version of the library has in place of a part
        domain = {"ray": _of_ray, "hyperopt": _of_hyperopt}.get(library, _of_parts)(value)
        if library != "ray":
            domain.validate(library)
        return domain
    return None


def _of_ray(value: Any) -> Domain:
    kind = type(value).__name__
    if kind == "Function":
        return SampleFrom(value.func)
    if kind == "Categorical":
        return (GridSearch if value.is_grid() else Choice)(tuple(value.categories))
    sampler, q = value.get_sampler(), None
    if type(sampler).__name__ == "Quantized":
        sampler, q = sampler.get_sampler(), sampler.q
    scale = type(sampler).__name__.lstrip("_")
    if scale == "Normal":
        return Normal(float(sampler.mean), float(sampler.sd), q)
    if kind == "Float":
        return Float(value.lower, value.upper, log=scale == "LogUniform", q=q)
    return Integer(value.lower, constructors.last_integer(value.upper, q), log=scale == "LogUniform", q=q)


def _of_parts(value: Any) -> Domain:
    """Of a dict with bounds or options, or an object with them as attributes, such as Optuna's."""
    sweep = isinstance(value, Mapping)
    parts = value if sweep else {name: getattr(value, name, None) for names in PARTS for name in names}
    options, low, high, q = (
        next((parts[name] for name in names if parts.get(name) is not None), None) for names in PARTS
    )
    if options is not None:
        return Choice(tuple(options))
    kind = (str(value.get("distribution", "")) if sweep else type(value).__name__).lower()
    log = "log" in kind or getattr(value, "log", False) is True or getattr(value, "prior", "") == "log-uniform"
    if "int" not in kind and (kind or not isinstance(low, int) or not isinstance(high, int)):
        return Float(low, high, log=log, q=q)  # type: ignore[arg-type]
    steps = range(low, high + 1, q or 1)  # type: ignore[arg-type, operator]
    return Integer(low, high, log=log) if q in (None, 1) else Choice(tuple(steps))  # type: ignore[arg-type]


def _of_hyperopt(node: Any) -> Domain:
    """Of an expression such as float(hyperopt_param(label, uniform(low, high)))."""
    whole = node.name == "int"
    while node.name in ("float", "int", "hyperopt_param"):
        node = node.pos_args[-1]
    if node.name == "switch":
        return Choice(tuple(option.obj for option in node.pos_args[1:]))
    given, named = [each.obj for each in node.pos_args], {name: each.obj for name, each in node.named_args}
    if node.name == "randint" and len(given) == 1:
        given = [0, *given]
    domain: Domain = getattr(constructors, node.name.replace("normal", "randn"))(*given, **named)
    if isinstance(domain, Float) and domain.log:  # its bounds are exponents
        low, high = (float(f"{math.exp(bound):.12g}") for bound in (domain.low, domain.high))
        domain = replace(domain, low=low, high=high)
    if not whole or not isinstance(domain, Float):
        return domain
    return Integer(
        int(domain.low), int(domain.high), log=domain.log, q=int(domain.q) if domain.q not in (None, 1) else None
    )
