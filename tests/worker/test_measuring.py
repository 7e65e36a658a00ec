"""Processes that measure trials; here of functions, whose speed isn't known before they run."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.trial import Trial
from tuner.worker.measuring import Measured, Measurers


def function(said: str) -> Trial:
    def trial(config: dict[str, Any]) -> None:
        print(said)

    return tuner.Study(said, trial=trial, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min").declared_trial


def measured(measurers: Measurers, said: str, *, threads: int = 1, device: str = "cpu") -> Measured:
    options: dict[str, Any] = {"epochs": 1, "split_seed": 0, "device": device, "threads": threads, "processes": 2}
    return measurers.measure(function(said), [{"x": 0.5}, {"x": 0.6}], seconds=0.1, **options)


def pids(measurers: Measurers) -> list[int]:
    return [process._popen.pid for process in measurers._processes]


def test_processes_measure_one_trial_after_another_and_new_ones_take_the_place_of_dead_ones() -> None:
    with Measurers() as measurers:
        first = measured(measurers, "first")
        assert (first.speeds, first.problems) == ([None, None], [])
        begun = pids(measurers)
        again = measured(measurers, "again")
        assert pids(measurers) == begun
        assert again.ready_seconds == first.ready_seconds > 0  # from their start

        os.kill(begun[0], signal.SIGKILL)
        assert measured(measurers, "killed").problems == ["the process that measures it died, maybe of memory"] * 2
        assert measured(measurers, "others").problems == []
        assert set(pids(measurers)).isdisjoint(begun)
        others = pids(measurers)
        assert measured(measurers, "wider", threads=2).problems == []
        assert set(pids(measurers)).isdisjoint(others)
        wider = measurers._processes
    assert all(process._popen.poll() is not None for process in wider)


def test_those_for_the_cpu_see_no_gpu_and_those_for_a_gpu_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with Measurers() as measurers:
        for device, sees in (("cpu", b"CUDA_VISIBLE_DEVICES=\0"), ("cuda", b"CUDA_VISIBLE_DEVICES=0\0")):
            measured(measurers, "asked", device=device)
            for pid in pids(measurers):
                assert sees in Path(f"/proc/{pid}/environ").read_bytes()


def test_it_ends_with_who_asked() -> None:
    with Measurers() as measurers:
        measured(measurers, "asked")
        process = measurers._processes[0]._popen
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 1
        process.stdin = None
