"""What a step launches, against the plain loop."""

from pathlib import Path

import pytest
import torch

from benchmarks.plain_loop import write_subset
from benchmarks.training import Rows, measure_operators
from tuner.train.models import random_network


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    write_subset(None, tmp_path, train=200, test=10)
    weights = random_network("resnet18", channels=3, classes=1000, seed=0).module.state_dict()
    torch.save(weights, tmp_path / "weights.pt")
    found = Rows()
    measure_operators(found, tmp_path, tmp_path / "weights.pt", "cpu")
    return found


def test_a_step_launches_at_most_a_twentieth_more_operators_than_the_plain_loop(rows: Rows) -> None:
    assert 0.9 < rows.figures["operators_ratio"] <= 1.05
