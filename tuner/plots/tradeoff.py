"""What trials reach in two objectives, such as accuracy against what their networks cost when they answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.plots.figure import BEST, GREY, Plot, escaped, label, new_figure
from tuner.plots.marks import draw_trials, in_full
from tuner.plots.value_axes import draw_values
from tuner.results.front import Point, front, points, second_of, unit_of
from tuner.results.run import RecordedRun
from tuner.results.wording import wilson
from tuner.space.pareto import hypervolume
from tuner.trial.tasks import SHARES

NEARLY = 0.95  # of the final area


def tradeoff(run: RecordedRun) -> Plot | None:
    """Each configuration's value against the second metric or the first limited cost, with the front and the limit.

    The front joins those that no other beats in both. Networks above a limit, which weren't trained, are ticks at the
    bottom. None for runs with neither, and while no trial has reported a value.
    """
    import pandas as pd

    second = second_of(run)
    found = points(run.record, run.costs, second) if second else []
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
        error_y=_intervals(run, best),
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


def _intervals(run: RecordedRun, best: list[Point]) -> dict[str, Any] | None:
    """Error bars of the 95 % intervals of a front whose values are shares of the validation images; else None."""
    images = run.validation_images
    if run.metric not in SHARES or not images:
        return None
    ends = [wilson(point.value * images, images) for point in best]
    above, below = (
        [high - p.value for p, (_, high) in zip(best, ends, strict=True)],
        [p.value - low for p, (low, _) in zip(best, ends, strict=True)],
    )
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1, "color": BEST}


def front_growth(run: RecordedRun) -> Plot | None:
    """How much of the area that the front dominates the first trials did, by trials started: its hypervolume.

    The area lies between the front and the worst values of all trials. None for runs with one metric, and while the
    front has no area.
    """
    import pandas as pd

    second = run.second
    found = sorted(points(run.record, run.costs, second), key=lambda point: point.trial.number) if second else []
    if second is None or not found:
        return None
    values = np.array([(run.objective.oriented(one.value), second.oriented(one.cost)) for one in found])
    worst = float(values[:, 0].min()), float(values[:, 1].min())
    areas, best = [0.0], values[:0]
    for place in range(len(found)):
        if ((best >= values[place]).all(1)).any():  # it adds nothing
            areas.append(areas[-1])
            continue
        best = np.concatenate([best[~(best <= values[place]).all(1)], values[place : place + 1]])
        areas.append(hypervolume(best, worst))
    del areas[0]
    if not areas[-1]:
        return None
    shares, started = [area / areas[-1] for area in areas], [one.trial.number + 1 for one in found]
    within = next(count for count, share in zip(started, shares, strict=True) if share >= NEARLY)
    title = f"The first {within} trials found {NEARLY:.0%} of the area that the front dominates"
    figure = new_figure(title, x="trials started", y="share of the final area")
    line = {"color": BEST, "shape": "hv", "width": 2.5}
    hover = "%{y:.1%} after %{x} trials<extra></extra>"
    figure.add_scatter(x=started, y=shares, name="area", mode="lines", line=line, hovertemplate=hover)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02])
    return Plot("front growth", figure, pd.DataFrame({"trials": started, "share of the area": shares}))
