"""A study as JSON, for programs in any language: plain data that is never executed.

{"name": "furnace", "trial": "furnace", "metric": "loss", "mode": "min",
"space": {"heat": {"type": "loguniform", "low": 0.01, "high": 1.0},
"gas": {"type": "choice", "values": ["air", "argon"]},
"flow": {"type": "uniform", "low": 0, "high": 5, "when": {"gas": ["argon"]}}},
"scheduler": {"type": "ASHA", "rule": "stop"}, "budget": {"trials": 30, "max_epochs": 9}}
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from tuner import schedule, search
from tuner.errors import StudyError, did_you_mean, shown
from tuner.schedule import Scheduler
from tuner.search import History, SearchAlgorithm
from tuner.space import constructors, space_record
from tuner.space.nesting import nest
from tuner.space.record import KINDS, call_in
from tuner.space.values import recorded, value_of
from tuner.study.budget import Budget
from tuner.study.declaration import Study
from tuner.study.failures import Failures
from tuner.study.resources import Resources
from tuner.trial import External

NAMED = {"search": (search, SearchAlgorithm), "scheduler": (schedule, Scheduler)}
PLAIN = {"budget": Budget, "failures": Failures, "resources": Resources, "warm_start": History}
SIMPLE = ("name", "metric", "mode", "seed", "start_from")
FIELDS = ("name", "trial", "space", *SIMPLE[1:], *NAMED, *PLAIN)


def study_from_json(text: str | bytes) -> Study:
    """The study that JSON declares, whose trials a program asks for with `tuner.Search`.

    `trial` is the name that `External` gets; a search algorithm or scheduler is its name, or an object with its `type`
    and settings. Omitted fields are as in `Study`. Raises StudyError for what can't work.
    """
    try:
        told = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StudyError(f"a study needs to be JSON, got {shown(text)} ({error}); correct it") from error
    given = _object(told, "a study", FIELDS)
    for name in ("name", "space"):
        if name not in given:
            raise StudyError(f"a study needs {name!r}, got {', '.join(given) or 'nothing'}; add it")
    changes: dict[str, Any] = {name: given[name] for name in SIMPLE if name in given and name != "name"}
    changes |= {"start_from": value_of(given["start_from"])} if "start_from" in given else {}
    changes |= {name: _named(name, given[name]) for name in NAMED if name in given}
    changes |= {name: _plain(name, given[name]) for name in PLAIN if name in given}
    trial = External(given["trial"]) if "trial" in given else External()
    return Study(given["name"], trial=trial, space=_section(given["space"], "space"), **changes)


def study_to_json(study: Study) -> str:
    """The study as JSON for `study_from_json`; raises StudyError for what has no plain form, such as functions."""
    if not study.declared_trial.asked_for:
        raise StudyError(
            f"a study in JSON needs trials that a program asks for, got {study.declared_trial.described}; "
            "declare trial=tuner.External()"
        )
    if study.search_space.constraint is not None:
        raise StudyError("a study in JSON has no functions, got a constraint; leave it out, or use conditions")
    told: dict[str, Any] = {"name": study.name, "trial": study.declared_trial.name, "space": _space(study)}
    second = study.second
    told |= {"metric": [study.metric, second.metric] if second else study.metric}
    told |= {"mode": [study.mode, second.mode] if second else study.mode, "seed": study.seed}
    told |= {"start_from": recorded(study.starting_points)}
    told |= {name: {"type": type(value).__name__, **_settings(value)} for name, value in _parts(study, NAMED)}
    told |= {name: None if value is None else _settings(value) for name, value in _parts(study, PLAIN)}
    try:
        return json.dumps(told, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StudyError(f"a study in JSON has plain values, got others ({error}); use numbers and texts") from error


# From JSON


def _object(value: object, what: str, names: Iterable[str]) -> dict[str, Any]:
    """An object that only has fields of these names."""
    if not isinstance(value, dict):
        raise StudyError(f"{what} needs an object, got {shown(value)}; write {{...}}")
    known = list(names)
    for name in value:
        if name not in known:
            raise StudyError(f"{what} takes {', '.join(known)}, got {name!r}; {did_you_mean(name, known)}")
    return value


def _named(field: str, value: object) -> Any:
    """A search algorithm or scheduler."""
    module, base = NAMED[field]
    kinds = {name: kind for name in module.__all__ if _is_declared(kind := getattr(module, name), base)}
    name, settings = (value, {}) if isinstance(value, str) else _typed(value, field, kinds)
    if name not in kinds:
        raise StudyError(
            f"{field} needs one of {', '.join(kinds)}, got {shown(name)}; {did_you_mean(str(name), kinds)}"
        )
    return kinds[name](**_object(settings, name, _field_names(kinds[name])))


def _typed(value: object, what: str, kinds: Iterable[str]) -> tuple[Any, dict[str, Any]]:
    """The `type` of an object, and its other fields."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise StudyError(f'{what} needs a name, or an object with a "type" of {", ".join(kinds)}, got {shown(value)}')
    return value["type"], {name: each for name, each in value.items() if name != "type"}


def _plain(field: str, value: object) -> Any:
    if field == "warm_start" and value is None:
        return None
    return PLAIN[field](**_object(value, field, _field_names(PLAIN[field])))


def _section(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StudyError(f"{where} needs an object of hyperparameters, got {shown(value)}; write {{...}}")
    return {name: _entry(each, f"{where}.{name}") for name, each in value.items()}


def _entry(value: Any, where: str) -> Any:
    """A domain, a section with more of them, or a constant."""
    value = value_of(value)
    if not isinstance(value, dict):
        return value
    if not isinstance(value.get("type"), str):
        return _section(value, where)
    kind, settings = _typed(value, where, KINDS)
    if kind not in KINDS:
        fix = "functions have no form in JSON" if kind == "sample_from" else did_you_mean(kind, KINDS)
        raise StudyError(f"{where} needs a domain of {', '.join(KINDS)}, got {kind!r}; {fix}")
    build: Callable[..., Any] = getattr(constructors, kind)
    names = list(inspect.signature(build).parameters)
    conditions = settings.pop("when", {})
    given = _object(settings, f"{where} ({kind})", names)
    missing = [name for name, one in inspect.signature(build).parameters.items() if one.default is one.empty]
    if absent := [name for name in missing if name not in given]:
        raise StudyError(f"{kind} needs {', '.join(missing)}, got none for {absent[0]!r} in {where}; add it")
    domain = build(**given)
    if not isinstance(conditions, dict):
        raise StudyError(f'{where}.when needs an object, got {shown(conditions)}; write {{"gas": ["argon"]}}')
    for other, values in conditions.items():
        domain = domain.when(**{other: values})
    return domain


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# To JSON


def _space(study: Study) -> dict[str, Any]:
    record = space_record(study.search_space)
    return nest({name: _recorded(name, entry) for name, entry in record.items()})


def _recorded(name: str, entry: Mapping[str, Any]) -> Any:
    """A constant, or a domain: the text of `describe`, with arguments by their names."""
    if "constant" in entry:
        return entry["constant"]
    try:
        kind, arguments = call_in(entry["domain"])
    except ValueError as error:
        raise StudyError(
            f"a study in JSON has domains of plain values, got {entry['domain']} for {name!r}; use choice, or a range"
        ) from error
    names = inspect.signature(getattr(constructors, kind)).parameters
    values = dict(zip(names, map(recorded, arguments), strict=False))
    return {"type": kind, **values} | ({"when": entry["when"]} if "when" in entry else {})


def _parts(study: Study, names: Iterable[str]) -> list[tuple[str, Any]]:
    return [(name, getattr(study, name)) for name in names]


def _settings(declared: Any) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    found = {}
    for field in fields(declared):
        value = getattr(declared, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if value != default:
            found[field.name] = dict(value) if isinstance(value, Mapping) else value
    return found


def _field_names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


def _is_declared(kind: object, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base) and kind is not base
