"""A worker that Ray kills because the machine runs low on memory costs its trial an attempt, not the search.

Ray's memory monitor ends a worker with `OutOfMemoryError`, which is neither of the two kinds of error that Ray Tune's
actor manager expects (2.60): there it raises RuntimeError, and one trial ends the whole search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError


class KilledForMemoryError(RayActorError):  # type: ignore[misc]
    """The worker of a trial was killed by Ray's memory monitor."""

    def __init__(self, error: OutOfMemoryError) -> None:
        use = re.search(r"was (\S+) used / (\S+) limit", str(error))
        amounts = f" ({use[1]} used of {use[2]})" if use else ""
        super().__init__(error_msg=f"its worker was killed because the machine ran low on memory{amounts}")


@contextmanager
def memory_kills_survived() -> Iterator[None]:
    """Within the block Ray Tune treats a worker killed for memory like one that died."""
    original = RayActorManager._actor_task_failed

    def task_failed(self: RayActorManager, tracked_actor_task: Any, exception: Exception) -> None:
        died = KilledForMemoryError(exception) if isinstance(exception, OutOfMemoryError) else exception
        original(self, tracked_actor_task=tracked_actor_task, exception=died)

    RayActorManager._actor_task_failed = task_failed
    try:
        yield
    finally:
        RayActorManager._actor_task_failed = original
