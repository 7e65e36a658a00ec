"""A study as the text of a study file."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from tuner.errors import StudyError
from tuner.space import SampleFrom, Space
from tuner.space.record import recorded_domain
from tuner.space.values import has_named
from tuner.study.declaration import Study
from tuner.study.file import is_beside_a_study
from tuner.text import printable

NEVER = ("_", "source", "second", "costs")  # set by tuner
ALWAYS = ("name", "trial", "space", "metric", "mode", "search", "scheduler", "budget", "seed")
INDENT = " " * 4
ORIGINAL = "original"
ODD = {"inf": "math", "nan": "math", type(Path()).__name__: "pathlib"}  # in the repr of plain values


def study_text(study: Study, title: str, path: Path, trial_options: Mapping[str, Any] | None = None) -> str:
    """The text of a study file at `path` that declares the study; `title` is its docstring.

    The user's code (a training function, a model, a constraint) is imported from the file that declares it, changed by
    `trial_options` (those of `Study.with_options` that change the trial). Raises StudyError if that is impossible: the
    file has to be in the folder of `path`, under a name that can be imported.
    """
    writer = _Writer(study, trial_options or {})
    body = writer.study()
    quoted = printable(title.replace("\\", "\\\\").replace('"', '\\"'))  # names in it may come from anywhere
    head = [f'"""{quoted}"""', ""]
    odd = [f"from {module} import {name}" for name, module in ODD.items() if re.search(rf"\b{name}\b", body)]
    head += [*odd, ""] if odd else []
    if writer.uses_original:
        head += [f"from {_module_of(study, path)} import study as {ORIGINAL}", ""]
    names = ", ".join(sorted(writer.names, key=lambda name: (name[0].islower(), name)))
    return "\n".join([*head, f"from tuner import {names}", "", body, ""])


class _Writer:
    """Writes expressions and remembers which names they need."""

    def __init__(self, study: Study, trial_options: Mapping[str, Any]) -> None:
        self._study, self._trial_options = study, trial_options
        self.names = {"Study"}
        self.uses_original = False

    def study(self) -> str:
        lines = ["study = Study("]
        for field in fields(self._study):
            value = getattr(self._study, field.name)
            if field.name not in NEVER and (field.name in ALWAYS or value != _default(field)):
                lines.append(f"{INDENT}{field.name}={self._field(field.name, value)},")
        return "\n".join([*lines, ")"])

    def _field(self, name: str, value: Any) -> str:
        if name == "space":
            return self._space(self._study.search_space)
        if name == "trial":
            return self._trial()
        if name in ("metric", "mode") and self._study.second is not None:
            return repr([value, getattr(self._study.second, name)])
        if name == "constraint":
            return self._original("constraint")
        return self.value(value)

    def value(self, value: Any) -> str:
        """A declaration, with only what differs from its defaults, or a plain value."""
        if hasattr(value, "declared"):  # by a name, such as a metric's
            return repr(value.declared)
        if is_dataclass(value):
            kind = type(value).__name__
            self.names.add(kind)
            given = [(field.name, getattr(value, field.name), _default(field)) for field in fields(value)]
            return f"{kind}({', '.join(f'{n}={self.value(v)}' for n, v, default in given if v != default)})"
        if isinstance(value, tuple):
            return f"[{', '.join(map(self.value, value))}]"
        return repr(str(value) if isinstance(value, Path) else value)

    def _trial(self) -> str:
        trial = self._study.declared_trial
        if not trial.functions:
            return self.value(trial)
        given = ", ".join(f"{name}={self.value(value)}" for name, value in self._trial_options.items())
        return self._original(f"with_options({given}).trial" if given else "trial")

    def _space(self, space: Space) -> str:
        entries = {name: self._entry(name, space) for name in space.names}
        return self._nested(space.unflatten(entries), depth=1)

    def _nested(self, entries: Mapping[str, Any], depth: int) -> str:
        inner, end = INDENT * (depth + 1), INDENT * depth
        rows = (
            f"{inner}{name!r}: {self._nested(entry, depth + 1) if isinstance(entry, Mapping) else entry},"
            for name, entry in entries.items()
        )
        return "\n".join(["{", *rows, end + "}"])

    def _entry(self, name: str, space: Space) -> str:
        domain = space.dimensions.get(name)
        if domain is None:
            constant = space.constants[name]
            return self._original(f"search_space.constants[{name!r}]") if has_named(constant) else repr(constant)
        if isinstance(domain, SampleFrom) or recorded_domain(domain.describe()) is None:
            return self._original(f"search_space.dimensions[{name!r}]")
        self.names.add(domain.describe().partition("(")[0])
        return domain.describe() + "".join(f".when({_condition(*condition)})" for condition in domain.conditions)

    def _original(self, what: str) -> str:
        self.uses_original = True
        return f"{ORIGINAL}.{what}"


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _condition(other: str, values: tuple[Any, ...]) -> str:
    value = repr(values[0] if len(values) == 1 else list(values))
    return f"{other}={value}" if other.isidentifier() else f"**{{{other!r}: {value}}}"


def _beside(source: Path, path: Path) -> Path:
    """The study's own file, or its copy in the folder of `path`: a service runs a copy of its user's file."""
    copy = path.resolve().parent / source.name
    try:
        return copy if copy.read_bytes() == source.read_bytes() else source
    except OSError:
        return source


def _module_of(study: Study, path: Path) -> str:
    """The name under which the study's own file can be imported from one at `path`."""
    source = study.source
    if source is None:
        raise StudyError(
            "a study with code of its own is refined from the file that declares it, got one that was started from "
            "Python; put it into a file"
        )
    source = _beside(source, path)
    if source.parent != path.resolve().parent:
        raise StudyError(
            f"-o must be in the same folder as {source}, whose code the new study uses, got {str(path)!r}; "
            f"use -o {source.parent / path.name}, or copy {source.name} into the folder of the new study"
        )
    found = importlib.util.find_spec(source.stem) if source.stem.isidentifier() else None
    if found is not None and is_beside_a_study(str(found.origin)):  # its own process doesn't look there
        found = None
    if not source.stem.isidentifier() or (found is not None and found.origin != str(source)):
        raise StudyError(
            f"{source.name} needs a name under which its code can be imported, got {source.stem!r}, "
            f"{'which is the name of another module' if found else 'which is no Python name'}; rename the file"
        )
    return source.stem
