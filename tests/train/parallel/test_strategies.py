"""The table of strategies for several devices, and the classes that it names."""

import pytest

from tuner.train.parallel.group import ALONE
from tuner.train.parallel.one_process import BalancedOneProcess, OneProcess
from tuner.train.parallel.pipeline import Pipeline
from tuner.train.parallel.strategy import Replicas, Strategy
from tuner.trial import STRATEGIES

CLASSES = {"ddp": Replicas, "pipeline": Pipeline, "dp": OneProcess, "balanced_dp": BalancedOneProcess}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_made_with_what_its_row_says(name: str) -> None:
    row = STRATEGIES[name]
    made = row.load()(ALONE if row.process_per_device else 3)
    assert type(made) is CLASSES[name]
    assert isinstance(made, Strategy)
    assert made.gpus == (1 if row.process_per_device else 3)
    assert getattr(made, "name", name) == name
