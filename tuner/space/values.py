"""Plain values: what is a number, what is equal, and how a value is written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import numpy as np

from tuner.errors import shown

_OF_DOMAINS = (  # beginnings of the names of modules
    *("ray.tune.", "hyperopt.", "optuna.", "scipy.stats.", "ConfigSpace.", "skopt.space.", "keras_tuner."),
    *("nevergrad.", "syne_tune.", "flaml.tune.", "tuner.space.constructors."),
)
STUDY_MODULE = "tuner_study_"  # prefix of the names of study files' modules, before the file's name
LARGEST_EXACT = 2**53  # of whole numbers: other programs read JSON's numbers as floats
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
    """Whether it is a function or class that module and name say in any process: no lambda, local or bound one."""
    if not isinstance(getattr(value, "__self__", None), ModuleType | type | None):
        return False
    return "<" not in str(getattr(value, "__qualname__", "<"))


def recorded(value: Any) -> Any:
    """A value as files and answers in JSON hold it, from which `value_of` makes it again.

    What JSON doesn't have is an object whose only name says what it is, as in `{"$tuple": [1, 2]}`; functions and
    classes are their names. Raises TypeError for anything else.
    """
    value = plain(value)
    exact = type(value) is int and abs(value) < LARGEST_EXACT
    if value is None or type(value) in (bool, str) or exact or (type(value) is float and math.isfinite(value)):
        return value
    if type(value) is list:
        return [recorded(item) for item in value]
    if type(value) is dict and all(type(key) is str for key in value) and not _is_tagged(value):
        return {key: recorded(item) for key, item in value.items()}
    for tag, (kind, parts_of, _) in _TAGGED.items():
        if type(value) is kind:
            return {tag: recorded(parts_of(value))}
    if is_named(value):
        return canonical(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def value_of(record: Any, *, loosely: bool = False) -> Any:
    """The value that `recorded` was given, with the names of functions and classes in their place.

    `loosely`: with lists in place of tuples and sets, and texts in place of others, as older runs and users write them.
    """
    if isinstance(record, list):
        return [value_of(item, loosely=loosely) for item in record]
    if not isinstance(record, dict):
        return record
    if not _is_tagged(record):
        return {key: value_of(item, loosely=loosely) for key, item in record.items()}
    (tag, parts), *_ = record.items()
    try:
        found = value_of(parts, loosely=loosely)
        return found if loosely else _TAGGED[tag][2](found)
    except (TypeError, ValueError):  # not written by `recorded`
        return record


def is_recordable(value: Any) -> bool:
    """Whether files hold the value such that readers get the same, but for functions and classes: only their names."""
    try:
        return bool(json.dumps(recorded(value), ensure_ascii=False).encode())
    except Exception:  # whatever the user's class does; a text that can't be encoded, or is too long as a number
        return False


def unrecordable(what: str, value: Any, name: str | None = None) -> str:
    """The message about a value that isn't recordable."""
    place = "" if name is None else f" for {name!r}"
    return (
        f"{what} needs values that the files of a run can hold, got {shown(value)}{place}; use numbers, texts, or "
        "lists of them, and look up in the trial's function what they stand for"
    )


_TAGGED: Mapping[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {  # type, to its parts, and back
    "$float": (float, repr, float),  # infinities and NaN
    "$int": (int, str, int),
    "$tuple": (tuple, list, tuple),
    "$set": (set, lambda value: list(in_order(value)), set),
    "$frozenset": (frozenset, lambda value: list(in_order(value)), frozenset),
    "$dict": (dict, lambda value: [list(pair) for pair in value.items()], dict),  # of keys that aren't texts
    "$path": (type(Path()), str, Path),
}


def _is_tagged(record: Mapping[Any, Any]) -> bool:
    return len(record) == 1 and next(iter(record)) in _TAGGED


def has_named(value: Any) -> bool:
    """Whether it is, or holds, a function or class with a name."""
    if isinstance(value, Mapping):
        return any(map(has_named, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(has_named, value))
    return is_named(value)


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
