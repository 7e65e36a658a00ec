"""Ray: started for one search on this machine, or joined if it already runs."""

from __future__ import annotations

import importlib
import logging
import math
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RuntimeEnvSetupError

from tuner.doctor.checks import REINSTALL, Finding, Subject, failed, notice, ok
from tuner.driver import shared_devices
from tuner.driver.local_ray import SHUTDOWN_SECONDS, local_ray, short_folder, shut_down
from tuner.driver.mps import overlapping
from tuner.driver.options import DEFAULT, Driving
from tuner.driver.patching import environment, quiet_loggers
from tuner.driver.ray_inside import autoscaling, names
from tuner.driver.ray_inside.start import LOOPBACK, Workers, gone, raylet_silenced, signals_left_alone
from tuner.driver.ray_inside.tune import GCS_SECONDS, any_worker_taken, tune_subdued
from tuner.driver.reachability import check_reachable
from tuner.driver.watchdog import Watchdog
from tuner.errors import StudyError, setting
from tuner.lifecycle.interruption import Interruption
from tuner.loop.packing import Device
from tuner.machine.hardware import Machine, this_machine
from tuner.machine.temporary import sweep
from tuner.study.declaration import Study
from tuner.study.resources import ACCELERATOR, Resources
from tuner.worker.implementation import implementation_of
from tuner.worker.study_code import runtime_environment

__all__ = ["LOOPBACK", "Connected", "concurrency", "connected", "ray_starts"]

# Read by Ray when it is imported or started. Values that the user set stay.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths in a user's function mean the same as in the terminal
    "RAY_gcs_server_port_wait_time_s": "60",  # a busy machine is slow
    "RAY_num_workers_soft_limit": "1000000",  # a spare worker stays, however long it is idle
    "RAY_gcs_server_request_timeout_seconds": str(GCS_SECONDS),
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "300",  # Ray's snapshot is a by-product: the events are what a run resumes from
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "TUNE_WARN_THRESHOLD_S": "10",
}


SOON = 4  # trials at once on a GPU: their number doubles within epochs, and a worker needs seconds to start
LEAST_URGENT = 19  # the kernel's highest niceness
_LOGGERS = ("ray", "ray.tune", "ray.train", "ray.air", "ray.data", "ray._private", "ray._common")
_Ray = tuple[Callable[[], bool], str | None]  # the check whether it is gone; why it had to be started plainly
_SETTINGS: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}


@dataclass(frozen=True)
class Connected:
    """What a connected cluster provides for a search.

    Attributes:
        resources: the resources of one trial
        devices: the devices that packed trials share
        grows: whether an autoscaler starts nodes for trials that wait
        notices: sentences for the user about this Ray
        most: the most trials at once on the devices that this driver is to get; None for all that it sees
    """

    resources: Resources
    devices: tuple[Device, ...] = ()
    grows: bool = False
    notices: tuple[str, ...] = ()
    most: int | None = None


@contextmanager
def connected(
    study: Study, driving: Driving = DEFAULT, *, interrupted: Interruption | None = None
) -> Iterator[Connected]:
    """Ray for the length of the block; yields what trials of the study get.

    Without an address a cluster is started on this machine and ended afterwards; its workers' niceness is `nice` above
    this process's. If Ray ends before the block does, `interrupted` is asked to end the search. At most `concurrency`
    workers are started, one for each trial that runs at once.

    Raises StudyError if Ray doesn't start, nothing answers at the address, or a trial of the study would never get its
    resources; KeyboardInterrupt if a signal ends the search before Ray has started.
    """
    address, nice = driving.address, driving.nice
    _check_nice(nice, address)
    if address is not None and study.resources.packed:
        raise StudyError(
            f"{study.resources.packed}='auto' needs Ray as tuner starts it on this machine, got address={address!r}; "
            f"leave {setting('--address')} out, or use a number"
        )
    if ray.is_initialized():
        raise StudyError(
            "a search starts or joins Ray by itself, got a process that is connected to it already; "
            "call ray.shutdown() first, or search in another process"
        )
    interrupted = interrupted or Interruption()
    with ExitStack() as stack:
        stack.enter_context(_prepared())
        stack.enter_context(overlapping(study))
        machine = driving.machine
        devices = shared_devices.shared_devices(study, machine)
        with interrupted.at_once():
            preload = _preload(study)
            workers = _workers(study, machine, devices, driving.first_at_once)
            code = None if address is None else runtime_environment(study.declared_trial)
            started = (
                _started(machine, nice or 0, shared_devices.shares(devices), workers)
                if address is None
                else _joined(address, code)
            )
            is_gone, failed = stack.enter_context(started)
            interrupted.take_signals()
            preload.join()
            notices = names.notices(ray.__version__, "starts" if address is None else "joins", failed)
            stack.enter_context(tune_subdued())
            if address is None and failed is None:
                stack.enter_context(any_worker_taken())
        interrupted.stop_if_asked()
        machine, grows = (machine, False) if address is None else _cluster(study, driving.concurrency)
        study.check_machine(machine, where="this machine" if address is None else "the cluster")
        stack.enter_context(Watchdog(interrupted, is_gone))
        resources = study.resources.resolve(gpus_present=machine.gpus, uses_gpu=study.uses_gpu)
        most = None if driving.allotment is None else driving.allotment.expected_at_once
        yield Connected(resources, tuple(devices), grows, notices, most)


def _check_nice(nice: int | None, address: str | None) -> None:
    if nice is None:
        return
    if not 0 <= nice <= LEAST_URGENT:
        raise StudyError(f"nice needs a whole number from 0 to {LEAST_URGENT}, got {nice}")
    if address is not None:
        raise StudyError(
            f"nice is for workers that tuner starts, got nice={nice} together with address={address!r}; leave it out, "
            f"and set RAY_worker_niceness={nice} where `ray start` runs"
        )


@contextmanager
def _prepared() -> Iterator[None]:
    """Set what Ray reads from the environment, and keep Ray off our terminal, where stdout is for results."""
    names.present.cache_clear()
    with (
        environment(_ENVIRONMENT, also_restored=("RAY_", "TUNE_", "PYTHONBREAKPOINT")),
        quiet_loggers(_LOGGERS),
        raylet_silenced(),
    ):
        yield


def _preload(study: Study) -> threading.Thread:
    """Import what the search will need while Ray starts, which is mostly waiting: this saves about a second.

    Files that dead searches left behind are deleted at the same time.
    """
    modules = ["tuner.driver.adapters", "tuner.worker.trainable", "tuner.driver.winner", *study.search.needs]

    def load() -> None:
        for module in modules:
            importlib.import_module(module)
        for folder in {Path(tempfile.gettempdir()), short_folder()}:
            sweep(folder)

    thread = threading.Thread(target=load, name="preload", daemon=True)
    thread.start()
    return thread


def concurrency(resources: Resources, limit: int | None, *, grows: bool = False) -> int:
    """How many trials the connected cluster's nodes can hold at once, at most `limit`; `limit` if it `grows`."""
    present = fitting(resources)
    if limit and grows:
        return limit
    return max(1, min(present, limit) if limit else present)


def fitting(resources: Resources) -> int:
    """How many trials the present nodes can hold at once."""
    count = int(resources.devices) if resources.placement == "spread" else 1
    on_nodes = (_on_node(resources, count, node.get("CPU", 0), node.get("GPU", 0)) for node in _nodes(resources))
    return sum(on_nodes) // count


def holds_a_trial(resources: Resources, node: Mapping[str, Any]) -> bool:
    """Whether a trial, or one process of a trial across nodes, may run on a node as `ray.nodes()` describes it."""
    count = int(resources.devices) if resources.placement == "spread" else 1
    has = node["Resources"]
    return _is_meant(resources, has) and _on_node(resources, count, has.get("CPU", 0), has.get("GPU", 0)) > 0


def _nodes(resources: Resources) -> list[Mapping[str, float]]:
    """The resources of the present nodes that a study's kind of GPU allows."""
    alive = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return [node for node in alive if _is_meant(resources, node)]


def _is_meant(resources: Resources, node: Mapping[str, float]) -> bool:
    return resources.node_label is None or resources.node_label in node


def _on_node(resources: Resources, count: int, cpus: float, gpus: float) -> int:
    """How many of the `count` parts of trials a node with this many CPUs and GPUs can hold at once."""
    on_cpus = math.floor(cpus / (resources.cpu_count / count) + 1e-9)
    return min(on_cpus, _on_gpus(gpus, resources.gpu_count / count)) if resources.gpu_count else on_cpus


def _workers(study: Study, machine: Machine, devices: Sequence[Device], limit: int | None) -> Workers:
    """What a study's first trials will request from Ray on this machine, as far as that is known before Ray runs."""
    resources = study.resources.resolve(gpus_present=machine.gpus, uses_gpu=study.uses_gpu)
    soon = sum(max(device.at_first, min(device.most, SOON)) for device in devices)
    most = [limit, study.trials, soon]
    at_once = min([max(1, _on_node(resources, 1, machine.cpus, machine.gpus)), *filter(None, most)])
    at_once += bool(devices)  # the one that estimates memory takes a worker, too
    return Workers(at_once, implementation_of(study.declared_trial).modules, resources.cpu_count)


def _on_gpus(present: float, each: float) -> int:
    """A fraction of a GPU has to lie on one device: 0.4 fits twice on each, not five times on two."""
    return int(present * math.floor(1 / each + 1e-9)) if each <= 1 else int(present // each)


@contextmanager
def _started(machine: Machine, nice: int, shares: Mapping[str, float], workers: Workers) -> Iterator[_Ray]:
    with (
        warnings.catch_warnings(action="ignore"),
        local_ray(machine, _SETTINGS, nice=nice, shares=shares, workers=workers) as started,
    ):
        yield started.is_gone, started.failed


def ray_starts(subject: Subject) -> Finding:
    """A check of `tuner doctor`: Ray starts as for a search, runs a task, and ends; what a search goes without.

    Raises StudyError if no search works.
    """
    with _prepared(), _started(this_machine(), 0, {}, Workers()) as (_, failed_names):
        notices = names.notices(ray.__version__, "starts", failed_names)
        answer = ray.get(ray.remote(num_cpus=1)(_three).remote(), timeout=60)
    if answer != 3:
        return failed("Ray loses results", REINSTALL)
    return notice(notices[0], "reinstall ray[tune]") if notices else ok(f"{ray.__version__} starts, works and ends")


def _three() -> int:
    return 3


@contextmanager
def _joined(address: str, code: dict[str, Any] | None) -> Iterator[_Ray]:
    try:
        _join(address, code)
        yield gone(), None
    finally:
        shut_down(SHUTDOWN_SECONDS)


def _join(address: str, code: dict[str, Any] | None) -> None:
    """Connect; `code` is the runtime environment that copies the study's modules to all nodes."""
    check_reachable(address)
    try:
        with warnings.catch_warnings(action="ignore"), signals_left_alone():
            ray.init(address=address, runtime_env=code, **_SETTINGS)
    except RuntimeEnvSetupError as error:
        raise StudyError(
            "modules beside a study file travel to all nodes, got some that can't "
            f"({str(error).strip().splitlines()[-1]}); move large files out of their packages"
        ) from error
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise StudyError(
            f"{setting('--address')} needs a running Ray cluster, got {address!r}, where no cluster answers; "
            f"start one with `ray start --head`, or leave {setting('--address')} out ({str(error).splitlines()[0]})"
        ) from error


def _cluster(study: Study, wanted: int | None) -> tuple[Machine, bool]:
    """The resources of the largest node, because a trial has to fit on one; of all nodes if a trial is spread over
    them. And whether an autoscaler starts nodes for the trials that are `wanted` at once.

    If nothing fits and it does, the result is what a trial requests: Ray doesn't say which nodes it may start.
    """
    resources = study.resources
    nodes, present = _nodes(resources), fitting(resources)
    grows = present < (wanted or 1) and autoscaling.would_grow(resources, present)
    if grows:
        _check_told(study, wanted, present)
    if not nodes and resources.accelerator is not None and not grows:
        alive = (node["Resources"] for node in ray.nodes() if node["Alive"])
        kinds = {name.removeprefix(ACCELERATOR) for node in alive for name in node if name.startswith(ACCELERATOR)}
        raise StudyError(
            "Resources(accelerator=...) needs a kind of GPU that the cluster has "
            f"({', '.join(sorted(kinds)) or 'none'}), got {resources.accelerator!r}; choose another, or leave it out"
        )
    of_all = sum if resources.placement == "spread" else max
    cpus, gpus = (math.ceil(amount) if grows else 0 for amount in (resources.cpu_count, resources.gpu_count))
    machine = Machine(
        cpus=max(cpus, int(of_all([0, *(node.get("CPU", 0) for node in nodes)]))),
        gpus=max(gpus, int(of_all([0, *(node.get("GPU", 0) for node in nodes)]))),
        memory_bytes=int(of_all([0, *(node.get("memory", 0) for node in nodes)])),
        processor=f"Ray cluster of {len(nodes)} node{'s' if len(nodes) != 1 else ''}",
    )
    return machine, grows


def _check_told(study: Study, wanted: int | None, present: int) -> None:
    """Raise StudyError where nodes have to be started, and the search doesn't say which and for how many trials."""
    where = "where Ray's autoscaler starts the nodes, a search needs to say"
    if wanted is None and not present:
        raise StudyError(
            f"{where} for how many trials at once, got no {setting('--concurrency')} and no node that has room for a "
            f"trial; add {setting('--concurrency', 'N')}"
        )
    if study.uses_gpu and study.resources.gpus is None and not any(node.get("GPU") for node in _nodes(study.resources)):
        raise StudyError(
            f"{where} whether a trial gets a GPU, got no Resources(gpus=...) and no node that has one; "
            "write gpus=1 in the study, or gpus=0 for trials without (`run` takes --gpus-per-trial, too)"
        )
