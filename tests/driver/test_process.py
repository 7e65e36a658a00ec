import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from tuner.driver.process import clean_process


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
from tuner.driver.process import clean_process
assert "torch" not in sys.modules
for _ in range(2):
    with clean_process(seed=7, threads=1):
        import torch
        print(float(torch.rand(())), torch.get_num_threads())
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    first, second = output.splitlines()
    assert first == second
