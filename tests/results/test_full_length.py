"""Values of trials of different lengths, brought to one length."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.results.simulated import simulated
from tuner import ASHA, Budget, NoEarlyStopping, Random, Run, uniform
from tuner.history.records import RunRecord
from tuner.results.full_length import outcomes_at_full_length
from tuner.space import Space

SPACE = {"lr": uniform(0, 1), "idle": uniform(0, 1)}


def rising(config: dict[str, Any], epoch: int) -> float:
    """Trials gain much by training: after 27 epochs 0.9 of what they have at most."""
    return float((0.5 + 0.4 * config["lr"]) * (1 - 0.1 ** (epoch / 27)))


def run_of(folder: Path, **changes: Any) -> Run:
    settings = {"space": SPACE, "curve": rising, "mode": "max", "search": Random()}
    found = simulated(
        folder, **{**settings, "scheduler": ASHA(), "budget": Budget(trials=40, max_epochs=27), **changes}
    )
    found.info |= {"budget": {"max_epochs": 27}, "rungs": [3, 9]}
    return found


def test_stopped_trials_are_told_by_what_they_would_have_reached(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    found = run.full_outcomes
    truth = np.array([rising(config, 27) for config in found.configs])
    raw = np.array([one.value for one in run.record.reported()])
    short = np.array(found.predicted)
    assert short.sum() > 20
    assert np.abs(np.array(found.values) - truth)[short].mean() < 0.3 * np.abs(raw - truth)[short].mean()
    assert np.array(found.values)[~short] == pytest.approx(raw[~short])


def test_importance_is_of_full_trials_and_not_of_who_was_stopped(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert run.importances[0].name == "lr"
    assert run.importances[0].share > 0.7


def values_of(run: Run) -> list[float]:
    """The value by which each trial ranks."""
    return [one.value for one in run.record.reported()]


def test_no_prediction_is_better_than_the_best_or_worse_than_what_was_reached(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    found = run.full_outcomes
    reached = np.minimum(values_of(run), run.record.winning_value)
    for values in (found.values, *found.draws):
        assert (np.array(values) >= reached - 1e-12).all()
        assert max(values) <= reached.max() + 1e-12


def test_a_loss_is_brought_to_full_length_downwards(tmp_path: Path) -> None:
    run = run_of(tmp_path, curve=lambda config, epoch: -rising(config, epoch), mode="min")
    reached = np.maximum(values_of(run), run.record.winning_value)
    found = run.full_outcomes
    assert (np.array(found.values) <= reached + 1e-12).all()
    assert min(found.values) == pytest.approx(reached.min())


def test_full_trials_keep_the_values_by_which_they_rank(tmp_path: Path) -> None:
    run = run_of(tmp_path, scheduler=NoEarlyStopping(), budget=Budget(trials=6, max_epochs=27))
    found = run.full_outcomes
    assert list(found.values) == values_of(run)
    assert not any(found.predicted)


def test_of_nothing_there_are_no_outcomes() -> None:
    assert outcomes_at_full_length(RunRecord("loss", "min"), Space(SPACE), 9).values == ()
