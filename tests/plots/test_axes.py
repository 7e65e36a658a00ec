"""Axes by the data: logarithms, options in order, what was not used, and trials of other lengths."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.results.kinds_of_runs import QUICK
from tests.results.simulated import simulated
from tuner import Budget, Random, Run, choice, loguniform
from tuner.plots import Plots, progress, space
from tuner.plots.configurations import tried
from tuner.plots.scales import ABSENT, scale_of
from tuner.plots.value_axes import colours_of, decades, is_wide, log_ticks, written


@pytest.fixture(scope="module")
def conditional(run_of: Callable[[str], Run]) -> Run:
    return run_of("sixty_conditional")


@pytest.fixture(scope="module")
def wide(run_of: Callable[[str], Run]) -> Run:
    return run_of("seven_decades")


@pytest.mark.parametrize(("name", "axis"), [("history", "yaxis"), ("curves", "yaxis"), ("distribution", "xaxis")])
def test_losses_over_decades_are_on_a_logarithmic_axis_that_can_be_switched(wide: Run, name: str, axis: str) -> None:
    figure = getattr(wide.plot, name)()
    assert figure.layout[axis].type == "log"
    (menu,) = figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == ["log", "linear"]
    assert menu.active == 0
    assert [button.args[0][f"{axis}.type"] for button in menu.buttons] == ["log", "linear"]


def test_all_axes_of_slices_are_switched_together(wide: Run) -> None:
    layout = wide.plot.slice().layout
    assert layout.yaxis.type == layout.yaxis2.type == "log"
    assert {"yaxis.type", "yaxis2.type"} <= set(layout.updatemenus[0].buttons[1].args[0])


def test_colours_of_losses_over_decades_are_of_their_logarithms_with_readable_ticks(wide: Run) -> None:
    trace = wide.plot.parallel().data[0]
    values = np.array([one.value for one in wide.record.reported()])
    assert np.allclose(trace.line.color, np.log10(values))
    assert all(
        float(text) == pytest.approx(10**tick) for tick, text in zip(*ticks_of(trace.line.colorbar), strict=True)
    )
    surface = next(trace for trace in wide.plot.contour().data if trace.type == "contour")
    assert np.log10(values).min() <= np.nanmin(surface.z) <= np.nanmax(surface.z) <= np.log10(values).max()
    assert surface.colorbar.ticktext == trace.line.colorbar.ticktext


def ticks_of(bar: Any) -> tuple[list[float], list[str]]:
    return list(bar.tickvals), list(bar.ticktext)


def test_accuracies_stay_on_a_linear_axis(conditional: Run) -> None:
    assert conditional.plot.history().layout.yaxis.type != "log"
    assert not conditional.plot.history().layout.updatemenus


@pytest.mark.parametrize(
    ("values", "mode", "found"),
    [
        ([1e-3, 1.0], "min", True),
        ([0.02, 1.0], "min", False),
        ([0.0, 1e6], "min", False),
        ([-1.0, 1e6], "max", False),
        ([1e-3, 0.9], "max", False),  # an accuracy
        ([1.0, 1e6], "max", True),
        ([], "min", False),
        ([float("nan"), float("inf"), 2.0], "min", False),
    ],
)
def test_a_scale_is_logarithmic_where_positive_values_span_over_two_decades(
    values: list[float], mode: str, found: bool
) -> None:
    assert is_wide(values, mode) is found


def test_numbers_in_few_characters() -> None:
    assert [written(value) for value in (0.001, 1e-5, 5e7, 1e100, 12.0)] == ["0.001", "1e-5", "5e7", "1e100", "12"]
    assert log_ticks(-4.7, 7.7) == [-4, -1, 2, 5]
    assert log_ticks(-1, -0.7) == pytest.approx([-1, -0.9, -0.8, -0.7])
    assert decades([2.0, 200.0]) == pytest.approx(2)
    assert colours_of(np.array([1.0, 2.0]), "min")[1] == {}


def test_numeric_options_stand_in_order_and_evenly() -> None:
    scale = scale_of(choice([64, 16, 256, 32]), [64, 256, 16, 64])
    assert scale.places.tolist() == [1, 2, 0, 1]
    assert scale.axis["ticktext"] == ["16", "64", "256"]
    assert scale.axis["tickvals"] == [0, 1, 2]


def test_none_is_an_option_and_not_used_is_none() -> None:
    scale = scale_of(choice([None, "flip", "None", True]), ["flip", None, ABSENT, "None"])
    assert scale.names == ["not used", "None", "flip", "None"]
    assert scale.places.tolist() == [1, 0, -1, 2]
    assert scale.texts == ["flip", "None", "not used", "None"]
    assert scale.used.tolist() == [True, True, False, True]


def test_numbers_that_were_not_used_stand_below_all_others() -> None:
    scale = scale_of(loguniform(1e-4, 1e-1), [1e-3, ABSENT, 1e-1])
    assert scale.drawn[1] < 1e-3
    assert scale.axis["type"] == "log"
    assert scale.axis["ticktext"][0] == "not used"
    assert scale.axis["tickvals"][0] == pytest.approx(scale.drawn[1])
    assert "ticktext" not in scale_of(loguniform(1e-4, 1e-1), [1e-3, 1e-1]).axis


def points(figure: Any, axis: str = "x") -> set[str]:
    return {
        each[0]
        for trace in figure.data
        if trace.customdata is not None and (trace.xaxis or "x") == axis
        for each in trace.customdata
    }


def test_trials_whose_option_is_none_are_in_slices_rank_and_parallel_coordinates(conditional: Run) -> None:
    reported = {one.trial.trial for one in conditional.record.reported()}
    none = {one.trial.trial for one in conditional.record.reported() if one.trial.config["augmentation"] is None}
    assert none
    assert conditional.best is not None
    assert conditional.best.trial in none
    slices = conditional.plot.slice()
    for index in range(1, 7):
        assert points(slices, "x" if index == 1 else f"x{index}") == reported
    assert points(conditional.plot.rank()) == reported
    axes = {axis.label: axis for axis in conditional.plot.parallel().data[0].dimensions}
    names = {name.split("…")[0]: axis for name, axis in axes.items()}
    augmentation = next(axis for name, axis in names.items() if "augmen".startswith(name[:6]))
    assert list(augmentation.ticktext) == ["None", "flip", "randaugment"]
    table = space.slices(conditional, tried(conditional))
    assert table is not None
    assert set(table.table["augmentation"]) == {"None", "flip", "randaugment"}
    assert "not used" in set(table.table["momentum"])


def test_marks_say_how_long_trials_were_trained(conditional: Run) -> None:
    longest = conditional.longest_trial
    for name in ("history", "slice", "rank", "contour"):
        for trace in getattr(conditional.plot, name)().data:
            if trace.type == "contour" or trace.mode != "markers" or trace.customdata is None:
                continue
            epochs = {each[1] for each in trace.customdata}
            if trace.name.startswith("trained in full"):
                assert epochs == {longest}
                assert not str(trace.marker.symbol).endswith("-open")
            else:
                assert max(epochs) < longest
                hollow = str(trace.marker.symbol).endswith("-open") or trace.marker.color == "rgba(255,255,255,0.5)"
                assert hollow or trace.name.startswith("failed")
                assert trace.name.endswith("of 27")
    names = {trace.name for trace in conditional.plot.history().data}
    assert {"trained in full, 27 epochs", "stopped after 3 to 9 epochs of 27", "best so far"} <= names


def test_a_hyperparameter_of_the_name_of_a_column_has_one_of_its_own(tmp_path: Path) -> None:
    chosen = {"number": choice([1, 2]), "lr": loguniform(1e-4, 1e-1), "depth": 1}
    run = simulated(tmp_path, space=chosen, search=Random(), budget=Budget(trials=6, max_epochs=3))
    found = space.slices(run, tried(run))
    assert found is not None
    assert found.table["number"].tolist() == [one.trial.number for one in run.record.reported()]
    assert set(found.table["number (setting)"]) <= {1, 2}


@pytest.mark.parametrize("kind", QUICK)
def test_no_figure_of_any_kind_of_run_is_empty(run_of: Callable[[str], Run], kind: str) -> None:
    run = run_of(kind)
    for name in Plots.names():
        figure = getattr(run.plot, name)()
        shown = [trace for trace in figure.data if trace.type == "parcoords" or any(map(len, (trace.x, trace.y)))]
        assert shown or figure.layout.images or figure.layout.height <= 120
        assert figure.layout.title.text


def test_of_a_run_that_failed_only_the_timeline_is_left(run_of: Callable[[str], Run]) -> None:
    run = run_of("all_failed")
    drawn = [name for name in Plots.names() if getattr(run.plot, name)().data]
    assert drawn == ["timeline"]
    assert run.plot.history().layout.title.text == "No trial has reported val_accuracy"


def test_trials_that_report_no_memory_have_no_figure_of_it(tmp_path: Path, run_of: Callable[[str], Run]) -> None:
    assert progress.costs(simulated(tmp_path)) is None
    assert progress.costs(run_of("two_trials")) is not None
