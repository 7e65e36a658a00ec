import json
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from tests.results.kinds_of_runs import all_failed, interrupted, long_unicode, sixty_conditional, two_trials
from tests.results.simulated import gone_on_an_hour_later, simulated
from tuner import Budget, Run, choice, uniform
from tuner.plots import Against, Plots, progress, space
from tuner.plots.configurations import tried

NAMES = Plots.names()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulated(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("name", NAMES)
def test_every_plot_is_drawn_with_a_title_and_is_plain_json(run: Run, name: str) -> None:
    figure = getattr(run.plot, name)()
    assert figure.layout.title.text
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reports", [0, 1, 5])
def test_every_plot_can_be_drawn_of_a_search_that_has_just_begun(tmp_path: Path, name: str, reports: int) -> None:
    assert getattr(simulated(tmp_path, reports=reports).plot, name)().layout.title.text


@pytest.mark.parametrize("name", NAMES)
def test_every_plot_can_be_drawn_where_one_hyperparameter_or_none_was_searched(tmp_path: Path, name: str) -> None:
    assert getattr(simulated(tmp_path / "one", space={"lr": uniform(0, 1), "depth": 1}).plot, name)().layout.title.text
    constant = simulated(tmp_path / "none", space={"lr": 0.1, "depth": 1}, budget=Budget(trials=1, max_epochs=9))
    assert getattr(constant.plot, name)().layout.title.text


@pytest.mark.parametrize("against", ["trials", "epochs", "time"])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_best_so_far_ends_with_the_winner_and_failed_trials_do_not_count(
    tmp_path: Path, against: Against, mode: str
) -> None:
    run = simulated(tmp_path, mode=mode)
    found = progress.optimisation_history(run, against)
    table = found.table
    line = next(trace for trace in found.figure.data if trace.name == "best so far")
    assert line.y[-1] == table["best so far"].iloc[-1] == run.record.winning_value
    assert list(line.x) == sorted(line.x)
    failed = {t.epochs[e].metrics["loss"] for t in run.record.trials.values() if t.status == "failed" for e in t.epochs}
    assert not failed & {*line.y}
    assert found.figure.layout.title.text == f"The winner reached loss {run.record.winning_value:.4g}"
    assert "failed" in set(table["status"])
    assert table[against].is_monotonic_increasing


def test_savings_add_up(run: Run) -> None:
    table = progress.savings(run).table
    trials = run.record.trials.values()
    assert table["spent"].sum() == sum(trial.epoch for trial in trials)
    assert table["saved"].sum() == sum(9 - trial.epoch for trial in trials if trial.status == "stopped")
    assert table["trials"].sum() == len(trials)


def test_the_timeline_has_a_lane_for_each_worker_and_no_overlap(run: Run) -> None:
    table = progress.timeline(run).table
    assert set(table["trial"]) == set(run.record.trials)
    for _, lane in table.groupby("worker"):
        ordered = lane.sort_values("start")
        assert (ordered["start"].to_numpy()[1:] >= ordered["end"].to_numpy()[:-1] - 1e-6).all()


@pytest.mark.parametrize(("killed", "first"), [(True, 20.0), (False, 25.0)])
def test_the_timeline_leaves_out_the_time_when_no_search_ran(tmp_path: Path, killed: bool, first: float) -> None:
    run = gone_on_an_hour_later(tmp_path, killed=killed)
    found = progress.timeline(run)
    assert found is not None
    spans = found.table[["start", "end"]].to_numpy().tolist()
    assert spans == [[0.0, first], [first, first + 30.0]]
    assert found.figure.layout.title.text == "Workers trained 100% of the time, and started trials 0%"
    assert run.record.wall_seconds == first + 30.0


def test_the_minutes_of_the_history_leave_out_the_time_when_no_search_ran(tmp_path: Path) -> None:
    found = progress.optimisation_history(gone_on_an_hour_later(tmp_path, killed=True), "time")
    assert found is not None
    assert found.table["time"].tolist() == [50.0 / 60]


def test_the_contour_is_of_the_two_numbers_that_matter_most(run: Run) -> None:
    found = space.contour(run, tried(run))
    assert found.figure.layout.xaxis.title.text == "lr"
    assert found.figure.layout.xaxis.type == "log"
    other = space.contour(run, tried(run), "depth", "width")
    assert [other.figure.layout.xaxis.title.text, other.figure.layout.yaxis.title.text] == ["depth", "width"]
    surface = next(trace for trace in found.figure.data if trace.type == "contour")
    values = run.trials.query("status != 'failed'")["loss"]
    assert values.min() - 1e-9 <= np.nanmin(surface.z) <= np.nanmax(surface.z) <= values.max() + 1e-9


def test_a_contour_is_empty_where_no_trial_was_near() -> None:
    """Trials in three corners say nothing of the fourth."""
    x, y = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])
    surface = space._interpolated(x, y, np.array([1.0, 2.0, 3.0]))
    assert (surface[0, 0], surface[-1, 0], surface[0, -1]) == (
        pytest.approx(1.0),
        pytest.approx(2.0),
        pytest.approx(3.0),
    )
    assert np.isnan(surface[-1, -1])
    assert np.isnan(surface[30, 30])


def test_parallel_coordinates_keep_trials_without_a_hyperparameter_apart(run: Run) -> None:
    axes = {axis.label: axis for axis in space.parallel_coordinates(run, tried(run)).figure.data[0].dimensions}
    assert list(axes) == ["lr", "kind", "depth", "width", "momentum", "epochs", "loss"]
    assert axes["momentum"].ticktext[0] == "not used"
    assert min(axes["momentum"].values) == axes["momentum"].tickvals[0]
    assert list(axes["kind"].ticktext) == ["a", "b"]
    assert list(axes["width"].ticktext) == ["16", "32", "64"]


def test_names_of_ticks_that_plotly_takes_literally_are_not_escaped(tmp_path: Path) -> None:
    space = {"lr": uniform(0, 1), "kind": choice(["<b>", "a & b"])}
    run = simulated(tmp_path, space=space, curve=lambda config, epoch: config["lr"] / epoch)
    axes = {axis.label: axis for axis in run.plot.parallel().data[0].dimensions}
    assert list(axes["kind"].ticktext) == ["<b>", "a & b"]


def test_the_lowest_rank_is_the_best_trials(run: Run) -> None:
    table = space.ranks(run, tried(run)).table
    assert run.best is not None
    assert table.loc[table["rank"] == 1, "trial"].tolist() == [run.best.trial]


def test_importance_names_what_matters(run: Run) -> None:
    found = space.importances(run)
    assert found.table["hyperparameter"].iloc[0] == "lr"
    assert found.figure.layout.title.text.startswith("lr matters most: ")


def test_a_choice_of_numbers_that_not_every_trial_has_is_drawn_with_its_numbers(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        space={"lr": uniform(0, 1), "depth": 1, "kind": choice(["a", "b"]), "width": choice([16, 32]).when(kind="b")},
    )
    axes = {axis.label: list(axis.ticktext) for axis in run.plot.parallel().data[0].dimensions if axis.ticktext}
    assert axes["width"] == ["not used", "16", "32"]


def test_too_few_points_have_no_surface(tmp_path: Path) -> None:
    """Two white points over two hyperparameters say nothing of the metric."""
    run = two_trials(tmp_path)
    assert space.contour(run, tried(run)) is None
    assert run.plot.contour().layout.title.text.startswith("A contour needs two hyperparameters")


def test_a_surface_of_shortened_trials_is_of_what_they_would_reach(tmp_path: Path) -> None:
    """After 1 to 23 epochs of 27 its hills would be where trials were trained longer."""
    run = interrupted(tmp_path)
    found = space.contour(run, tried(run))
    assert found is not None
    assert found.figure.layout.title.text.replace("<br>", " ").endswith("predicts them at full length")
    surface = next(trace for trace in found.figure.data if trace.type == "contour")
    reached = [one.value for one in run.record.ranked()]
    assert np.nanmin(surface.z) > median(reached)  # most ended after 3 epochs, and would go on to more


def test_trials_that_ended_no_epoch_did_not_train(tmp_path: Path) -> None:
    assert all_failed(tmp_path).plot.timeline().layout.title.text == "No worker finished an epoch"


def test_of_many_lines_the_best_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 lines hide one another."""
    run = sixty_conditional(tmp_path)
    monkeypatch.setattr(space, "MOST_LINES", 10)
    found = space.parallel_coordinates(run, tried(run))
    assert found is not None
    assert found.figure.layout.title.text.replace("<br>", " ").endswith("(the best 10 of 48)")
    reported = sorted((one.value for one in run.record.reported()), reverse=True)
    assert sorted(found.table["val_accuracy"], reverse=True) == reported[:10]


def test_names_beside_bars_and_colour_bars_leave_room_on_a_phone(tmp_path: Path) -> None:
    run = long_unicode(tmp_path)
    for plot in (run.plot.contour(), run.plot.parallel()):
        bars = [
            trace.to_plotly_json().get("colorbar") or trace.line.colorbar.to_plotly_json() for trace in plot.data[:1]
        ]
        assert [bar["title"]["side"] for bar in bars] == ["right"]
    assert max(map(len, run.plot.importance().data[0].y)) <= 20


def test_an_axis_within_a_decade_has_few_ticks(tmp_path: Path) -> None:
    run = two_trials(tmp_path)
    assert run.plot.rank().layout.xaxis.type == "log"
    assert run.plot.rank().layout.xaxis.nticks == 4
