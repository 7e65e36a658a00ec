"""Loads what a report needs before there is anything to write: that takes most of the first report's time."""

from __future__ import annotations

from tuner.html_report.elements import compiled
from tuner.html_report.packing import packed_plotly
from tuner.plots.base import new_figure


def load() -> None:
    """Import the libraries, compile the page's template and pack plotly's script: two seconds of a processor."""
    import plotly.subplots
    import sklearn.ensemble  # noqa: F401 -- for importances

    packed_plotly()
    compiled("run.html")
    figure = plotly.subplots.make_subplots(figure=new_figure(""))
    figure.add_scatter(y=[0.0], error_y={"array": [1.0]}).add_bar(y=[0.0]).add_hline(0.0).add_heatmap(z=[[0.0]])
    figure.add_contour(z=[[0.0]]).add_parcoords(dimensions=[{"values": [0.0]}])
    figure.to_json()
