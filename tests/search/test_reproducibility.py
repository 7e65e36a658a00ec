import os
import subprocess
import sys

import pytest

from tests.search.each import EACH

PROGRAM = """
from tuner.search import {name}, Problem, Proposals
from tuner.space import Space, choice, qrandint, quniform

space = Space({{
    "lr": quniform(0, 1, 0.05),
    "kind": choice(["a", "b", None]),
    "deep": {{"n": qrandint(2, 10, 2).when(kind=["a", "b"])}},
}})
problem = Problem(space, seed=11, trials=30)
proposals = Proposals(problem, {name}().build(problem), starting_points=[{{"kind": "a"}}])
for number in range(30):
    config = proposals.suggest(number)
    print(config)
    proposals.observe(number, 1, -abs(config["lr"] - 0.3) + config.get("deep", {{}}).get("n", 0) / 50)
    proposals.end(number, "completed")
"""


def printed(code: str, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.mark.parametrize("name", sorted({type(one).__name__ for one in EACH}))
def test_the_same_seed_gives_the_same_sequence_in_any_process(name: str) -> None:
    first, second = (printed(PROGRAM.format(name=name), hash_seed) for hash_seed in ("1", "2"))
    assert len(first.splitlines()) == 30
    assert first == second


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = (
        "import sys, tuner.search, tuner.schedule; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'ray', 'torch', 'hyperopt', 'optuna', 'scipy', 'pandas'}))"
    )
    assert printed(code, "0") == "[]\n"
