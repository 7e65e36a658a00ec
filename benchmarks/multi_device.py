"""The speed-up of a trial by several devices, and the cost of the ways to share the work.

    python benchmarks/multi_device.py [--devices 2] [--image-size 96] [--batch-size 64] [--quick]

A ResNet18 with random weights on 640 random images, fp32, SGD; on GPUs where there are as many as devices, else on
CPUs with one thread a process. Three tables: images a second by strategy beside one device, in turns, the median of the
rounds and of their ratios (a machine's speed drifts); peak memory of each GPU (only there); and the share of the time
in which the stages of a pipeline wait, beside the least that the schedule allows, (p - 1) / (m + p - 1) with p stages
and m micro-batches (Huang et al. 2019). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from ray import cloudpickle
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.multiprocessing.spawn import start_processes

from tuner import ImageClassifier
from tuner.machine.hardware import this_machine
from tuner.train import Trainer
from tuner.train.parallel.group import joined
from tuner.train.parallel.launching import Here, Ranks, Task
from tuner.train.parallel.pipeline import Pipeline
from tuner.train.parallel.pipeline.stage import Stage
from tuner.trial import STRATEGIES


def data() -> tuple[tuple[Tensor, Tensor], ...]:
    """Random images: what they show costs nothing."""
    generator = torch.Generator().manual_seed(0)
    counts = (640, 64, 64)
    return tuple(
        (torch.randint(0, 256, (count, 3, 32, 32), generator=generator).to(torch.uint8), torch.arange(count) % 10)
        for count in counts
    )


TRIAL = ImageClassifier(data, "resnet18", weights=None)
BASE = {"optimizer": "sgd", "lr": 0.01}
MICRO_BATCHES = (1, 2, 4, 8)


def of_processes(strategy: str | None, config: dict[str, Any], devices: list[str], epochs: int) -> dict[str, Any]:
    """Images a second with a process for each device, and seconds until the first epoch is done."""
    task = Task(
        cloudpickle.dumps((TRIAL, config)), (), epochs=epochs + 1, seed=0, split_seed=0, threads=1, strategy=strategy
    )
    begun = time.perf_counter()
    with Ranks(task, [Here(device) for device in devices]) as ranks:
        ranks.next_epoch()
        first = time.perf_counter() - begun
        told = [ranks.next_epoch().metrics for _ in range(epochs)]
    speed = statistics.median(float(metrics["images_per_second"]) for metrics in told)
    return {"images_per_second": speed, "first_epoch_seconds": first}


def of_one_process(strategy: str, config: dict[str, Any], devices: int, epochs: int) -> dict[str, Any]:
    """The same of one process for several GPUs, and the peak memory of each."""
    begun = time.perf_counter()
    for index in range(devices):
        torch.cuda.reset_peak_memory_stats(index)
    spread = STRATEGIES[strategy].load()(devices)
    trainer = Trainer(TRIAL, config, epochs=epochs + 1, device="cuda", strategy=spread)
    trainer.run_epoch()
    first = time.perf_counter() - begun
    speed = statistics.median(trainer.run_epoch().images_per_second for _ in range(epochs))
    peaks = [torch.cuda.max_memory_allocated(index) / 1e9 for index in range(devices)]
    return {"images_per_second": speed, "first_epoch_seconds": first, "peak_gb": peaks}


def throughput(config: dict[str, Any], devices: int, rounds: int, epochs: int) -> dict[str, dict[str, Any]]:
    """Medians over rounds in which every strategy has its turn; "times" one device's in the same round."""
    cuda = torch.cuda.device_count() >= devices
    several = [f"cuda:{index}" if cuda else "cpu" for index in range(devices)]
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        found.setdefault("one device", []).append(of_processes(None, config, several[:1], epochs))
        for name, strategy in STRATEGIES.items():
            if strategy.process_per_device:
                found.setdefault(name, []).append(of_processes(name, config, several, epochs))
            elif cuda:
                found.setdefault(name, []).append(of_one_process(name, config, devices, epochs))
    rows = {}
    for name, each in found.items():
        row = {**each[-1], **{key: statistics.median(one[key] for one in each) for key in each[0] if key != "peak_gb"}}
        pairs = zip(each, found["one device"], strict=True)
        ratios = [one["images_per_second"] / alone["images_per_second"] for one, alone in pairs]
        times = {"times": statistics.median(ratios), "least_times": min(ratios), "most_times": max(ratios)}
        rows[name] = {**row, "devices": 1 if name == "one device" else devices, **times}
    return rows


class Clock:
    """Adds up how long the device computes, from the first call of `take` on."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._goes = device, False
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of what is computed within the block."""
        if not self._goes:
            yield
        elif self._device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            yield
            end.record()
            self._events.append((begin, end))
        else:
            begun = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - begun

    def take(self) -> float:
        """Seconds of computing since the last call; 0 the first time."""
        self._goes = True
        if self._events:
            torch.cuda.synchronize(self._device)
            self._seconds += sum(begin.elapsed_time(end) for begin, end in self._events) / 1000
        seconds, self._seconds, self._events = self._seconds, 0.0, []
        return seconds


def timed(clock: Clock, owner: type, *names: str) -> None:
    """Let a clock run in these methods of a class."""

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def counted(*given: Any, **named: Any) -> Any:
            with clock.running():
                return method(*given, **named)

        return counted

    for name in names:
        setattr(owner, name, counting(getattr(owner, name)))


def idle_rank(rank: int, size: int, folder: str, config: dict[str, Any], steps: int) -> None:
    """One stage: how long it computed and took part, for each number of micro-batches."""
    torch.set_num_threads(1)
    device = f"cuda:{rank}" if torch.cuda.device_count() >= size else "cpu"
    if device != "cpu":
        torch.cuda.set_device(rank)
    seconds: list[list[tuple[float, float]]] = []  # of each number of micro-batches, of each step
    starts = []
    busy, whole = Clock(torch.device(device)), Clock(torch.device(device))
    timed(busy, PipelineStage, "forward_one_chunk", "backward_one_chunk")  # a stage computes in these, else it waits
    timed(whole, Stage, "train")
    with joined(rank, size, Path(folder) / "meeting", device) as group:
        for count in MICRO_BATCHES:
            pipeline = Pipeline(group)
            chosen = {**config, "pipeline_micro_batches": count}
            trainer = Trainer(TRIAL, chosen, epochs=1, device=device, strategy=pipeline)
            trainer.train(steps=2)  # connections and buffers are made in the first
            busy.take(), whole.take()
            seconds.append([])
            for _ in range(steps):
                trainer.train(steps=1)
                seconds[-1].append((busy.take(), whole.take()))
            starts.append(
                next(note for note in trainer.notes if "splits the model" in note)
                .partition("begin with ")[2]
                .partition(", a batch")[0]
            )
        every = group.gathered(seconds)
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps([every, starts]))


def idle(config: dict[str, Any], devices: int, steps: int) -> list[dict[str, Any]]:
    """Of each number of micro-batches: where stages begin, and the share of a step that each waits, their medians."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(idle_rank, (devices, folder, config, steps), nprocs=devices, start_method="spawn")
        every, starts = json.loads((Path(folder) / "found.json").read_text())
    found = []
    for count, begins, *stages in zip(MICRO_BATCHES, starts, *every, strict=True):
        longest = [max(whole for _, whole in step) for step in zip(*stages, strict=True)]
        idles = [
            statistics.median(1 - busy / whole for (busy, _), whole in zip(stage, longest, strict=True))
            for stage in stages
        ]
        bubble = (devices - 1) / (count + devices - 1)
        found.append({"micro_batches": count, "bubble": bubble, "idle": idles, "stages_begin_with": begins})
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="one short round: does it run?")
    options = parser.parse_args()
    config = {**BASE, "batch_size": options.batch_size, "image_size": options.image_size}
    rounds, epochs, steps = (1, 1, 2) if options.quick else (5, 1, 8)
    machine = this_machine()
    print(
        f"{machine.processor}, {machine.cpus} CPUs, {machine.gpus} GPUs, Python {platform.python_version()}, "
        f"torch {version('torch')}; batch {options.batch_size}, {options.image_size} pixels"
    )
    found = throughput(config, options.devices, rounds, epochs)
    print(f"{'':<12}{'devices':>8}{'images/s':>10}{'times':>7}{'from-to':>12}{'s to the first epoch':>22}", flush=True)
    for name, one in found.items():
        span = f"{one['least_times']:.2f}-{one['most_times']:.2f}"
        print(
            f"{name:<12}{one['devices']:>8}{one['images_per_second']:>10.0f}{one['times']:>7.2f}{span:>12}"
            f"{one['first_epoch_seconds']:>22.1f}"
        )
    for name, one in found.items():
        if "peak_gb" in one:
            print(f"{name:<12}peak memory in GB: {'  '.join(f'{peak:.2f}' for peak in one['peak_gb'])}")
    waits = idle(config, options.devices, steps)
    stages = "".join(f"{f'stage {index} idle':>15}" for index in range(options.devices))
    print(f"{'micro-batches':<15}{'bubble':>8}{stages}   stages begin with")
    for one in waits:
        shares = "".join(f"{share:>15.0%}" for share in one["idle"])
        print(f"{one['micro_batches']:<15}{one['bubble']:>8.0%}{shares}   {one['stages_begin_with']}")
    print(json.dumps({"ddp_ratio": found["ddp"]["times"], "throughput": found, "idle": waits}))


if __name__ == "__main__":
    sys.exit(main())
