"""What trials reach against what their networks cost."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.results.simulated import simulated
from tuner import Latency, Run, choice, uniform
from tuner.plots.tradeoff import front_growth, tradeoff
from tuner.results.front import Point, front, points
from tuner.results.run import RecordedRun
from tuner.space.mode import Objective
from tuner.trial.inference_cost import InferenceCost, KnownCosts, key_of

COST = InferenceCost(latency_ms=1.0, fastest_ms=0.9, size_mb=40.0, memory_mb=90.0, flops=10**9)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A search over widths, of which a wider network takes longer; the widest is above the limit, and one unknown."""
    found = simulated(tmp_path_factory.mktemp("run"))
    networks = {key_of({"width": width}, ("width",)): replace(COST, latency_ms=float(width)) for width in (16, 32, 128)}
    found.info["costs"] = KnownCosts({"latency_ms": 64}, Latency(), networks, ("width",)).record()
    return found


def test_the_front_has_what_no_other_beats_in_both(run: Run) -> None:
    found = points(run.record, run.costs, Objective("latency_ms", "min"))
    assert {point.cost for point in found} == {16.0, 32.0}  # those of width 64 weren't measured
    trial = found[0].trial
    few = [Point(trial, value, cost) for value, cost in ((3, 1), (2, 2), (2, 3), (2.5, 2), (1, 9), (1, 8))]
    low, high, cost = Objective("loss", "min"), Objective("loss", "max"), Objective("latency_ms", "min")
    assert [(p.value, p.cost) for p in front(few, low, cost)] == [(3, 1), (2, 2), (1, 8)]
    assert [(p.value, p.cost) for p in front(few, high, cost)] == [(3, 1)]


def test_the_figure_has_the_front_the_limit_and_what_was_not_trained(run: Run) -> None:
    found = tradeoff(run)
    assert found is not None
    names = [trace.name for trace in found.figure.data]
    assert names[-2:] == ["front", "above a limit, not trained"]
    assert list(found.figure.data[-1].x) == [128.0]
    assert list(found.figure.data[-1].customdata[0]) == ["latency_ms 128"]
    assert not found.figure.layout.shapes  # the limit is far from all that was trained
    best = found.table.sort_values("value").iloc[0]
    assert best["on the front"]
    assert found.figure.layout.title.text.startswith(f"loss {best['value']:.4g} at {best['latency_ms']:.3g} ms")


def test_the_limit_is_drawn_where_trials_come_near_it(run: Run) -> None:
    told = run.info["costs"]
    run.__dict__.pop("costs", None)
    run.info["costs"] = {**told, "limits": {"latency_ms": 40.0}}
    found = tradeoff(run)
    run.__dict__.pop("costs", None)
    run.info["costs"] = told
    assert found is not None
    assert found.figure.layout.shapes[0].x0 == 40
    assert found.figure.layout.annotations[0].text == "limit"


def test_the_tables_have_each_cost_and_nothing_for_what_was_not_measured(run: Run) -> None:
    table = run.trials
    assert table["cost/latency_ms"].isna().equals(table["config/width"] == 64)
    assert set(table["cost/flops"].dropna()) == {10**9}


def test_a_run_without_limits_has_no_such_figure(tmp_path: Path) -> None:
    assert tradeoff(simulated(tmp_path)) is None


def test_the_area_of_the_front_grows_to_all_of_it(tmp_path: Path) -> None:
    space = {"x": uniform(0, 1), "width": choice([1, 2, 4, 8])}
    found = simulated(
        tmp_path,
        curve=lambda config, epoch: (config["x"] - 0.3) ** 2 + 1 / config["width"],
        more=lambda config: {"seconds": config["width"] * (1 + config["x"])},
        **{"space": space, "metric": ["loss", "seconds"], "mode": ["min", "min"]},
    )
    grown = front_growth(found)
    assert grown is not None
    shares = grown.table["share of the area"].tolist()
    assert shares == sorted(shares)
    assert shares[-1] == 1
    first = next(row.trials for row in grown.table.itertuples() if row[2] >= 0.95)
    assert grown.figure.layout.title.text == f"The first {first} trials found 95% of the area that the front dominates"
    assert found.plot.front_growth().data[0].x[0] == 1


def test_a_run_of_one_metric_has_no_area(run: Run) -> None:
    assert front_growth(run) is None
    assert str(run.plot.front_growth().layout.title.text).startswith("The study has one metric")


def test_the_front_of_a_share_has_its_intervals(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tradeoff(run)
    assert plain is not None
    assert plain.figure.data[-2].error_y.array is None  # a loss is no share
    shares = [
        Point(point.trial, 0.8, point.cost)
        for point in points(run.record, run.costs, Objective("latency_ms", "min"))[:1]
    ]
    monkeypatch.setattr("tuner.plots.tradeoff.points", lambda *_: shares)
    monkeypatch.setitem(run.info, "metric", "val_accuracy")
    monkeypatch.setattr(RecordedRun, "validation_images", 100)
    found = tradeoff(run)
    assert found is not None
    bars = found.figure.data[-2].error_y
    assert (bars.arrayminus[0], bars.array[0]) == pytest.approx((0.0888, 0.0667), abs=5e-4)
