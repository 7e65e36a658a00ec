import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tuner.worker.clean_process import clean_process


def test_what_a_trial_changed_is_put_back(tmp_path: Path) -> None:
    before = (dict(os.environ), Path.cwd(), list(sys.path))
    with clean_process(seed=0, threads=1):
        os.environ["LEAK"] = "yes"
        os.environ.pop("PATH")
        os.chdir(tmp_path)
        sys.path.append("leak")
    assert (dict(os.environ), Path.cwd(), list(sys.path)) == before


def test_it_is_put_back_after_an_exception_too() -> None:
    try:
        with clean_process(seed=0, threads=1):
            os.environ["LEAK"] = "yes"
            raise RuntimeError
    except RuntimeError:
        pass
    assert "LEAK" not in os.environ


def test_random_states_come_from_the_seed_whatever_was_drawn_before() -> None:
    def draw() -> tuple[float, float, float]:
        with clean_process(seed=7, threads=1):
            return random.random(), float(np.random.rand()), float(torch.rand(()))

    first = draw()
    random.random(), np.random.rand(5), torch.rand(9)
    assert draw() == first


def test_torch_is_as_in_a_new_process() -> None:
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    with clean_process(seed=0, threads=1):
        assert torch.get_num_threads() == 1
        assert torch.get_default_dtype() == torch.float32
        assert torch.is_grad_enabled()


@pytest.mark.slow
def test_torch_that_is_imported_inside_for_the_first_time_is_set_up_the_same() -> None:
    program = """
import sys
from collections.abc import Callable
from tuner.worker.clean_process import clean_process
assert "torch" not in sys.modules
for _ in range(2):
    with clean_process(seed=7, threads=1):
        import torch
        print(float(torch.rand(())), torch.get_num_threads())
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    first, second = output.splitlines()
    assert first == second
    assert first.endswith(" 1")


def test_torch_that_was_only_looked_for_is_set_up_when_it_is_imported() -> None:
    """Libraries ask `find_spec("torch")` whether they may use it."""
    program = """
import importlib.util, sys
from tuner.worker.clean_process import clean_process
for _ in range(2):
    with clean_process(seed=7, threads=1):
        assert importlib.util.find_spec("torch") is not None
        import torch
        print(float(torch.rand(())), torch.get_num_threads())
assert not any("tuner" in type(finder).__module__ for finder in sys.meta_path)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = result.stdout.splitlines()
    assert first == second
    assert first.endswith(" 1")


def test_a_block_that_never_imports_torch_loads_none_and_leaves_no_hook() -> None:
    program = """
import sys
from collections.abc import Callable
from tuner.worker.clean_process import clean_process
before = list(sys.meta_path)
with clean_process(seed=7, threads=1):
    import json
print("torch" in sys.modules, sys.meta_path == before)
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "False True\n"


def test_what_a_trial_set_in_torch_is_gone_in_the_next_one() -> None:
    def settings() -> tuple[object, ...]:
        return (
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
        )

    with clean_process(seed=0, threads=1):
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = True
    with clean_process(seed=0, threads=1):
        assert settings() == (1, torch.float32, torch.device("cpu"), True, False, "highest", False, False)


def test_blocks_of_the_same_seed_draw_the_same_and_others_differ() -> None:
    def draw(seed: int) -> tuple[float, float, float]:
        with clean_process(seed=seed, threads=1):
            return random.random(), float(np.random.rand()), float(torch.rand(()))

    assert draw(2**32 - 1) == draw(2**32 - 1)
    assert len({value for seed in (1, 2) for value in draw(seed)}) == 6


@pytest.mark.parametrize(
    ("share", "gib", "expected"), [(0.5, 80, 0.5 - 600 / 1024 / 80), (0.25, 8, 0.25 - 600 / 1024 / 8), (0.1, 8, 0.05)]
)
def test_a_trial_on_a_part_of_a_gpu_has_no_more_than_its_part(
    monkeypatch: pytest.MonkeyPatch, share: float, gib: int, expected: float
) -> None:
    """On a stand-in for the card, as CUDA initialises itself inside the trial."""
    capped: list[tuple[float, int]] = []
    queued: list[tuple[Callable[[], None], list[str]]] = []
    monkeypatch.setattr(torch.cuda, "_queued_calls", queued)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=gib * 2**30))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda most, device: capped.append((most, device))
    )
    with clean_process(seed=0, threads=1, gpu_share=share):
        assert capped == []
        for call, _ in queued:
            call()
    assert capped == [(pytest.approx(expected), 0)]


def test_a_worker_is_given_its_whole_gpu_back_and_the_cpu_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    capped: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 * 2**30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda most, device: capped.append(most))
    for share in (0.5, 1.0, 0.0, 2.0):
        with clean_process(seed=0, threads=1, gpu_share=share):
            pass
    assert capped == [pytest.approx(0.5, abs=0.01), 1.0, 1.0]
