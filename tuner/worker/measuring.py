"""Measures on this machine: the cost of trials (`tuner check --cost`), and that of networks that answer (`limits`).

Trials are measured with as many processes as train at once.

Each is `python -m tuner.worker.measuring`: it reads trials and what to measure, pickled, from its standard input, and
for each it answers with a line of JSON when it is ready and one for each configuration. It ends when its input ends.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from queue import SimpleQueue
from statistics import fmean
from typing import Any, Self

from tuner.errors import StudyError, TrialError, describe_error, shown
from tuner.machine.hardware import NO_GPUS, python_environment
from tuner.trial import Trial
from tuner.trial.inference_cost import InferenceCost, Latency, cost_of_record
from tuner.trial.speed import Speed
from tuner.worker.implementation import implementation_of

PROGRAM = "tuner.worker.measuring"
SIZE_BYTES = 8  # the size of a task, before it


@dataclass(frozen=True)
class Measured:
    """The measured costs.

    Attributes:
        ready_seconds: until the processes had loaded what they need, from their start
        speeds: of each configuration, None if it isn't known
        problems: why these speeds aren't known
    """

    ready_seconds: float
    speeds: list[Speed | None]
    problems: list[str]


class Measurers:
    """Processes that measure one trial after another; they end with the block."""

    def __init__(self) -> None:
        self._processes: list[_Process] = []
        self._ready_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end()

    def measure(
        self,
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
        options = {"epochs": epochs, "split_seed": split_seed, "device": device, "seconds": seconds}
        kinds = [implementation_of(trial).cost_kind(trial, config) for config in configs]
        at_once = self._at_once(max(1, processes), threads, device)
        self._give(at_once, _task(trial, configs, threads, "speed", options))
        speeds: list[Speed | None] = []
        problems: list[str] = []
        for kind in kinds:
            tell(kind)
            answers = [process.answer() for process in at_once]
            found = [_speed(answer["found"]) for answer in answers if answer.get("found")]
            speeds.append(_mean(found) if len(found) == len(answers) else None)
            problems += [answer["problem"] for answer in answers if "problem" in answer][:1]
        return Measured(self._ready_seconds, speeds, problems)

    def inference_costs(
        self, trial: Trial, configs: Sequence[dict[str, Any]], latency: Latency, *, often: bool
    ) -> Iterator[InferenceCost]:
        """What the networks of these configurations cost, one after another; `often`: see `Implementation`.

        Raises StudyError if that can't be measured.
        """
        at_once, options = self._at_once(1, latency.threads, latency.device), {"latency": latency, "often": often}
        self._give(at_once, _task(trial, configs, latency.threads, "inference_cost", options))
        for config in configs:
            answer = at_once[0].answer()
            if not answer.get("found"):
                why = answer.get("problem", "nothing is known of it")
                raise StudyError(
                    f"each network of the space needs to be measured, got {why} for {shown(config)}; leave it out of "
                    "the space, or free some memory"
                )
            yield cost_of_record(answer["found"])

    def _give(self, at_once: Sequence[_Process], task: dict[str, Any]) -> None:
        """Have all of them do a task, and wait until they are ready."""
        for process in at_once:
            process.give(task)
        for process in at_once:
            process.answer()
        self._ready_seconds = max(self._ready_seconds, *(process.seconds_to_ready for process in at_once))

    def _at_once(self, count: int, threads: int, device: str) -> list[_Process]:
        """Those that run already, if they are as many, as wide and on the same device; else new ones."""
        if len(self._processes) != count or not all(each.goes_on_with(threads, device) for each in self._processes):
            for process in self._processes:
                process.end()
            self._processes = []  # if one of the new ones can't be started, the others are ended all the same
            while len(self._processes) < count:
                self._processes.append(_Process(threads, device))
        return self._processes


class _Process:
    """A measuring process. `seconds_to_ready` is how long it took from its start to its first answer."""

    def __init__(self, threads: int, device: str) -> None:
        self._for, self._alive = (threads, device), True
        self._begun, self.seconds_to_ready = time.perf_counter(), 0.0
        self._popen = subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**python_environment(), "OMP_NUM_THREADS": str(threads), **(NO_GPUS if device == "cpu" else {})},
            start_new_session=True,  # a terminal's Ctrl-C only goes to us; this process ends with us
        )

    def goes_on_with(self, threads: int, device: str) -> bool:
        """Whether it can measure something else."""
        return self._alive and self._for == (threads, device)

    def end(self) -> None:
        """End it, whatever it does."""
        self._popen.kill()
        with suppress(OSError):  # what it wasn't given
            self._popen.communicate()

    def give(self, task: dict[str, Any]) -> None:
        """Have it measure something after all else that it was given."""
        assert self._popen.stdin is not None
        content = pickle.dumps(task)
        with suppress(BrokenPipeError):  # it has died: its answer says so
            self._popen.stdin.write(len(content).to_bytes(SIZE_BYTES, "big") + content)
            self._popen.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next line; a problem if the process has died."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        self._alive = self._alive and bool(line)
        self.seconds_to_ready = self.seconds_to_ready or time.perf_counter() - self._begun
        return dict(json.loads(line)) if line else {"problem": "the process that measures it died, maybe of memory"}


def _task(
    trial: Trial, configs: Sequence[dict[str, Any]], threads: int, what: str, options: dict[str, Any]
) -> dict[str, Any]:
    """What a process is to measure: `what` is a method of `Implementation`, with these options."""
    from tuner.worker.pickling import pickle_trial

    told = {"trial": pickle_trial(trial), "configs": list(configs), "threads": threads}
    return told | {"what": what, "options": options}


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
    """Do what standard input says, until it ends."""
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    answers, sys.stdout = sys.stdout, sys.stderr  # what the user's code prints isn't an answer
    while True:
        task = pickle.loads(tasks.get())
        trial: Trial = pickle.loads(task["trial"])
        implementation = implementation_of(trial)
        implementation.prepare(task["threads"])
        print(json.dumps({"ready": True}), file=answers, flush=True)
        for config in task["configs"]:
            found = _answer(partial(getattr(implementation, task["what"]), trial, config, **task["options"]))
            print(json.dumps(found), file=answers, flush=True)


def _read(tasks: SimpleQueue[bytes]) -> None:
    """Read what is to be done; when the input ends, nobody waits for an answer any more."""
    while size := sys.stdin.buffer.read(SIZE_BYTES):
        tasks.put(sys.stdin.buffer.read(int.from_bytes(size, "big")))
    os._exit(1)


def _answer(measure: Callable[[], Any]) -> dict[str, Any]:
    try:
        found = measure()
    except (StudyError, TrialError) as error:
        return {"problem": str(error)}
    except Exception as error:  # an error of the user's code: its trials fail, too
        return {"problem": describe_error(error)}
    return {"found": None if found is None else asdict(found)}


if __name__ == "__main__":
    main()
