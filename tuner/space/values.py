"""Plain values: what is a number, what is equal, and how a value is written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeGuard

import numpy as np

_OF_DOMAINS = (  # beginnings of the names of modules
    *("ray.tune.", "hyperopt.", "optuna.", "scipy.stats.", "ConfigSpace.", "skopt.space.", "keras_tuner."),
    *("nevergrad.", "syne_tune.", "flaml.tune.", "tuner.space.constructors."),
)
STUDY_MODULE = "tuner_study_"  # prefix of the names of study files' modules, before the file's name
OF_STUDY_FILE = "tuner_study"  # stands for that module in the name of a function
_FURTHER = re.compile(rf"^({STUDY_MODULE}\w*)-[0-9]+")  # a further file of the same name in this process


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is an int or float that is finite as a float, and not a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_one_of(value: object, options: Collection[str]) -> bool:
    """Whether it is one of some strings; other types aren't compared, because their == may do anything."""
    return isinstance(value, str) and value in options


def plain(value: Any) -> Any:
    """Numbers and arrays of numpy, and those inside lists, tuples and dicts, as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    itself = type(value) in (list, tuple, dict)
    if not itself and not isinstance(value, dict):
        return value
    items = value.values() if isinstance(value, dict) else value
    converted = [plain(item) for item in items]
    if itself and all(new is old for new, old in zip(converted, items, strict=True)):
        return value  # itself: an option of a choice is given back as the object that was listed
    return dict(zip(value, converted, strict=True)) if isinstance(value, dict) else type(value)(converted)


def canonical(value: Any) -> str:
    """A text that equal values share and others don't: 1, 1.0 and True differ, a list and a tuple don't.

    The same in any process, except for lambdas, local functions and objects whose repr is their address; so it doesn't
    say which study file a function is from: a run has a copy of another name.
    """
    value = plain(value)
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{canonical(key)}: {canonical(item)}" for key, item in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(canonical, value)) + "]"
    if isinstance(value, set | frozenset):
        return "set(" + ", ".join(sorted(map(canonical, value))) + ")"
    if not is_named(value):
        return repr(value)
    module = str(getattr(value, "__module__", ""))
    return f"{OF_STUDY_FILE if module.startswith(STUDY_MODULE) else module}.{value.__qualname__}"


def is_named(value: object) -> bool:
    """Whether it is a function or class that module and name say in any process: not a lambda or a local one."""
    return "<" not in str(getattr(value, "__qualname__", "<"))


def recorded(value: Any) -> Any:
    """A value as the files of a run hold it: tuples and sets are lists, functions and classes names, others text."""
    value = plain(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {key: recorded(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [recorded(item) for item in value]
    return canonical(value) if is_named(value) else str(value)


def has_named(value: Any) -> bool:
    """Whether it is, or holds, a function or class with a name."""
    if isinstance(value, Mapping):
        return any(map(has_named, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(has_named, value))
    return is_named(value)


def is_nameless(value: Any) -> bool:
    """Whether it is, or holds, something that only its address tells apart: a lambda, a local function, an object."""
    if isinstance(value, Mapping):
        return any(map(is_nameless, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(is_nameless, value))
    return not isinstance(value, str) and not is_named(value) and " at 0x" in repr(value)


def without_number(module: str) -> str:
    """A module's name (or text that begins with one) without the number that a study file's has in this process."""
    return _FURTHER.sub(r"\1", module)


def is_writable(value: object) -> bool:
    """Whether events and tables can hold a value: not one that contains itself, or fails when it is shown."""
    try:
        return bool(canonical(value)) and str(repr(value)) == repr(value) and isinstance(str(value), str)
    except Exception:  # whatever the user's class does
        return False


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, numbers by their value: 1 and 1.0 are the same, 1 and True are not."""
    if is_number(one) and is_number(other):
        return bool(one == other)
    return canonical(one) == canonical(other)


def clean_multiple(steps: int, q: float) -> float:
    """`steps` times `q` as a person writes it: 0.7, not 0.7000000000000001."""
    multiple = float(Decimal(repr(float(q))) * steps)
    short = float(f"{multiple:.12g}")
    return short if math.isclose(short, multiple, rel_tol=1e-15) else multiple  # three thirds are 1


def library_of(value: object) -> str | None:
    """The library whose domain, or function or class for one, a value is; None for other values."""
    for kind in (value, *type(value).__mro__):
        module = f"{getattr(kind, '__module__', '')}."
        if module.startswith(_OF_DOMAINS):
            return module.partition(".")[0]
    return None


def is_ray_grid(value: Any) -> bool:
    """Whether it is what `tune.grid_search([...])` returns."""
    return isinstance(value, dict) and set(value) == {"grid_search"} and isinstance(value["grid_search"], list | tuple)


def in_order(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values in their order; those of a set in an order that is the same in any process."""
    return tuple(sorted(values, key=canonical)) if isinstance(values, set | frozenset) else tuple(values)
