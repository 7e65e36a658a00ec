"""Measures what the networks of a study cost when they answer, before it starts: those that its limits rule out aren't
trained.

What was measured on this machine is remembered in the cache folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import SpaceError, StudyError
from tuner.machine.cache_folder import default_folder
from tuner.machine.hardware import gpu_names, this_machine
from tuner.machine.installation import version_of
from tuner.storage import durable
from tuner.study.declaration import Study
from tuner.trial import Trial
from tuner.trial.inference_cost import (
    OF_ONNX,
    InferenceCost,
    KnownCosts,
    WithinLimits,
    cost_of_record,
    deciding_names,
    key_of,
)
from tuner.worker.implementation import implementation_of
from tuner.worker.measuring import Measurers

DRAWS = 3000  # configurations among which the networks are found
MOST_NETWORKS = 64  # each takes about 10 s once where times are asked for, else 3
MEASURED_BY = ("tuner", "torch", "torchvision", "timm", "transformers", "onnx", "onnxscript", "onnxruntime")


def with_costs(study: Study, *, tell: Callable[[str], None] = lambda said: None) -> Study:
    """The study with the cost of every network of its space; as it is if it neither limits nor minimises any.

    What the study knows already isn't measured again. `tell` gets what is being measured.

    Raises:
        StudyError: no network, or none of a starting point, keeps the limits; there are too many networks; one can't be
            measured; or what measures them isn't installed.
    """
    if not study.measured:
        return study
    earlier = {} if study.costs is None else dict(study.costs.by_network)
    plain = replace(study, costs=None)
    configs = {key: config for key, config in _networks(plain, _names(plain)).items() if key not in earlier}
    return _with(plain, earlier | _measured(_winners(plain), configs, plain, tell))


def remembered(study: Study) -> Study:
    """The study with the costs of its networks if all of them were measured on this machine before; else as it is."""
    if not study.measured:
        return study
    trial, names = _winners(study), _names(study)
    found = {key: _remembered(_place(trial, config, study), study) for key, config in _networks(study, names).items()}
    known = {key: cost for key, cost in found.items() if cost is not None}
    return _with(study, known) if len(known) == len(found) else study


def said_of(costs: KnownCosts) -> str:
    """How many networks keep the limits, and what the others cost, in a sentence; without limits what each costs."""
    timed = "latency_ms" in costs.asked
    disturbed = [_settings(key) for key, cost in costs.by_network.items() if timed and cost.disturbed]
    busy = f"; other programs disturbed the times of {', '.join(disturbed)}" if disturbed else ""
    if not costs.limits:
        return f"{_limits_of(costs)}: {_listed(costs.by_network, costs)}{busy}"
    out = {key: cost for key, cost in costs.by_network.items() if cost.broken(costs.limits)}
    count = len(costs.by_network)
    kept = f"{count - len(out)} of {plural(count)} keep{'s' * (count == 1)} {_limits_of(costs)}"
    return kept + (f"; not trained: {_listed(out, costs)}" if out else "") + busy


def _winners(study: Study) -> Trial:
    """The trial whose network the winner has."""
    trial: Any = study.declared_trial
    return trial if study.refit is None else trial.refitted()  # type: ignore[no-any-return]


def _names(study: Study) -> tuple[str, ...]:
    return deciding_names(study.search_space, folds=bool(getattr(_winners(study), "folds", 0)))


def _with(study: Study, found: Mapping[str, InferenceCost]) -> Study:
    costs = _costs(study, found)
    _check_some_keep(costs)
    for index, point in enumerate(study.starting_points):
        known = costs.of(point) is not None  # else the point leaves something open that decides on the network
        if known and (why := WithinLimits(costs).why_not(point)) is not None:
            raise StudyError(f"start_from[{index}]: {why}")
    try:
        return replace(study, costs=costs)
    except SpaceError as error:  # the user's constraint allows only what limits rule out
        told = str(error) if "limits" in str(error) else f"{error} (limits: {_limits_of(costs)})"
        raise SpaceError(told) from error


def _costs(study: Study, found: Mapping[str, InferenceCost]) -> KnownCosts:
    objective = study.second.metric if study.second and study.second.metric in study.measured else None
    return KnownCosts(dict(study.limits), study.latency, found, _names(study), objective)


def limits_in_words(study: Study) -> str:
    """The limits of a study whose networks weren't all measured here yet. Raises StudyError for too many threads."""
    _check_threads(study)
    count, seconds = len(_networks(study, _names(study))), 10 if _timed(study) else 3
    return (
        f"costs: {_limits_of(_costs(study, {}))}; "
        f"{plural(count)} {'are' if count > 1 else 'is'} measured when the search starts, about {seconds} s each"
    )


def _check_threads(study: Study) -> None:
    cpus, threads = this_machine().cpus, study.latency.threads
    if study.latency.device == "cpu" and threads > cpus:
        raise StudyError(f"Latency takes at most the CPUs of this machine ({cpus}), got threads={threads}; lower it")


def _limits_of(costs: KnownCosts) -> str:
    names = list(costs.limits) or costs.asked
    limits = " and ".join(f"{name} {costs.limits[name]:g}" if name in costs.limits else name for name in names)
    return f"{limits} ({costs.latency.words})" if "latency_ms" in names else limits


def _listed(networks: Mapping[str, InferenceCost], costs: KnownCosts) -> str:
    """The networks with what they are limited by, those that cost least first."""
    first = costs.asked[0]
    order = sorted(networks, key=lambda key: float(getattr(networks[key], first)))
    return ", ".join(
        f"{_settings(key)} ({', '.join(f'{name} {getattr(networks[key], name):.3g}' for name in costs.asked)})"
        for key in order
    )


def plural(count: int) -> str:
    """Such as "1 network" or "4 networks"."""
    return f"{count} network{'s' * (count != 1)}"


def _settings(key: str) -> str:
    return " ".join(f"{name}={value}" for name, value in json.loads(key).items()) or "the network"


def _check_some_keep(costs: KnownCosts) -> None:
    if costs.limits and all(cost.broken(costs.limits) for cost in costs.by_network.values()):
        raise StudyError(
            f"limits need a network of the space that keeps them, got none with {_limits_of(costs)}: "
            f"{_listed(costs.by_network, costs)}; raise the limit, or add smaller models or images"
        )


def _networks(study: Study, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """A configuration with each network of the space."""
    generator, found = np.random.default_rng(study.seed), dict[str, dict[str, Any]]()
    points = [study.search_space.complete(point, generator) for point in study.starting_points]
    for config in [*points, *study.search_space.several(DRAWS, generator)]:
        found.setdefault(key_of(config, names), config)
        if len(found) > MOST_NETWORKS:
            raise StudyError(
                f"a space whose networks are measured has at most {MOST_NETWORKS} of them, got more in the values of "
                f"{', '.join(names)}; use choice or a wider step, or leave {' and '.join(study.measured)} out"
            )
    return dict(sorted(found.items()))


def _measured(
    trial: Trial, configs: Mapping[str, dict[str, Any]], study: Study, tell: Callable[[str], None]
) -> dict[str, InferenceCost]:
    places = {key: _place(trial, config, study) for key, config in configs.items()}
    found = {key: cost for key, place in places.items() if (cost := _remembered(place, study)) is not None}
    missing = [key for key in configs if key not in found]
    if not missing:
        return found
    if study.latency.device == "cpu" and (lacking := [name for name in OF_ONNX if find_spec(name) is None]):
        raise StudyError(
            f"{' and '.join(study.measured)} are measured of ONNX files, got an installation without "
            f"{', '.join(lacking)}; "
            "pip install 'image-tuner[onnx]'"
        )
    _check_threads(study)
    if study.latency.device == "cuda" and not this_machine().gpus:
        raise StudyError("Latency(device='cuda') needs a GPU, got a machine without; leave device out for the CPU")
    with Measurers() as measurers:
        costs = measurers.inference_costs(trial, [configs[key] for key in missing], study.latency, often=_timed(study))
        for number, key in enumerate(missing, 1):
            tell(f"measuring what networks cost: {number} of {len(missing)}, {_settings(key)}")
            found[key] = next(costs)
            place = places[key] if _timed(study) else _once(places[key])
            with suppress(OSError):
                place.parent.mkdir(parents=True, exist_ok=True)
                durable.replace(place, json.dumps(asdict(found[key])).encode())
    return found


def _timed(study: Study) -> bool:
    """Whether the study asks for times, which are measured more often."""
    return "latency_ms" in study.measured


def _place(trial: Trial, config: dict[str, Any], study: Study) -> Path:
    """The file in the cache that has the cost of a configuration's network on this machine."""
    named = [
        *(this_machine().processor, this_machine().cpus, asdict(study.latency)),
        gpu_names() if study.latency.device == "cuda" else None,
        implementation_of(trial).network_of(trial, config),
        *(f"{name} {version_of(name)}" for name in MEASURED_BY),
    ]
    digest = hashlib.sha256(json.dumps(named, default=str).encode()).hexdigest()
    return default_folder() / "network_costs" / f"{digest[:32]}.json"


def _remembered(place: Path, study: Study) -> InferenceCost | None:
    """The cost that a file of the cache has; where the study asks for no times, disturbed ones or single ones, too."""
    for file in [place] if _timed(study) else [place, _once(place)]:
        with suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
            cost = cost_of_record(json.loads(file.read_bytes()))
            if not (cost.disturbed and _timed(study)):
                return cost
    return None


def _once(place: Path) -> Path:
    """The file for a cost whose time was measured only once."""
    return place.with_stem(f"{place.stem}-once")
