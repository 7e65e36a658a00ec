"""Ray: started for one search on this machine and reachable from it only, or joined where it runs already."""

from __future__ import annotations

import importlib
import logging
import math
import os
import secrets
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from typing import Any

import ray
from ray._private.parameter import RayParams

from tuner.errors import StudyError
from tuner.machine import Machine, this_machine
from tuner.resources import Resources
from tuner.study import Study

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 200 * 2**20  # trials exchange a few kilobytes; data and checkpoints go over the file system

# Read by Ray when it is imported or started. Values that the user set stay.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths in a user's function mean what they mean in the terminal
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "120",  # clean-up longer than this hangs a reused worker
    "TUNE_GLOBAL_CHECKPOINT_S": "300",  # Ray's snapshot is a by-product: the events are what a run resumes from
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "TUNE_WARN_THRESHOLD_S": "10",
}


@contextmanager
def connected(study: Study, address: str | None = None) -> Iterator[Resources]:
    """Ray for the length of the block; yields what one trial of the study gets.

    Without an address a cluster of this machine is started and ended again. Raises StudyError where nothing answers at
    the address, or where a trial of the study would never get what it asks for.
    """
    prepare_environment()
    preload = _preload(study)
    _connect(address)
    preload.join()
    _count_nothing()
    try:
        machine = _cluster(study.resources) if address else this_machine()
        study.check_machine(machine, where="the cluster" if address else "this machine")
        yield study.resources.resolve(gpus_present=machine.gpus, uses_gpu=study.uses_gpu)
    finally:
        ray.shutdown()


def _preload(study: Study) -> threading.Thread:
    """Import what the search will need while Ray starts, which is mostly waiting: about a second gained."""
    modules = ["tuner.driver.adapters", "tuner.worker.trainable", "tuner.driver.winner", *study.search.needs]

    def load() -> None:
        for module in modules:
            importlib.import_module(module)

    thread = threading.Thread(target=load, name="preload", daemon=True)
    thread.start()
    return thread


def prepare_environment() -> None:
    """Set what Ray reads from the environment; before it is started."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def concurrency(resources: Resources, limit: int | None) -> int:
    """How many trials the nodes of the connected cluster can hold at once, `limit` at most."""
    count = int(resources.devices) if resources.placement == "spread" else 1
    cpus, gpus = (resources.cpus or 1) / count, (resources.gpus or 0) / count
    fits = 0
    for node in ray.nodes():
        if node["Alive"]:
            on_cpus = math.floor(node["Resources"].get("CPU", 0) / cpus + 1e-9)
            fits += min(on_cpus, _on_gpus(node["Resources"].get("GPU", 0), gpus)) if gpus else on_cpus
    fits //= count
    return max(1, min(fits, limit) if limit else fits)


def _on_gpus(present: float, each: float) -> int:
    """A fraction of a GPU has to lie on one device: 0.4 fits twice on each, not five times on two."""
    return int(present * math.floor(1 / each + 1e-9)) if each <= 1 else int(present // each)


def _connect(address: str | None) -> None:
    _silence()
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if address is None:
            _start_local(settings)
            return
        try:
            ray.init(address=address, **settings)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise StudyError(
                f"--address needs a running Ray cluster, got {address!r}, where none answers; "
                f"start one with `ray start --head`, or leave --address out ({str(error).splitlines()[0]})"
            ) from error


def _start_local(settings: dict[str, Any]) -> None:
    """A cluster of this machine that no other machine can reach, with a token that lies in no file."""
    from ray._private import services

    machine = this_machine()
    services.get_node_ip_address = lambda *_, **__: LOOPBACK  # the only way to keep Ray's sockets off other interfaces
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with _no_spare_processes():
        ray.init(
            address="local",  # never a cluster that happens to run here, or that RAY_ADDRESS names
            num_cpus=machine.cpus,
            num_gpus=machine.gpus,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            _node_ip_address=LOOPBACK,
            **settings,
        )


@contextmanager
def _no_spare_processes() -> Iterator[None]:
    """A cluster for one search needs no autoscaler and no forwarding of logs: two processes fewer to wait for."""
    original = RayParams.__init__
    RayParams.__init__ = partialmethod(original, no_monitor=True, include_log_monitor=False)
    try:
        yield
    finally:
        RayParams.__init__ = original


def _cluster(resources: Resources) -> Machine:
    """The largest node of the connected cluster, as a trial has to fit on one; all together where it is spread."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    of_all = sum if resources.placement == "spread" else max
    return Machine(
        cpus=int(of_all([0, *(node.get("CPU", 0) for node in nodes)])),
        gpus=int(of_all([0, *(node.get("GPU", 0) for node in nodes)])),
        memory_bytes=int(of_all([0, *(node.get("memory", 0) for node in nodes)])),
        processor=f"Ray cluster of {len(nodes)} node{'s' if len(nodes) != 1 else ''}",
    )


def _count_nothing() -> None:
    """Ray imports wandb, half a second, to count callbacks for its usage statistics: not where these are off."""
    from ray.air._internal import usage

    if os.environ["RAY_USAGE_STATS_ENABLED"] == "0":
        usage.tag_callbacks = lambda callbacks: False


def _silence() -> None:
    """Ray says nothing on our terminal, where stdout is for results; what matters becomes an event."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None  # the raylet's messages, which no setting turns off
    for name in ("ray", "ray.tune", "ray.train", "ray.air", "ray.data", "ray._private", "ray._common"):
        logging.getLogger(name).setLevel(logging.ERROR)
