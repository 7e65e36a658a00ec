"""Rows of `gpu.py` that train without Ray: each trial by tuner's own `Trainer`, in one process or in some at once."""

from __future__ import annotations

import gc
import itertools
import math
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.gpu_record import TOLD, Figures, Sizes, pretended
from benchmarks.training import seconds_of
from tuner.machine.child_process import call_apart
from tuner.train import Trainer
from tuner.train.capture import EAGER, GRAPH
from tuner.trial import ImageClassifier

CLASSES = 10
SHARES = (10, 20)  # one image for validation, and one for the test, for so many of training
MIB = 2**20
PROFILED_STEPS, PROFILED_ROWS = 10, 12
LEAST_WARM = 6  # steps: three eager ones, the recording, and two more
TOGETHER_EPOCHS = 3  # while others train
CUDA = "cuda"

CONFIGS: dict[str, dict[str, Any]] = {
    "tf32 SGD": {"optimizer": "sgd", "momentum": 0.9},
    "bf16 AdamW, clipped": {"precision": "bf16", "optimizer": "adamw", "weight_decay": 0.01, "clip_norm": 1.0},
    "averaged weights": {"ema_decay": 0.99},
    "mixup": {"mixup": 0.2},
    "fp16, TrivialAugment": {"precision": "fp16", "auto_augment": "trivial"},
    "gradual": {"finetune": "gradual"},
}
KINDS: list[dict[str, Any]] = [{}, {"precision": "bf16"}, {"optimizer": "sgd"}, {"ema_decay": 0.9}]  # of 20 trials


# Trials


def made_trial(sizes: Sizes, count: int, pixels: int = 28, channels: int = 1) -> ImageClassifier:
    """A ResNet18 on so many training images that are made up: bytes, noise whose brightness is the class."""

    def images() -> tuple[Any, Any, Any]:
        make = partial(made_images, pixels=pixels, channels=channels, generator=torch.Generator().manual_seed(0))
        validation, test = (make(max(CLASSES, count // share)) for share in SHARES)
        return make(count), validation, test

    return ImageClassifier(images, network_of(sizes, channels), weights=None)


def network_of(sizes: Sizes, channels: int) -> Any:
    """The model of a trial: a ResNet18, or a small network if the GPU is pretended."""
    return partial(small_network, channels) if sizes.pretend else "resnet18"


def small_network(channels: int, config: dict[str, Any]) -> nn.Module:
    """Two convolutions, with all that a step on a GPU depends on: strides, batch norm, dropout."""

    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2), nn.BatchNorm2d(outputs), nn.ReLU())

    last = nn.Linear(8, CLASSES)
    return nn.Sequential(block(channels, 8), block(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def made_images(count: int, pixels: int, channels: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images [N, C, H, W] uint8 and labels [N] int64."""
    labels = torch.arange(count) % CLASSES
    noise = torch.randint(0, 160, (count, channels, pixels, pixels), dtype=torch.uint8, generator=generator)
    return noise.add_((9 * labels.to(torch.uint8))[:, None, None, None]), labels


def start(trial: ImageClassifier, path: str | None = None, epochs: int = 2, **config: Any) -> Trainer:
    """A trial on the GPU that takes its steps in one way."""
    return Trainer(trial, config, epochs=epochs, seed=0, split_seed=0, device=CUDA, step_path=path)


def losses_of(running: Trainer) -> list[float]:
    """Of training and validation, for each epoch that is left."""
    found = []
    while not running.finished:
        result = running.run_epoch()
        found += [result.train_loss, result.validation.loss if result.validation else math.nan]
    return found


def apart(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest difference relative to what was expected."""
    return max(abs(one - other) / abs(other) for one, other in zip(found, expected, strict=True))


def step_seconds(running: Trainer, sizes: Sizes) -> float:
    """Of the next steps of the epoch, after some that warm up; the first three are eager, then they are recorded."""
    running.train(sizes.warm)
    torch.cuda.synchronize()
    return seconds_of(lambda: running.train(sizes.steps), CUDA) / sizes.steps


def trained(trial: ImageClassifier, path: str, sizes: Sizes, **config: Any) -> Figures:
    """Two epochs of a trial, in the second of which steps are timed, and the memory that is left when it is closed."""
    running = start(trial, path, **config)
    begun = time.perf_counter()
    first = running.run_epoch()
    first_seconds = time.perf_counter() - begun
    seconds = step_seconds(running, sizes)
    begun = time.perf_counter()
    running.validate()
    validating = time.perf_counter() - begun
    second = running.run_epoch()
    validations = [result.validation.loss for result in (first, second) if result.validation]
    found = {
        "ms": 1000 * seconds,
        "images_per_second": config["batch_size"] / seconds,
        "first_epoch_seconds": first_seconds,
        "validation_seconds": validating,
        "losses": [first.train_loss, second.train_loss, *validations],
        "path": second.step_path,
        "allocated_mib": second.memory_peak_bytes / MIB,
        "reserved_mib": second.memory_reserved_bytes / MIB,
        "notes": list(running.notes),
    }
    running.close()
    del running
    return found | {"left_mib": left_mib()}


def left_mib() -> float:
    """What torch still holds of the GPU when nothing refers to a trial any more."""
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / MIB


def profile_of(running: Trainer) -> str:
    """The profiler's table of a few steps."""
    from torch.profiler import ProfilerActivity, profile

    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=kinds) as profiled:
        running.train(PROFILED_STEPS)
        torch.cuda.synchronize()
    by = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    return str(profiled.key_averages().table(sort_by=by, row_limit=PROFILED_ROWS, max_name_column_width=60))


# Rows of one trial at a time


def compare_ways(config: dict[str, Any], ways: tuple[str, ...], sizes: Sizes, figures: Figures) -> None:
    """One configuration trained in several ways, the first of which is what the others should equal."""
    trial = made_trial(sizes, sizes.few)
    for way in ways:
        figures[way] = trained(trial, way, sizes, batch_size=sizes.batch, **config)
    # Of training: those of validation, on few images, differ by a quarter between two runs of the same way.
    training = {way: figures[way]["losses"][:2] for way in ways}
    figures["losses_apart"] = max(apart(training[way], training[ways[0]]) for way in ways)
    figures["left_mib"] = max(figures[way]["left_mib"] for way in ways[1:])
    figures["other_way"] = sum(figures[way]["path"] != way for way in ways)
    figures[TOLD] = "; ".join(told_of(way, figures[way]) for way in ways) + (
        f"; losses {figures['losses_apart']:.1%} apart"
    )


def told_of(name: str, found: Figures) -> str:
    """Time and memory of one way."""
    taken = "" if found["path"] in name else f" (taken: {found['path']})"
    memory = ", ".join(f"{found[f'{kind}_mib']:,.0f} {kind}" for kind in ("allocated", "reserved", "left"))
    return f"{name}{taken} {found['ms']:.2f} ms (MiB: {memory})"


def measure_step(sizes: Sizes, figures: Figures) -> None:
    """A step at 28 pixels, with the default configuration and in bf16."""
    trial, more = made_trial(sizes, sizes.images), replace(sizes, steps=5 * sizes.steps)
    for precision, way in itertools.product(("tf32", "bf16"), (EAGER, GRAPH)):
        figures[f"{precision} {way}"] = trained(trial, way, more, batch_size=sizes.batch, precision=precision)
    figures["graph_ms"] = figures[f"tf32 {GRAPH}"]["ms"]
    names = [name for name in figures if name.startswith(("tf32", "bf16"))]
    figures[TOLD] = "; ".join(told_of(name, figures[name]) for name in names)
    running = start(trial, GRAPH, batch_size=sizes.batch)
    running.train(sizes.warm)
    figures["profile"] = profile_of(running)


def measure_photos(ways: tuple[str, ...], sizes: Sizes, figures: Figures) -> None:
    """Images a second of photos that lie on the GPU."""
    trial = made_trial(sizes, sizes.photos, sizes.large_pixels, channels=3)
    steps = replace(sizes, warm=LEAST_WARM, steps=min(sizes.steps, 9))  # of the 16 that an epoch has
    for way in ways:
        figures[way] = trained(trial, way, steps, batch_size=sizes.large_batch, precision="bf16")
    figures["images_per_second"] = max(figures[way]["images_per_second"] for way in ways)
    figures[TOLD] = "; ".join(
        f"{figures[way]['images_per_second']:,.0f} images/s, {told_of(way, figures[way])}" for way in ways
    )
    running = start(trial, ways[-1], batch_size=sizes.large_batch, precision="bf16")
    running.train(steps.warm)
    figures["profile"] = profile_of(running)


def fail_to_record(sizes: Sizes, figures: Figures) -> None:
    """A network that waits for the GPU can't be recorded; afterwards other trials train as before, and resume."""
    trial = made_trial(sizes, sizes.few)
    usual = partial(start, trial, batch_size=sizes.batch, dropout=0.2)
    before = losses_of(usual(EAGER))
    broken = usual(GRAPH)
    broken.module.register_forward_pre_hook(lambda module, inputs: float(inputs[0].sum()) and None)
    figures["broken"] = losses_of(broken)
    figures["broken_path"], figures["notes"] = broken.parts.stepping.path, list(broken.notes)
    broken.close()
    figures["after"] = apart(losses_of(usual(EAGER)), before)
    figures["graph_after"] = apart(losses_of(graph := usual(GRAPH)), before)
    figures["graph_after_path"] = graph.parts.stepping.path
    first = usual(EAGER)
    first.run_epoch()
    with tempfile.TemporaryDirectory() as folder:
        first.save(Path(folder))
        second = usual(EAGER)
        second.load(Path(folder))
    figures["resumed"] = apart(losses_of(second), before[2:])
    figures["losses_apart"] = max(figures[name] for name in ("after", "graph_after", "resumed"))
    figures[TOLD] = (
        f"the trial went on {figures['broken_path']}; afterwards losses of dropout in eager mode are "
        f"{figures['after']:.1%} apart, by a graph {figures['graph_after']:.1%} ({figures['graph_after_path']}), "
        f"of a resumed trial {figures['resumed']:.1%}"
    )


def run_out_of_memory(sizes: Sizes, figures: Figures) -> None:
    """Half of the memory that a trial takes: the graph is given up, and batches go through in parts."""
    trial = made_trial(sizes, sizes.few // 4, 2 * 28)
    config = {"batch_size": 4 * sizes.batch, "optimizer": "sgd", "lr": 1e-3}
    whole = start(trial, GRAPH, **config)
    expected = losses_of(whole)
    peak = whole.parts.watch.end_epoch().memory_reserved_bytes
    whole.close()
    del whole
    left_mib()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(0.99, max(0.001, peak / 2 / total)))
    try:
        limited = start(trial, GRAPH, **config)
        results = [limited.run_epoch() for _ in range(2)]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    last = results[-1]
    found = [loss for one in results for loss in (one.train_loss, one.validation.loss if one.validation else math.nan)]
    figures |= {"micro_batch": last.micro_batch_size, "repeated_steps": last.oom_retries, "path": last.step_path}
    figures |= {"unlimited_mib": peak / MIB, "limited_mib": last.memory_reserved_bytes / MIB}
    figures |= {"found": found, "expected": expected, "notes": list(limited.notes)}
    figures["losses_apart"] = apart(found[::2], expected[::2])  # of training
    figures[TOLD] = (
        f"with half of {figures['unlimited_mib']:,.0f} MiB: batches of {config['batch_size']} in parts of "
        f"{last.micro_batch_size} ({last.batch_norm}), {last.oom_retries} steps repeated, then {last.step_path}; "
        f"losses {figures['losses_apart']:.1%} apart"
    )


def repeat_trials(sizes: Sizes, figures: Figures) -> None:
    """Trials of four kinds, one after another in one process; the memory that is used of the GPU after each."""
    trial, used = made_trial(sizes, sizes.few // 4), []
    for number in range(sizes.repeats):
        config = KINDS[number % len(KINDS)] | {"batch_size": sizes.batch // (1 + number % 2)}
        running = start(trial, GRAPH, 1, **config)
        running.run_epoch()
        running.close()
        del running
        left_mib()
        free, total = torch.cuda.mem_get_info()
        used.append((total - free) / MIB)
    figures |= {"used_mib": used, "growth": used[-1] / used[1]}
    figures[TOLD] = f"{used[1]:,.0f} MiB used after 2 trials, {used[-1]:,.0f} after {len(used)}"


# Trials at once


def pack_processes(sizes: Sizes, figures: Figures) -> None:
    """Images a second of several processes that train the same at once; with MPS too, where it is installed."""
    for mps in (False, True):
        with serving(mps) as there:
            if there:
                pack_in_turn(sizes, figures, " with MPS" if mps else "")
    figures[TOLD] = f"images/s: {', '.join(f'{name} {rate:,.0f}' for name, rate in figures.items())}"


def pack_in_turn(sizes: Sizes, figures: Figures, suffix: str) -> None:
    """Each number of processes."""
    for number in sizes.processes:
        figures[f"{number} at once{suffix}"] = rate_together(number, sizes)


def rate_together(number: int, sizes: Sizes) -> float:
    """Images a second of all processes; they begin together, and the slowest one counts."""
    together = multiprocessing.get_context("fork").Barrier(number, timeout=60)
    with ThreadPoolExecutor(number) as threads:
        answers = [threads.submit(call_apart, partial(train_together, sizes, together), 90) for _ in range(number)]
        seconds: list[float] = [answer.result() for answer in answers]
    return number * TOGETHER_EPOCHS * sizes.images / max(seconds)


def train_together(sizes: Sizes, together: Any) -> float:
    """Seconds of one of the processes, which are copies of one that has never used the GPU."""
    torch.set_num_threads(1)
    with pretended(sizes):  # what is pretended belongs to a thread
        running = start(made_trial(sizes, sizes.images), GRAPH, 1 + TOGETHER_EPOCHS, batch_size=sizes.batch)
        running.run_epoch()
        together.wait()
        return float(seconds_of(lambda: losses_of(running), CUDA))


@contextmanager
def serving(mps: bool) -> Iterator[bool]:
    """Within it NVIDIA's MPS serves new processes, or nothing does; False where there is none."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not mps or control is None:
        yield not mps
        return
    names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= dict.fromkeys(names, folder)
        subprocess.run([control, "-d"], check=True, timeout=20)
        try:
            yield True
        finally:
            subprocess.run([control], input="quit\n", text=True, check=False, timeout=20)
            for name in names:
                del os.environ[name]


# Photos from files


def stream_photos(sizes: Sizes, figures: Figures) -> None:
    """JPEGs that memory doesn't hold: images a second of the loader alone and of training, by the trial's threads."""
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), sizes.photos, sizes.large_pixels)
        held = start(made_trial(sizes, sizes.photos // 4, sizes.large_pixels, 3), GRAPH, **photo_config(sizes))
        figures["GPU alone"] = rate_of(held, sizes)
        held.close()
        for threads in (1, os.cpu_count() or 1):
            torch.set_num_threads(threads)
            trial = ImageClassifier(f"folder:{folder}", network_of(sizes, 3), weights=None, data_memory_gb=1e-6)
            running = start(trial, GRAPH, **photo_config(sizes))
            figures[f"loader, {threads} threads"] = loading_rate(running, sizes)
            figures[f"training, {threads} threads"] = rate_of(running, sizes)
            figures["split"] = type(running.splits.train).__name__
            running.close()
    rates = [f"{name} {rate:,.0f}" for name, rate in figures.items() if isinstance(rate, float)]
    figures["limit"] = min(("GPU alone", f"loader, {threads} threads"), key=figures.__getitem__)
    figures[TOLD] = f"{'; '.join(rates)} images/s ({figures['split']}); the limit is: {figures['limit']}"


def photo_config(sizes: Sizes) -> dict[str, Any]:
    """A quarter of the images that lie on the GPU make a step, so that an epoch has enough of them."""
    return {"batch_size": sizes.large_batch // 4, "image_size": sizes.large_pixels, "precision": "bf16"}


def rate_of(running: Trainer, sizes: Sizes) -> float:
    """Images a second of training, after a few steps."""
    running.train(LEAST_WARM)
    torch.cuda.synchronize()
    steps = min(len(running.batches(0)) - running.step, sizes.steps)
    return float(steps * running.parts.chosen["batch_size"] / seconds_of(lambda: running.train(steps), CUDA))


def loading_rate(running: Trainer, sizes: Sizes) -> float:
    """Images a second that the trial's processes decode; their start isn't counted."""
    chosen = running.batches(0)[: sizes.steps]
    batches = running.splits.train.batches(chosen, "cpu")
    next(batches)
    begun = time.perf_counter()
    count = sum(len(labels) for _, labels in batches)
    return count / (time.perf_counter() - begun)


def write_photos(folder: Path, count: int, pixels: int) -> None:
    """JPEGs of soft shapes and a little noise, a folder for each class."""
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir()
    tasks: list[tuple[Path, int, int]] = [
        (folder / f"class{number % CLASSES}" / f"{number}.jpg", number, pixels) for number in range(count)
    ]
    with multiprocessing.get_context("fork").Pool() as processes:
        processes.starmap(write_photo, tasks, chunksize=16)


def write_photo(path: Path, seed: int, pixels: int) -> None:
    """One of them, an eighth larger than the network takes it."""
    generator, edge = np.random.default_rng(seed), pixels * 9 // 8
    shapes = Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((edge, edge))
    noise = generator.integers(-8, 9, (edge, edge, 3))
    Image.fromarray((np.asarray(shapes) + noise).clip(0, 255).astype(np.uint8)).save(path, quality=88)


Measure = Callable[[Sizes, Figures], None]


def ways_of(config: str, *ways: str) -> Measure:
    """The measurement of a configuration of `CONFIGS`."""
    return partial(compare_ways, CONFIGS[config], ways)
