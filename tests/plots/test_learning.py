import math
from typing import Any

import pytest

from tuner.plots.learning import OneCurve, learning_traces, live_layout, quantiles_of

GOOD = OneCurve("00000", "completed", [(1, 0.5), (2, 0.4)])
SHORT = OneCurve("00001", "stopped", [(1, 0.6)])
EXPLODED = OneCurve("00002", "failed", [(1, 1e30)])


def value_axis(*shown: OneCurve, mode: str = "min", others: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = live_layout("loss", mode, [3], 9, shown, others)["yaxis"]
    return found


def test_the_best_is_bold_and_each_outcome_is_named_once() -> None:
    again = OneCurve("00003", "stopped", [(1, 0.7), (2, 0.6)])
    traces = learning_traces([GOOD, SHORT, again], "00000")
    assert [trace["line"]["width"] for trace in traces] == [1.2, 1.2, 4]
    assert [(trace["name"], trace["showlegend"]) for trace in traces] == [
        ("stopped", True),
        ("stopped", False),
        ("completed", True),
    ]
    assert [trace["mode"] for trace in traces] == ["lines", "lines+markers", "lines"]  # one epoch is no line


def test_a_failed_trial_does_not_set_the_axis_unless_there_is_no_other() -> None:
    low, high = value_axis(GOOD, SHORT, EXPLODED)["range"]
    assert (low, high) == (pytest.approx(0.4 - 0.012), pytest.approx(0.6 + 0.012))
    assert value_axis(GOOD, SHORT)["autorange"]
    assert value_axis(EXPLODED)["autorange"]
    others = quantiles_of([[(1, 0.5)], [(1, 0.9)], [(1, 0.9)], [(1, 0.9)]])
    assert value_axis(GOOD, EXPLODED, others=others)["range"][1] == pytest.approx(0.93)


def test_values_over_many_decades_are_drawn_as_in_reports() -> None:
    wide = OneCurve("00004", "completed", [(1, 100.0), (2, 0.01)])
    assert value_axis(wide)["type"] == "log"
    low, high = value_axis(wide, EXPLODED)["range"]
    assert (low, high) == (pytest.approx(-2 - 0.24), pytest.approx(2 + 0.24))
    assert value_axis(GOOD)["type"] == "linear"


def test_epochs_have_ticks_of_their_own_where_they_are_few() -> None:
    axes = {longest: live_layout("a<b", "min", [], longest, [GOOD], None) for longest in (1, 20, 21)}
    assert [axis["xaxis"].get("dtick") for axis in axes.values()] == [1, 1, None]
    assert axes[1]["xaxis"]["range"] == [0.97, 1.03]
    assert axes[1]["yaxis"]["title"] == {"text": "a&lt;b"}


def test_quantiles_are_of_those_that_trained_so_far() -> None:
    found = quantiles_of([[(1, 1.0), (2, 5.0)], [(1, 3.0)]])
    assert (found.epochs, found.counts) == ([1, 2], [2, 1])
    assert found.shares[50] == [2.0, 5.0]
    assert math.isclose(found.shares[10][0], 1.2)
