from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tuner.train import compiling
from tuner.train.compiling import MEASURED_STEPS, WARM_UP_STEPS, Compilation, Forward

CPU = torch.device("cpu")
FIRST = WARM_UP_STEPS + MEASURED_STEPS


class Clock:
    """Steps take as long as the network that was used says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(compiling.time, "perf_counter", lambda: self.now)


class Network(nn.Module):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.clock.now += 1.0
        self.sizes.append(len(images))
        return images


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def steps(compilation: Compilation, count: int, *, ahead: int = 10_000, size: int = 4) -> None:
    for step in range(count):
        compilation.begin_step(ahead - step)(torch.zeros(size, 1))


def taking(clock: Clock, seconds: float) -> Callable[[nn.Module], Forward]:
    def compiled(module: nn.Module) -> Forward:
        def forward(images: Tensor) -> Tensor:
            clock.now += seconds
            return images

        return forward

    return compiled


def test_a_faster_network_is_kept_and_the_gain_told(clock: Clock) -> None:
    module = Network(clock)
    compilation = Compilation(module, CPU, batch_size=4, compiled=taking(clock, 0.5))
    steps(compilation, FIRST)
    assert not compilation.active
    steps(compilation, FIRST + 2)
    assert compilation.active
    assert compilation.note == "torch.compile makes a step 2.00 times as fast (1000.00 ms to 500.00 ms), and is on"
    before = len(module.sizes)
    steps(compilation, 5)
    assert len(module.sizes) == before


def test_a_slower_one_is_dropped(clock: Clock) -> None:
    module = Network(clock)
    compilation = Compilation(module, CPU, batch_size=4, compiled=taking(clock, 0.98))
    steps(compilation, 2 * FIRST + 2)
    assert not compilation.active
    assert (
        compilation.note == "torch.compile would make a step 1.02 times as fast (1000.00 ms to 980.00 ms), and is off"
    )


def test_short_trials_are_never_compiled(clock: Clock) -> None:
    compilation = Compilation(Network(clock), CPU, batch_size=4, compiled=taking(clock, 0.1))
    steps(compilation, 100, ahead=110)
    assert (compilation.active, compilation.note) == (False, None)


def test_nor_is_anything_on_the_cpu() -> None:
    compilation = Compilation(nn.Identity(), CPU, batch_size=4)
    steps(compilation, 100, ahead=10**9)
    assert (compilation.active, compilation.note) == (False, None)


def test_batches_of_another_size_go_through_the_plain_network(clock: Clock) -> None:
    module = Network(clock)
    compilation = Compilation(module, CPU, batch_size=4, compiled=taking(clock, 0.5))
    steps(compilation, 2 * FIRST + 2)
    steps(compilation, 1, size=3)
    assert module.sizes[-1] == 3


@pytest.mark.parametrize("when", ["building", "running"])
def test_a_compiler_that_fails_is_switched_off_with_a_line_of_notice(clock: Clock, when: str) -> None:
    def failing(module: nn.Module) -> Forward:
        if when == "building":
            raise RuntimeError("Failed to find a working triton installation\nand so on")

        def forward(images: Tensor) -> Tensor:
            raise RuntimeError("Failed to find a working triton installation\nand so on")

        return forward

    module = Network(clock)
    compilation = Compilation(module, CPU, batch_size=4, compiled=failing)
    steps(compilation, FIRST + 3)
    assert compilation.note == (
        "torch.compile failed and is off: RuntimeError: Failed to find a working triton installation"
    )
    assert len(module.sizes) == FIRST + 3


def test_memory_that_runs_out_is_left_to_the_step(clock: Clock) -> None:
    def starving(module: nn.Module) -> Forward:
        def forward(images: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory")

        return forward

    compilation = Compilation(Network(clock), CPU, batch_size=4, compiled=starving)
    with pytest.raises(torch.OutOfMemoryError):
        steps(compilation, FIRST + 1)


def test_a_really_compiled_network_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "PAYS_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(compiling, "LEAST_GAIN", 0.0)
    results = []
    for compiled in (None, lambda module: torch.compile(module, backend="aot_eager")):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        compilation = Compilation(module, CPU, batch_size=6, compiled=compiled)
        for step in range(2 * FIRST + 10):
            images = torch.rand(6, 5, generator=torch.Generator().manual_seed(step))
            loss = compilation.begin_step(100)(images).square().mean()
            module.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.sub_(0.1 * parameter.grad)  # type: ignore[operator]
        results.append(float(loss.detach()))
        assert compilation.active == (compiled is not None)
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def test_it_is_not_even_tried_where_this_machine_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_SWITCHED_OFF", "compile")
    module = nn.Linear(2, 2)
    compilation = Compilation(module, torch.device("cuda"), batch_size=4)
    assert all(compilation.begin_step(10**6) is module for _ in range(60))  # the first measurement would need a GPU
    assert compilation.note is None
