"""Whether every node of a joined cluster can run a study's trials: it has the same versions, data and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuner.errors import StudyError
from tuner.study import Study
from tuner.worker.pickling import pickle_trial

NODE_SECONDS = 60.0  # that a node may take to answer: it starts a process for it
PACKAGES = ("torch", "torchvision")  # beside tuner; Ray itself refuses nodes with another Ray or Python


@dataclass(frozen=True)
class Seen:
    """What a node is like.

    Attributes:
        versions: of the packages that a trial's results depend on, by name
        problem: what keeps it from the study's data and weights, in a sentence; None where nothing does
    """

    versions: Mapping[str, str]
    problem: str | None


def check_nodes(study: Study, nodes: Iterable[Mapping[str, Any]]) -> None:
    """Look at nodes of the connected cluster, as `ray.nodes()` has them.

    Nodes that don't answer in time, or are lost meanwhile, are passed over: a trial that comes to one fails, and is
    tried again.

    Raises StudyError where one has another version than this process, or lacks data or weights.
    """
    look = _look()
    here = Seen(*look(None))
    seen = _seen(look, pickle_trial(study.declared_trial), nodes)
    for address, node in seen.items():
        for package, version in node.versions.items():
            if _public(version) != _public(here.versions[package]):
                raise StudyError(
                    f"all nodes need the same {package}, got {version} on {address} and {here.versions[package]} here; "
                    "install one version everywhere, or use one image"
                )
    lacking = [address for address, node in seen.items() if node.problem is not None]
    if lacking:
        raise StudyError(
            f"every node needs the study's data and weights, got none on {', '.join(lacking)} "
            f"({seen[lacking[0]].problem}); put them there under the same path, or into a folder that all nodes see"
        )


def _seen(look: Callable[..., Any], trial: bytes, nodes: Iterable[Mapping[str, Any]]) -> dict[str, Seen]:
    """What nodes answer, by their addresses."""
    task = ray.remote(num_cpus=0, max_retries=0)(look)
    asked = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(trial): node
        for node in nodes
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=NODE_SECONDS) if asked else ([], [])
    seen = {}
    for answer in answered:
        try:
            seen[str(asked[answer]["NodeManagerAddress"])] = Seen(*ray.get(answer))
        except RayError:  # it was lost
            continue
    return dict(sorted(seen.items()))


def _look() -> Callable[[bytes | None], tuple[dict[str, str], str | None]]:
    """A function that travels with its code, as the tuner of a node may be another one, or none."""
    packages = PACKAGES

    def look(pickled: bytes | None) -> tuple[dict[str, str], str | None]:
        import pickle
        from importlib import metadata

        try:
            import tuner

            versions = {"tuner": tuner.__version__}
        except ImportError:
            versions = {"tuner": "none"}
        for package in packages:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = "none"
        if pickled is None:
            return versions, None
        try:
            trial = pickle.loads(pickled)
            trial.check_files()
            missing = trial.missing_downloads()
        except Exception as error:
            return versions, (str(error).strip().splitlines() or [type(error).__name__])[0]
        return versions, f"it lacks {', '.join(missing)}" if missing else None

    return look


def _public(version: str) -> str:
    """Without what says for which device it was built: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]
