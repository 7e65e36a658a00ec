"""Learning curves: of all trials, one by one or as bands of quantiles; of the winner in training and validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.history.events import finite
from tuner.history.records import TrialRecord
from tuner.plots.figure import BEST, GREY, SECOND, Plot, escaped, label, new_figure
from tuner.plots.learning import (
    MOST_TICKS,
    OneCurve,
    Quantiles,
    learning_traces,
    points_of,
    quantiles_of,
    rung_shapes,
)
from tuner.plots.value_axes import draw_values
from tuner.results.run import RecordedRun
from tuner.results.wording import plural

if TYPE_CHECKING:
    import pandas as pd

MOST_CURVES = 100  # more are shown as bands
ON_TOP = 10  # best trials that are drawn over the bands

Curve = list[tuple[int, float]]  # epoch, value


def learning_curves(run: RecordedRun) -> Plot | None:
    """Every trial's metric after each epoch, coloured by its outcome, with the rungs at which trials are compared.

    For more than 100 trials, quantiles of those trained up to each epoch, and the best ten. None without a value.
    """
    curves = {trial.trial: trial.values(run.metric) for trial in run.record.trials.values()}
    curves = {trial: curve for trial, curve in curves.items() if curve}
    if not curves:
        return None
    many = len(curves) > MOST_CURVES
    best = [one.trial.trial for one in run.record.ranked()]
    shown = best[:ON_TOP] if many else [*best, *(trial for trial in curves if trial not in best)]
    figure = new_figure(_title(run, many=many), x="epoch", y=label(run.metric))
    others = quantiles_of(list(curves.values())) if many else None
    drawn = [OneCurve(trial, run.record.trials[trial].status, curves[trial]) for trial in shown]
    figure.add_traces(learning_traces(drawn, best[0] if best else None, others))
    figure.update_layout(shapes=rung_shapes(run.info.get("rungs") or []))
    table = _points(run, curves) if others is None else _table(others)
    if max(curve[-1][0] for curve in curves.values()) <= MOST_TICKS:
        figure.update_xaxes(dtick=1)
    values = [value for curve in curves.values() for _, value in curve]
    return Plot("learning curves", draw_values(figure, values, run.mode), table)


def winner_curves(run: RecordedRun) -> Plot | None:
    """The winner's training and validation metrics, epoch by epoch; None if it reports no such pair of metrics."""
    best = run.best
    pairs = [] if best is None else _pairs(best)
    if best is None or not pairs:
        return None
    from plotly.subplots import make_subplots

    curves = {name: best.values(name) for pair in pairs for name in pair}
    figure = new_figure(_about_pairs(best, pairs, curves))
    headings = [label(train.removeprefix("train_")) for train, _ in pairs]
    grid = make_subplots(1, len(pairs), figure=figure, subplot_titles=headings)
    for column, pair in enumerate(pairs, start=1):
        for name, colour, dash in zip(pair, (SECOND, BEST), ("dash", "solid"), strict=True):
            grid.add_scatter(
                **points_of(best.trial, curves[name]),
                name=label(name),
                line={"color": colour, "dash": dash, "width": 2},
                row=1,
                col=column,
            )
        if run.best_epoch is not None:
            grid.add_vline(x=run.best_epoch, line={"color": GREY, "dash": "dot", "width": 1}, row=1, col=column)
        grid.update_xaxes(title="epoch", row=1, col=column)
    values = [value for curve in curves.values() for _, value in curve]
    return Plot("winner curves", draw_values(grid, values, "min", headings=True), _side_by_side(curves))


# Inside


def _title(run: RecordedRun, *, many: bool) -> str:
    trials = [trial for trial in run.record.trials.values() if trial.suggested]
    stopped = sum(trial.status == "stopped" for trial in trials)
    drawn = f"the best {ON_TOP} over the quantiles of all that trained so far" if many else "the best is bold"
    which = f"{stopped} of {plural(len(trials), 'trial')}" if stopped else "No trial"
    return f"{which} {'was' if stopped < 2 else 'were'} stopped early; {drawn}"


def _points(run: RecordedRun, curves: dict[str, Curve]) -> pd.DataFrame:
    import pandas as pd

    record = run.record.trials
    rows = [(trial, record[trial].status, *point) for trial, curve in curves.items() for point in curve]
    return pd.DataFrame(rows, columns=["trial", "status", "epoch", run.metric])


def _table(found: Quantiles) -> pd.DataFrame:
    """Percentiles after each epoch over the trials that have a value there."""
    import pandas as pd

    table = pd.DataFrame({"epoch": found.epochs, "trials": found.counts})
    return table.assign(**{f"{share} %": values for share, values in found.shares.items()})


def _pairs(trial: TrialRecord) -> list[tuple[str, str]]:
    """Metrics of both training and validation: ("train_loss", "val_loss"), or "loss" without a prefix."""
    reported = {name for epoch in trial.epochs.values() for name, value in epoch.metrics.items() if finite(value)}
    pairs = []
    for name in sorted(one for one in reported if one.startswith("train_")):
        bare = name.removeprefix("train_")
        pairs += [(name, other) for other in (f"val_{bare}", f"validation_{bare}", bare) if other in reported][:1]
    return pairs


def _about_pairs(trial: TrialRecord, pairs: list[tuple[str, str]], curves: dict[str, Curve]) -> str:
    train, validation = pairs[0]
    if "loss" not in train:
        return escaped(f"The winner, trial {trial.trial}, on training and validation images")
    lowest = [min(curves[name], key=lambda point: point[1])[0] for name in (validation, train)]
    return escaped(f"The winner's {validation} is lowest after epoch {lowest[0]}, its {train} after epoch {lowest[1]}")


def _side_by_side(curves: dict[str, Curve]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame({name: pd.Series(dict(curve), dtype=float) for name, curve in curves.items()})
    return table.sort_index().rename_axis("epoch").reset_index()
