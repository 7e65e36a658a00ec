"""Whether the nodes of a joined cluster can run a study's trials: by versions, code, data, weights and storage."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuner.driver.cluster import holds_a_trial
from tuner.errors import RunFolderError, StudyError
from tuner.lifecycle.interruption import Interruption
from tuner.storage.folder import Folder
from tuner.storage.locations import marked
from tuner.study.declaration import Study
from tuner.study.resources import Resources
from tuner.trial import Trial
from tuner.worker.implementation import implementation_of
from tuner.worker.pickling import pickle_trial

LOOK_SECONDS = 0.5
PACKAGES = ("torch", "torchvision")  # in addition to tuner
NODE_SECONDS = 60.0  # that a node may take to answer: it has to start a process


@dataclass(frozen=True)
class Seen:
    """What a node has.

    Attributes:
        address: of the node
        versions: of Python and the packages that a trial's results depend on, by name
        data: the fingerprint of the study's data; None if it has none
        weights: the fingerprint of the weights that training starts from
        problem: why it can't use the study's code, data and weights, in a sentence; None if it can
        no_storage: why it can't use the run's folder, in a sentence; None if it can
    """

    address: str
    versions: Mapping[str, str]
    data: str | None = None
    weights: str | None = None
    problem: str | None = None
    no_storage: str | None = None


def check_nodes(study: Study, resources: Resources, storage: Folder, interrupted: Interruption) -> list[str]:
    """Look at the nodes of the connected cluster that trials with these resources may run on; notices for the user.

    Nodes that don't answer in time, or are lost meanwhile, are named in a notice: trials that fail there are retried.

    Raises StudyError if a node has another version than this process, or lacks code, data or weights or has others, and
    RunFolderError if one can't access the folder of the runs.
    """
    nodes = [node for node in ray.nodes() if node["Alive"] and holds_a_trial(resources, node)]
    trial, here = study.declared_trial, _look()(None, [], "", "")["versions"]
    with marked(storage) as mark:
        told = (pickle_trial(trial), list(sys.path), storage.uri, mark)
        seen, silent = _seen(nodes, told, interrupted)
    _check_versions({name: here[name] for name in ("tuner", *_needed(trial))}, seen)
    _refuse(
        StudyError,
        {node.address: node.problem for node in seen if node.problem},
        needs="the study's code, data and weights",
        fix="put them there under the same path, or into a folder that all nodes see",
    )
    _refuse(
        RunFolderError,
        {node.address: node.no_storage for node in seen if node.no_storage},
        needs=f"the folder of the runs, {storage.uri!r}",
        fix="use a folder that all nodes see, or a bucket (--storage s3://…) with its credentials on each",
    )
    _check_same("data", "files", trial.fingerprint(), {node.address: node.data for node in seen})
    _check_same("weights", "contents", trial.weights_fingerprint(), {node.address: node.weights for node in seen})
    return [*_of_versions(here, seen), *_of_silent(silent)]


def _needed(trial: Trial) -> list[str]:
    """Packages on which the trial's results depend, as far as that is known."""
    return [package for package in PACKAGES if package in implementation_of(trial).modules]


def _check_versions(here: Mapping[str, str], seen: Sequence[Seen]) -> None:
    for package, version in here.items():
        others = _others(package, version, seen)
        if others:
            got = ", ".join(f"{other} on {', '.join(addresses)}" for other, addresses in others.items())
            raise StudyError(
                f"all nodes need the same {package}, got {got} and {version} here; install one version everywhere, or "
                "use one image"
            )


def _others(package: str, here: str, seen: Sequence[Seen]) -> dict[str, list[str]]:
    """Nodes that have another version, by that version."""
    others = defaultdict(set)
    for node in seen:
        if _public(node.versions[package]) != _public(here):
            others[node.versions[package]].add(node.address)
    return {version: sorted(addresses) for version, addresses in sorted(others.items())}


def _public(version: str) -> str:
    """A version without the suffix for the device that a package was built for: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]


def _refuse(kind: type[StudyError], lacking: Mapping[str, str], *, needs: str, fix: str) -> None:
    if lacking:
        first = next(iter(lacking.values()))
        raise kind(f"every node needs {needs}, got none on {', '.join(lacking)} ({first}); {fix}")


def _check_same(what: str, parts: str, here: str | None, there: Mapping[str, str | None]) -> None:
    """Raise StudyError if nodes, by their addresses, have another fingerprint than this process."""
    other = [address for address, fingerprint in there.items() if fingerprint != here]
    if other:
        raise StudyError(
            f"every node needs the same {what}, got other {parts} under the same path on {', '.join(other)}; copy them "
            "again, or use a folder that all nodes see"
        )


def _of_versions(here: Mapping[str, str], seen: Sequence[Seen]) -> Iterator[str]:
    """Ray itself refuses nodes whose Python differs, unless it is told to compare only the minor version."""
    for package in ("Python", *PACKAGES):
        for other, addresses in _others(package, here[package], seen).items():
            yield (
                f"{package} is {other} on {', '.join(addresses)} and {here[package]} here, so trials there may give "
                "other results"
            )


def _of_silent(silent: Sequence[str], python: str = sys.executable) -> Iterator[str]:
    """Ray 2.60 hands the path of a node's Python to a shell without quotes (`RuntimeEnvContext.exec_worker`)."""
    if silent:
        spaced = f": Ray starts no workers by a Python whose path has a space, as here ({python}); use another folder"
        yield (
            f"whether trials can run on {', '.join(silent)} is unknown, as no answer came within {NODE_SECONDS:.0f} s"
            f"{spaced if ' ' in python else ''}"
        )


def _seen(
    nodes: Sequence[Mapping[str, Any]], told: tuple[Any, ...], interrupted: Interruption
) -> tuple[list[Seen], list[str]]:
    """The nodes' answers, and the addresses of nodes that don't answer."""
    task = ray.remote(num_cpus=0, max_retries=0)(_look())
    asked = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[task.options(scheduling_strategy=there).remote(*told)] = str(node["NodeManagerAddress"])
    seen, silent, until = [], [], time.monotonic() + NODE_SECONDS
    late = list(asked)
    while late and time.monotonic() < until:
        interrupted.stop_if_asked()
        answered, late = ray.wait(late, num_returns=len(late), timeout=LOOK_SECONDS)
        for answer in answered:
            try:
                seen.append(Seen(asked[answer], **ray.get(answer)))
            except RayError:  # the node was lost
                silent.append(asked[answer])
    silent += [asked[answer] for answer in late]
    return sorted(seen, key=lambda node: node.address), sorted(silent)


def _look() -> Callable[..., dict[str, Any]]:
    """A function that is sent with its code, because a node may have another tuner, or none."""

    def look(pickled: bytes | None, folders: Sequence[str], storage: str, mark: str) -> dict[str, Any]:
        import pickle
        import platform
        from importlib import metadata

        def version(package: str) -> str:
            try:
                if package == "tuner":
                    from tuner.machine.version import __version__

                    return __version__
                return metadata.version(package)
            except (ImportError, metadata.PackageNotFoundError):
                return "none"

        def problem_of(error: BaseException) -> str:
            return (str(error).strip().splitlines() or [type(error).__name__])[0]

        found: dict[str, Any] = {"versions": {"Python": platform.python_version()}}
        found["versions"] |= {package: version(package) for package in ("tuner", "torch", "torchvision")}
        if pickled is None or found["versions"]["tuner"] == "none":
            return found
        try:
            from tuner.worker.study_code import extend_import_path

            extend_import_path(folders)
            trial = pickle.loads(pickled)
            trial.check_files()
            trial.check_stored()
            missing = trial.missing_downloads(stored=False)
            found["data"], found["weights"] = trial.fingerprint(), trial.weights_fingerprint()
            found["problem"] = f"it lacks {', '.join(missing)}" if missing else None
        except Exception as error:
            found["problem"] = problem_of(error)
        try:
            from tuner.storage.locations import open_folder

            found["no_storage"] = None if open_folder(storage).exists(mark) else f"there is no {mark} in it"
        except Exception as error:
            found["no_storage"] = problem_of(error)
        return found

    return look
