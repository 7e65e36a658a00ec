"""What trials reach against what their networks cost when they answer."""

from __future__ import annotations

from tuner.plots.figure import BEST, GREY, Plot, escaped, label, new_figure
from tuner.plots.marks import HOVER, by_status, in_full
from tuner.plots.value_axes import draw_values
from tuner.results.front import front, points
from tuner.results.run import RecordedRun
from tuner.trial.inference_cost import COSTS, cost_in_words


def tradeoff(run: RecordedRun) -> Plot | None:
    """Each configuration's value against the first limited cost of its network, with the front and the limit.

    The front joins those that no other beats in both. Networks above the limit, which weren't trained, are ticks at the
    bottom. None for runs without limits, and while no trial has reported a value.
    """
    import pandas as pd

    if run.costs is None:
        return None
    cost = next(iter(run.costs.limits))
    found = points(run, cost)
    if not found:
        return None
    best = front(found, run.mode)
    on_front = {point.trial.trial for point in best}
    table = pd.DataFrame(
        [
            (point.trial.trial, point.trial.status, point.trial.epoch, in_full(run, point.trial), point.cost,
             point.value, point.trial.trial in on_front)
            for point in found
        ],
        columns=["trial", "status", "trained", "in full", cost, "value", "on the front"],
    )  # fmt: skip
    cheap, good = best[0], best[-1]
    title = f"{run.metric} {good.value:.4g} at {good.cost:.3g} {COSTS[cost]}"
    if len(best) > 1:
        title += f"; {cheap.value:.4g} at {cheap.cost:.3g}"
    figure = new_figure(escaped(title), x=f"{cost} ({run.costs.latency.words})", y=label(run.metric))
    for group in by_status(table, run.longest_trial):
        figure.add_scatter(
            x=group.rows[cost],
            y=group.rows["value"],
            customdata=group.customdata,
            name=group.name,
            mode="markers",
            marker=group.marker,
            hovertemplate=f"{HOVER}: %{{y:.5g}} at %{{x:.3g}} {COSTS[cost]}<extra></extra>",
        )
    figure.add_scatter(
        x=[point.cost for point in best],
        y=[point.value for point in best],
        name="front",
        mode="lines",
        line={"color": BEST, "shape": "hv", "width": 2.5},
        hoverinfo="skip",
    )
    out = [one for one in run.costs.by_network.values() if one.broken(run.costs.limits)]
    if out:
        figure.add_scatter(
            x=[getattr(one, cost) for one in out],
            y=[min(point.value for point in found)] * len(out),
            name="above a limit, not trained",
            mode="markers",
            marker={"symbol": "line-ns-open", "color": GREY, "size": 12},
            text=[cost_in_words(one, cost) for one in out],
            hovertemplate="%{text}, not trained<extra></extra>",
        )
    figure.add_vline(x=run.costs.limits[cost], line={"color": GREY, "dash": "dash", "width": 1.5})
    return Plot("tradeoff", draw_values(figure, table["value"], run.mode), table)
