import json
from collections.abc import Callable

import numpy as np
import pytest

from tests.results.simulated import simulated
from tuner import Run
from tuner.plots import curves


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulated(tmp_path_factory.mktemp("run"))


def test_curves_have_every_epoch_the_rungs_and_the_ids_of_their_trials(run: Run) -> None:
    found = curves.learning_curves(run)
    assert found is not None
    epochs = sum(len(trial.epochs) - (trial.status == "failed") for trial in run.record.trials.values())
    assert len(found.table) == epochs == sum(len(trace.x) for trace in found.figure.data)
    assert [shape.x0 for shape in found.figure.layout.shapes] == [3]
    names = [trace.name for trace in found.figure.data if trace.showlegend]
    assert sorted(names) == sorted(set(names))
    for trace in found.figure.data:
        (trial,) = {str(point[0]) for point in trace.customdata}
        assert len(trace.customdata) == len(trace.x)
        assert list(trace.y) == found.table.pipe(lambda t, trial=trial: t[t["trial"] == trial])["loss"].tolist()


def test_the_winners_curve_is_bold_and_drawn_over_the_others(run: Run) -> None:
    found = curves.learning_curves(run)
    assert found is not None
    assert run.best is not None
    assert [trace.line.width for trace in found.figure.data].count(4) == 1
    assert found.figure.data[-1].line.width == 4
    assert found.figure.data[-1].customdata[0][0] == run.best.trial


def test_more_than_100_trials_are_bands_with_the_best_on_top(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MOST_CURVES", 20)
    found = curves.learning_curves(run)
    assert found is not None
    best = [one.trial.trial for one in run.record.ranked()][:10]
    lines = [trace for trace in found.figure.data if trace.customdata is not None]
    assert [trace.customdata[0][0] for trace in lines] == best[::-1]
    names = [trace.name for trace in found.figure.data[:3]]
    assert names == ["10 to 90 % of trials", "25 to 75 % of trials", "median of trials"]
    first = run.history.query("epoch == 1")["loss"].dropna()
    assert found.table.loc[0, ["trials", "10 %", "25 %", "50 %", "75 %", "90 %"]].tolist() == [
        len(first),
        *(pytest.approx(np.percentile(first, share)) for share in (10, 25, 50, 75, 90)),
    ]
    assert found.table["trials"].is_monotonic_decreasing  # those that trained so far


@pytest.mark.slow
def test_a_thousand_trials_of_fifty_epochs_are_drawn_in_little(run_of: Callable[[str], Run]) -> None:
    run = run_of("thousand_of_fifty")
    found = curves.learning_curves(run)
    assert found is not None
    assert len(found.figure.to_json()) < 100_000
    assert len(found.table) == 50


def test_the_winners_training_is_shown_beside_its_validation(run_of: Callable[[str], Run]) -> None:
    run = run_of("seven_decades")
    found = curves.winner_curves(run)
    assert found is not None
    assert run.best is not None
    assert [trace.name for trace in found.figure.data] == ["train_loss", "loss"]
    assert found.table.columns.tolist() == ["epoch", "train_loss", "loss"]
    assert found.table["loss"].tolist() == [epoch.metrics["loss"] for epoch in run.best.epochs.values()]
    assert found.figure.layout.title.text == "The winner's loss is lowest after epoch 9, its train_loss after epoch 1"
    json.loads(found.figure.to_json())


def test_without_metrics_of_training_the_winner_has_no_such_figure(run: Run) -> None:
    assert curves.winner_curves(run) is None
    assert run.plot.winner_curves().layout.title.text.startswith("The winner reports no metric of both")
