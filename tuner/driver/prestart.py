"""Workers that start together with Ray, and have imported what a trial needs when the first trials begin.

Ray on its own starts a worker when a trial needs one, and the worker imports what the trial needs when it gets it.
Found in Ray 2.60's source (`_private/services.py`, `_private/workers/default_worker.py`, `src/ray/raylet/main.cc`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from tuner.driver.patching import changed

IDLE_MILLISECONDS = "30000"  # with Ray's 1,000 a worker may be ended before its first trial gets its CPUs
_COUNT = "--num_prestart_python_workers="


@dataclass(frozen=True)
class Workers:
    """Worker processes that start together with Ray, not only when the first trial asks for them.

    Attributes:
        count: number of workers, which is the number of trials at once
        modules: each worker imports them as soon as it runs; if one can't be imported, the trial fails later
        cpus: of a trial; OpenMP reads its number of threads when it is loaded, here before the trial begins
    """

    count: int = 1
    modules: tuple[str, ...] = ()
    cpus: float = 1

    def environment(self) -> dict[str, str]:
        """The environment variables that the raylet reads, and its workers inherit."""
        return {
            "RAY_enable_worker_prestart": "1",
            "RAY_idle_worker_killing_time_threshold_ms": IDLE_MILLISECONDS,
            "RAY_preload_python_modules": ",".join(self.modules),
            "OMP_NUM_THREADS": str(max(1, int(self.cpus))),  # as Ray sets it when an actor starts
            "PL_DISABLE_FORK": "1",  # as Ray Tune sets it for every trial
        }

    def raylet_command(self, command: Sequence[str]) -> list[str]:
        """The raylet's command line, with this many workers at its start."""
        return [f"{_COUNT}{self.count}" if part.startswith(_COUNT) else part for part in command]


@contextmanager
def any_worker_taken() -> Iterator[None]:
    """Within the block Ray Tune's trials run in any worker of a Ray that this process has started.

    Tune would ask for workers with some of the driver's variables added to their environment, and so not for those that
    started with Ray. They have all of the driver's variables anyway, and Tune's own by `Workers.environment`.
    """
    from ray.tune.execution.class_cache import _ActorClassCache

    def get(cache: Any, trainable: type) -> Any:
        if trainable not in cache._cache:
            cache._cache[trainable] = ray.remote(trainable)
        return cache._cache[trainable]

    with changed(_ActorClassCache, "get", get):
        yield
