import ctypes
import math
import mmap
from collections.abc import Iterable

import pytest
import torch

from tests.train.pretend import GPU, pretending
from tuner.train.memory.watch import GrowthDetector, MemoryWatch

MB = 1e6


def rate(sizes: Iterable[float]) -> float | None:
    detector = GrowthDetector()
    for size in sizes:
        detector.add(size)
    return detector.rate()


def test_steady_growth_over_five_epochs_is_a_leak() -> None:
    sizes = [100 * MB, 300 * MB] + [300 * MB + epoch * 10 * MB for epoch in range(1, 7)]
    assert rate(sizes) == pytest.approx(10 * MB)
    assert rate(sizes[:-1]) is None


@pytest.mark.parametrize(
    "growth",
    [
        [0, 0, 0, 0, 0, 0, 0],
        [10, 10, 10, 0, 10, 10],  # it stood still once
        [10, 10, 10, -1, 10, 10],
        [200, 10, 8, 10, 9],  # a cache that filled
        [0.2, 0.2, 0.2, 0.2, 0.2, 0.2],  # too little to matter
        [50, 1, 1, 1, 1],
    ],
)
def test_caches_that_fill_and_noise_are_none(growth: list[float]) -> None:
    sizes = [500 * MB, 900 * MB]
    for step in growth:
        sizes.append(sizes[-1] + step * MB)
    assert rate(sizes) is None


def epochs(watch: MemoryWatch, count: int, *, leaking: bool) -> None:
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests freed would hide the growth
    kept = []
    weight = torch.rand(512, 512, requires_grad=True)
    for _ in range(count):
        watch.start_epoch()
        for _ in range(4):
            loss = (torch.rand(512, 512) @ weight).exp().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            if leaking:
                kept.append((weight * torch.rand(512, 512)).exp().sum())  # its graph holds 3 matrices of a megabyte
        watch.end_epoch()


def test_a_loop_that_keeps_losses_with_their_graphs_is_named() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    epochs(watch, 10, leaking=True)
    assert watch.leak is not None
    assert watch.leak.startswith("memory grows by ")
    assert "per epoch (seen in epochs 5 to 10); probably tensors are stored" in watch.leak


def test_a_loop_that_keeps_nothing_is_not() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    epochs(watch, 12, leaking=False)
    assert watch.leak is None


def test_the_peak_is_the_epochs_own_and_what_isnt_there_is_nan() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start_epoch()
    with mmap.mmap(-1, 100_000_000) as block:  # none that an earlier test freed
        block.write(b"1" * 100_000_000)
    first = watch.end_epoch()
    watch.start_epoch()
    second = watch.end_epoch()
    assert first.memory_peak_bytes - first.memory_bytes > 90 * MB
    assert second.memory_peak_bytes < first.memory_peak_bytes - 90 * MB
    assert math.isnan(first.device_utilisation)
    assert math.isnan(first.device_memory_bytes)


def test_the_peak_of_replayed_steps_is_that_of_the_epoch_that_recorded_them() -> None:
    watch = MemoryWatch(torch.device("cpu"))
    watch.start_epoch()
    with mmap.mmap(-1, 100_000_000) as block:
        block.write(b"1" * 100_000_000)
    recorded = watch.end_epoch()
    watch.start_epoch()
    assert watch.end_epoch(replayed=True).memory_peak_bytes == recorded.memory_peak_bytes
    watch.start_epoch()
    assert watch.end_epoch().memory_peak_bytes < recorded.memory_peak_bytes - 90 * MB


def test_of_a_gpu_what_torch_keeps_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretending() as gpu:
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * 2**30)
        watch = MemoryWatch(GPU)
        watch.start_epoch()
        assert watch.end_epoch().memory_reserved_bytes == 3 * 2**30
    assert not gpu.mixed
    assert math.isnan(MemoryWatch(torch.device("cpu")).end_epoch().memory_reserved_bytes)


def test_memory_of_a_gpu_that_cudnn_only_borrowed_for_its_search_is_not_a_trials_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks = [2768 * MB, 337 * MB]  # as an H200 reported: the search in the first epoch, then recorded steps
    with pretending():
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 472 * MB)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peaks.pop(0))
        watch = MemoryWatch(GPU)
        found = []
        for replayed in (False, True):
            watch.start_epoch()
            found.append(watch.end_epoch(replayed=replayed).memory_peak_bytes)
    assert found == [472 * MB, 472 * MB]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_watched_through_nvml() -> None:
    watch = MemoryWatch(torch.device("cuda", 0))
    watch.start_epoch()
    block = torch.rand(5000, 5000, device="cuda")
    for _ in range(200):
        block = (block @ block).tanh()
    torch.cuda.synchronize()
    usage = watch.end_epoch()
    assert usage.memory_peak_bytes >= 100 * MB
    assert usage.memory_reserved_bytes >= usage.memory_bytes
    assert 0 <= usage.device_utilisation <= 1
    assert usage.device_memory_bytes > usage.memory_bytes
