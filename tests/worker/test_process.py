import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from tuner.worker.process import clean_process


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


def test_torch_that_is_imported_inside_for_the_first_time_is_set_up_the_same() -> None:
    program = """
import sys
from tuner.worker.process import clean_process
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
from tuner.worker.process import clean_process
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
from tuner.worker.process import clean_process
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
