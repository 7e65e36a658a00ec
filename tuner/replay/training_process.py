"""A replay's training in its own process, set up like a worker, so that the caller's torch doesn't change."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import TunerError
from tuner.machine.child_process import started
from tuner.machine.hardware import python_environment
from tuner.replay.stays import Stay
from tuner.trial import Trial
from tuner.worker.placing import visible_gpus


class ReplayDied(TunerError):  # noqa: N818 -- what happened, as TrialLost
    """The process that trained a trial again was killed, by the trial's code or for memory."""


@dataclass(frozen=True)
class Task:
    """What the process trains: a trial with its stays, pickled, whose modules are imported from `import_path`."""

    pickled: bytes
    import_path: tuple[str, ...]
    folder: str


def trained_apart(trial: Trial, stays: Sequence[Stay], folder: str) -> Generator[dict[str, Any]]:
    """The reports of `train`, as they come; the process ends with this generator.

    What the trial prints goes to stderr. Raises ReplayDied if the process dies silently.
    """
    from tuner.worker.pickling import with_code_of_studies

    task = Task(with_code_of_studies((trial, tuple(stays))), tuple(sys.path), folder)
    process, reader = started("tuner.replay.training", env=_environment(stays), stdout=2)
    try:
        with open(reader, encoding="utf-8") as told:  # noqa: PTH123 -- a descriptor
            assert process.stdin is not None
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            for line in told:
                yield json.loads(line)
        if process.wait() != 0:
            limit = stays[0].assignment.hung_seconds if stays else None
            hung = "" if limit is None else f"; one without a report for {limit / 60:g} minutes hangs, and is killed"
            raise ReplayDied(f"a replay's process needs to end by itself, got exit code {process.returncode}{hung}")
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _environment(stays: Sequence[Stay]) -> dict[str, str]:
    """The environment of a worker: OpenMP reads its number of threads when it is loaded."""
    threads = max(1, int(stays[0].assignment.cpus)) if stays else 1
    gpus = visible_gpus(stays[0].assignment) if stays else {}
    return {**python_environment(), **gpus, "OMP_NUM_THREADS": str(threads), "PL_DISABLE_FORK": "1"}
