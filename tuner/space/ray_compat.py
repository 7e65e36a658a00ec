"""Ray Tune's own domain objects as ours, recognised by their class names, so that Ray is never imported."""

from __future__ import annotations

from typing import Any

from tuner.errors import SpaceError, shown
from tuner.space.choices import Choice, GridSearch
from tuner.space.constructors import last_integer
from tuner.space.domain import Domain
from tuner.space.functions import SampleFrom
from tuner.space.numeric import Float, Integer, Normal
from tuner.space.values import RAY_MODULE, is_ray_grid


def from_ray(value: Any) -> Any:
    """The domain that a `ray.tune` object stands for; anything else comes back as it is.

    Raises SpaceError for a Ray domain that has no counterpart.
    """
    if is_ray_grid(value):
        return GridSearch(tuple(value["grid_search"]))
    if type(value).__module__ != RAY_MODULE:
        return value
    converter = {"Float": _number, "Integer": _number, "Categorical": _choice, "Function": _function}.get(
        type(value).__name__
    )
    if converter is None:
        raise SpaceError(
            f"a space takes ray.tune's domains, got {shown(value)}, which is none; use the functions of tuner"
        )
    return converter(value)


def _number(value: Any) -> Domain:
    sampler, q = value.get_sampler(), None
    if type(sampler).__name__ == "Quantized":
        sampler, q = sampler.get_sampler(), sampler.q
    kind = type(sampler).__name__.lstrip("_")
    if kind == "Normal":
        return Normal(float(sampler.mean), float(sampler.sd), q)
    log = kind == "LogUniform"
    if type(value).__name__ == "Float":
        return Float(value.lower, value.upper, log=log, q=q)
    return Integer(value.lower, last_integer(value.upper, q), log=log, q=q)


def _choice(value: Any) -> Domain:
    return (GridSearch if value.is_grid() else Choice)(tuple(value.categories))


def _function(value: Any) -> Domain:
    return SampleFrom(value.func)
