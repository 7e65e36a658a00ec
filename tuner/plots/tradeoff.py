"""What trials reach in two objectives, such as accuracy against what their networks cost when they answer."""

from __future__ import annotations

import math

from tuner.plots.figure import BEST, GREY, Plot, escaped, label, new_figure
from tuner.plots.marks import draw_trials, in_full
from tuner.plots.value_axes import draw_values
from tuner.results.front import front, points, second_of, unit_of
from tuner.results.run import RecordedRun


def tradeoff(run: RecordedRun) -> Plot | None:
    """Each configuration's value against the second metric or the first limited cost, with the front and the limit.

    The front joins those that no other beats in both. Networks above a limit, which weren't trained, are ticks at the
    bottom. None for runs with neither, and while no trial has reported a value.
    """
    import pandas as pd

    second = second_of(run)
    found = points(run, second) if second else []
    if second is None or not found:
        return None
    name, best = second.metric, front(found, run.objective, second)
    on_front = {point.trial.trial for point in best}
    table = pd.DataFrame(
        {
            "trial": [point.trial.trial for point in found],
            "status": [point.trial.status for point in found],
            "trained": [point.trial.epoch for point in found],
            "in full": [in_full(run, point.trial) for point in found],
            name: [point.cost for point in found],
            "value": [point.value for point in found],
            "on the front": [point.trial.trial in on_front for point in found],
        }
    )
    told = [f"{point.value:.4g} at {point.cost:.3g}{unit_of(name)}" for point in (best[-1], best[0])]
    title = f"{run.metric} {'; '.join(dict.fromkeys(told))}"
    measured = run.costs if run.costs and name in run.costs.asked else None
    title += f" ({measured.latency.words})" if measured and name == "latency_ms" else ""
    figure = new_figure(escaped(title), x=label(name), y=label(run.metric))
    draw_trials(figure, table, run.longest_trial, name, f"%{{y:.5g}} at %{{x:.3g}}{unit_of(name)}")
    figure.add_scatter(
        x=[point.cost for point in best],
        y=[point.value for point in best],
        name="front",
        mode="lines",
        line={"color": BEST, "shape": "hv", "width": 2.5},
        hoverinfo="skip",
    )
    out = [one for one in measured.by_network.values() if one.broken(measured.limits)] if measured else []
    if measured and out:
        figure.add_scatter(
            x=[getattr(one, name) for one in out],
            y=[min(point.value for point in found)] * len(out),
            name="above a limit, not trained",
            mode="markers",
            marker={"symbol": "line-ns-open", "color": GREY, "size": 12},
            customdata=[[f"{each} {getattr(one, each):.3g}" for each in one.broken(measured.limits)] for one in out],
            hovertemplate=f"%{{x:.3g}}{unit_of(name)}, not trained: %{{customdata[0]}}<extra></extra>",
        )
    if measured and measured.limits.get(name, math.inf) < 2 * max(one.cost for one in found):
        line = {"color": GREY, "dash": "dash", "width": 1.5}
        figure.add_vline(x=measured.limits[name], line=line, annotation_text="limit", annotation_position="top left")
    return Plot("tradeoff", draw_values(figure, table["value"], run.mode), table)
