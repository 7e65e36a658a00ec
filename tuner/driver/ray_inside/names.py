"""The private names of Ray that tuner uses, which stand in `names.toml`: which of them the installed Ray has."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

from tuner.driver.patching import changed
from tuner.errors import StudyError

TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("names.toml").read_text())
QUICK = ("own_sessions", "early_workers", "short_way", "fewer_processes", "no_dashboard", "any_worker")  # not plain
_SHAPE = re.compile(r"([\w.]+):([\w.]+)(?:\(([\w, ]+)\))?(?: '(.+)')?")


@cache
def present(use: str) -> bool:
    """Whether the installed Ray has all names of a use; `present.cache_clear` looks again."""
    return all(map(exists, TABLE[use]["names"]))


@contextmanager
def patched(use: str, made: Callable[[Any], Any]) -> Iterator[None]:
    """Within the block Ray finds under the first name of a use what `made` makes of it, if it has all of them."""
    if not present(use):
        yield
        return
    owner, name = _place(TABLE[use]["names"][0])
    with changed(owner, name, made(getattr(owner, name))):
        yield


def check_needed(version: str) -> None:
    """Raise StudyError if this version of Ray lacks what no search works without."""
    lacks = [name for row in TABLE.values() if "needed" in row for name in row["names"] if not exists(name)]
    if lacks:
        raise StudyError(
            f"a search needs a Ray that tuner knows, got Ray {version}, which lacks {', '.join(lacks)}; "
            "install another version of ray[tune]"
        )


def notices(version: str, kind: str, failed: str | None) -> tuple[str, ...]:
    """What a search does without with this version of Ray, at most one sentence.

    Args:
        version: of Ray
        kind: "starts" or "joins"
        failed: why Ray didn't start as tuner starts it, so that it was started plainly
    """
    lacking = {use: row for use, row in TABLE.items() if row.get("only", kind) == kind and not present(use)}
    names = ", ".join(dict.fromkeys(name for row in lacking.values() for name in row["names"] if not exists(name)))
    why = [f"did not start as tuner starts it ({failed})"] if failed else []
    why += [f"lacks {names}"] if lacking else []
    without = "; ".join(TABLE[use]["for"] for use in dict.fromkeys([*(QUICK if failed else ()), *lacking]))
    return (f"Ray {version} {' and '.join(why)}, so this search goes without {without}",) if why else ()


def exists(name: str) -> bool:
    """Whether the installed Ray has a name, in the shape that is used."""
    _, _, parameters, text = _parts(name)
    try:
        owner, attribute = _place(name)
        if not hasattr(owner, attribute):
            return isinstance(owner, type) and any(attribute in code.co_names for code in _methods(owner))
        found = inspect.unwrap(getattr(owner, attribute))
        if parameters:
            return set(parameters.split(", ")) <= inspect.signature(found).parameters.keys()
        return not text or any(text in str(each) for each in found.__code__.co_consts)
    except (ImportError, AttributeError, TypeError, ValueError):  # the latter two from what has no signature
        return False


def _parts(name: str) -> tuple[str, ...]:
    """Module, path of the attribute, parameters and text; the last two are empty where there are none."""
    found = _SHAPE.fullmatch(name)
    assert found is not None, name
    return found.groups(default="")


def _place(name: str) -> tuple[Any, str]:
    """What has the attribute that a name ends with, and this attribute. Raises ImportError or AttributeError."""
    module, path, _, _ = _parts(name)
    *owners, attribute = path.split(".")
    return reduce(getattr, owners, import_module(module)), attribute


def _methods(owner: type) -> Iterator[CodeType]:
    for kind in owner.__mro__:
        yield from (inspect.unwrap(each).__code__ for each in vars(kind).values() if inspect.isfunction(each))
