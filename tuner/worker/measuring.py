"""Measures the cost of trials on this machine, with as many processes as trials run at once: `tuner check --cost`.

Each is `python -m tuner.worker.measuring`: it reads the trial and what to measure, pickled, from its standard input,
and answers with a line of JSON when it is ready and one for each configuration. It ends when its input ends.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any

from tuner.errors import StudyError, TrialError, describe_error
from tuner.machine import python_environment
from tuner.orphans import end_with_the_input
from tuner.trial import Trial
from tuner.trial.speed import Speed
from tuner.worker.implementation import implementation_of

PROGRAM = "tuner.worker.measuring"


@dataclass(frozen=True)
class Measured:
    """The measured costs.

    Attributes:
        ready_seconds: until the processes had loaded what they need
        speeds: of each configuration, None if it isn't known
        problems: why these speeds aren't known
    """

    ready_seconds: float
    speeds: list[Speed | None]
    problems: list[str]


def measure_apart(
    trial: Trial,
    configs: Sequence[dict[str, Any]],
    *,
    epochs: int,
    split_seed: int,
    device: str,
    threads: int,
    processes: int,
    seconds: float,
    tell: Callable[[str], None] = lambda said: None,
) -> Measured:
    """The cost of trials of these configurations while `processes` of them train at once.

    Args:
        trial: whose configurations they are
        configs: one of each kind
        epochs: the budget's length of a trial
        split_seed: the study's seed
        device: "cpu" or "cuda"
        threads: number of threads of each process
        processes: number of processes that measure at once
        seconds: for each configuration, about
        tell: is told which configuration is measured, as `Implementation.cost_kind` calls it
    """
    from tuner.worker.pickling import pickle_trial

    task = {
        "trial": pickle_trial(trial),
        "configs": list(configs),
        "threads": threads,
        "options": {"epochs": epochs, "split_seed": split_seed, "device": device, "seconds": seconds},
    }
    kinds = [implementation_of(trial).cost_kind(trial, config) for config in configs]
    begun = time.perf_counter()
    with ExitStack() as stack:
        started = [stack.enter_context(_Process(task)) for _ in range(max(1, processes))]
        for process in started:
            process.answer()
        ready = time.perf_counter() - begun
        speeds: list[Speed | None] = []
        problems: list[str] = []
        for kind in kinds:
            tell(kind)
            answers = [process.answer() for process in started]
            found = [_speed(answer["speed"]) for answer in answers if answer.get("speed")]
            speeds.append(_mean(found) if len(found) == len(answers) else None)
            problems += [answer["problem"] for answer in answers if "problem" in answer][:1]
    return Measured(ready, speeds, problems)


class _Process:
    """A measuring process; it is ended with the block."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**python_environment(), "OMP_NUM_THREADS": str(task["threads"])},
            start_new_session=True,  # a terminal's Ctrl-C only goes to us; this process ends with us
        )
        assert self._popen.stdin is not None
        content = pickle.dumps(task)
        self._popen.stdin.write(len(content).to_bytes(8, "big") + content)
        self._popen.stdin.flush()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._popen.kill()
        self._popen.communicate()

    def answer(self) -> dict[str, Any]:
        """The next line; a problem if the process has died."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        return dict(json.loads(line)) if line else {"problem": "the process that measures it died, maybe of memory"}


def _speed(told: dict[str, Any]) -> Speed:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Speed(**plain)


def _mean(speeds: Sequence[Speed]) -> Speed:
    """The mean over several processes that measured the same at the same time."""
    first = speeds[0]
    length = min(len(each.epoch_seconds) for each in speeds)
    numbers = {
        field.name: fmean(getattr(each, field.name) for each in speeds)
        for field in fields(first)
        if field.type == "float"
    }
    whole = {"memory_bytes": max(each.memory_bytes for each in speeds)}
    lengths = tuple(fmean(each.epoch_seconds[index] for each in speeds) for index in range(length))
    return Speed(**{**asdict(first), **numbers, **whole, "epoch_seconds": lengths})


def main() -> None:
    """Do what standard input says."""
    content = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "big"))
    end_with_the_input()
    answers, sys.stdout = sys.stdout, sys.stderr  # what the user's code prints isn't an answer
    task = pickle.loads(content)
    trial: Trial = pickle.loads(task["trial"])
    implementation = implementation_of(trial)
    implementation.begin_measuring(task["threads"])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for config in task["configs"]:
        print(json.dumps(_answer(implementation, trial, config, task["options"])), file=answers, flush=True)


def _answer(implementation: Any, trial: Trial, config: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    try:
        found = implementation.speed(trial, config, **options)
    except (StudyError, TrialError) as error:
        return {"problem": str(error)}
    except Exception as error:  # an error of the user's code: its trials fail, too
        return {"problem": describe_error(error)}
    return {"speed": None if found is None else asdict(found)}


if __name__ == "__main__":
    main()
