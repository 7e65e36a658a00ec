"""Ray Tune without what a search does itself, and with workers that it wouldn't take or whose end it doesn't expect."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from tuner.driver.patching import changed
from tuner.driver.ray_inside.names import patched

GCS_SECONDS = 10  # timeout of calls to the GCS server that can't be interrupted


@contextmanager
def tune_subdued() -> Iterator[None]:
    """Ray Tune handles no signals, and doesn't import wandb (half a second) only to count its callbacks.

    Nor does it wait, without a way to interrupt it, for a dead GCS server: to read a value, or when garbage collection
    returns its placement groups, which end with the connection anyway.
    """
    counts = os.environ["RAY_USAGE_STATS_ENABLED"] != "0"
    with (
        changed(logging.getLogger("ray.tune.tune"), "disabled", True),  # it reports lost workers though trials go on
        changed(
            logging.getLogger("ray.train._internal.storage"), "disabled", True
        ),  # tuner reports store errors itself
        patched("no_signals", lambda _: threading.Event),
        patched("groups_left", lambda _: lambda manager: None),
        patched("impatient_client", _Impatient),
        nullcontext() if counts else patched("callbacks_uncounted", lambda _: lambda callbacks: False),
    ):
        yield


class _Impatient:
    """A client of the GCS server whose reading and writing of values raises after `GCS_SECONDS` without an answer."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return partial(method, timeout=GCS_SECONDS) if name.startswith("internal_kv_") else method


def any_worker_taken() -> AbstractContextManager[None]:
    """Within the block Ray Tune's trials run in any worker of a Ray that this process has started.

    Tune would ask for workers with some of the driver's variables added to their environment, and so not for those that
    started with Ray. They have all of the driver's variables anyway, and Tune's own by `Workers.environment`.
    """

    def get(cache: Any, trainable: type) -> Any:
        if trainable not in cache._cache:
            cache._cache[trainable] = ray.remote(trainable)
        return cache._cache[trainable]

    return patched("any_worker", lambda _: get)


class KilledForMemoryError(RayActorError):  # type: ignore[misc]
    """The worker of a trial was killed by Ray's memory monitor, because the machine ran low on memory."""

    def __init__(self, error: OutOfMemoryError) -> None:
        use = re.search(r"was (\S+) used / (\S+) limit", str(error))
        amounts = f" ({use[1]} used of {use[2]})" if use else ""
        super().__init__(error_msg=f"its worker was killed because the machine ran low on memory{amounts}")


def memory_kills_survived() -> AbstractContextManager[None]:
    """Within the block Ray Tune treats a worker killed for memory like one that died: it costs its trial an attempt.

    Ray's memory monitor ends a worker with `OutOfMemoryError`, which is neither of the two kinds of error that Ray
    Tune's actor manager expects (2.60): there it raises RuntimeError, and one trial ends the whole search.
    """
    return patched("memory_kills", _with_kills)


def _with_kills(original: Callable[..., None]) -> Callable[..., None]:
    def task_failed(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
        died = KilledForMemoryError(exception) if isinstance(exception, OutOfMemoryError) else exception
        original(manager, tracked_actor_task=tracked_actor_task, exception=died)

    return task_failed
