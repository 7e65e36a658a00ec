"""A winner's answers of a number beside the true ones of the test split, and its errors by the true number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuner.history.event_lines import finite
from tuner.history.scored import METRICS, NUMBERS
from tuner.plots.figure import BEST, GREY, Plot, label, new_figure
from tuner.results.run import RecordedRun
from tuner.results.wording import short
from tuner.trial.tasks import NUMBER

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 3_000  # that are drawn one by one; more are counted in squares
SQUARES = 80  # along an axis
DIAGONAL = {"color": GREY, "dash": "dot"}


def predicted_against_true(run: RecordedRun) -> Plot | None:
    """The winner's answer against the true number of each test image; None if it was not scored."""
    table = _answers(run)
    if table is None:
        return None
    name, truth, answers = label(run.scored(NUMBERS)["name"]), table["true"], table["answer"]
    figure = new_figure(_how_near(run, name), x=f"true {name}", y=f"predicted {name}")
    low, high = min(truth.min(), answers.min()), max(truth.max(), answers.max())
    if len(table) <= MOST_POINTS:
        figure.add_scatter(
            x=truth,
            y=answers,
            mode="markers",
            marker={"color": BEST, "size": 6, "opacity": 0.6},
            hovertemplate="%{y:.4g}, true %{x:.4g}<extra></extra>",
        )
    else:
        counts, _, edges = np.histogram2d(answers, truth, SQUARES, [[low, high]] * 2)
        figure.add_heatmap(
            z=np.where(counts > 0, counts, np.nan),
            x=edges,
            y=edges,
            colorscale="Blues",
            hovertemplate="%{y:.4g}, true %{x:.4g}: %{z} images<extra></extra>",
        )
    figure.add_scatter(x=[low, high], y=[low, high], mode="lines", line=DIAGONAL, hoverinfo="skip")
    return Plot("predicted against true", figure.update_layout(showlegend=False), table)


def errors_by_target(run: RecordedRun) -> Plot | None:
    """The median and quartiles of the errors by ranges of the true number; None if it was not scored."""
    answers = _answers(run)
    if answers is None:
        return None
    name, table = label(run.scored(NUMBERS)["name"]), error_table(answers)
    worst = table.iloc[int(table["mean absolute error"].argmax())]
    figure = new_figure(
        f"Errors are largest for {name} {worst['range']}: {short(worst['mean absolute error'])} on average",
        x=f"true {name}",
        y="error: median and quartiles",
    )
    low, middle, high = (table[quartile] for quartile in QUARTILES.values())
    figure.add_scatter(
        x=answers["true"].groupby(_ranges(answers)[0]).mean(),
        y=middle,
        customdata=table[["range", "images"]],
        error_y={"type": "data", "array": high - middle, "arrayminus": middle - low, "thickness": 1.5, "width": 0},
        mode="markers",
        marker={"color": BEST, "size": 9},
        hovertemplate="%{customdata[0]}: %{y:.4g}, %{customdata[1]} images<extra></extra>",
    )
    figure.add_hline(y=0, line=DIAGONAL)
    return Plot("errors by target", figure, table)


def error_table(answers: pd.DataFrame) -> pd.DataFrame:
    """A row per range of the true number, of which each has about as many images: the errors' quartiles and size."""
    places, names = _ranges(answers)
    errors = answers["error"].groupby(places)
    table = errors.quantile(np.array(list(QUARTILES))).unstack().rename(columns=QUARTILES)
    table.insert(0, "images", errors.count())
    table.insert(0, "range", [names[place] for place in table.index])
    table["mean absolute error"] = answers["error"].abs().groupby(places).mean()
    return table.reset_index(drop=True)


# Inside

QUARTILES = {0.25: "lower quartile", 0.5: "median", 0.75: "upper quartile"}


def _ranges(answers: pd.DataFrame) -> tuple[list[int], tuple[str, ...]]:
    """The range of each image, as an index into their names."""
    truth = answers["true"].tolist()
    strata = NUMBER.strata(truth)
    return [strata.of(number)[0] for number in truth], strata.names


def _answers(run: RecordedRun) -> pd.DataFrame | None:
    """The true number, the answer and the error of each test image, the largest error first; None without any."""
    import pandas as pd

    found = run.scored(NUMBERS)
    if found is None or not found["labels"]:
        return None
    table = pd.DataFrame({"true": found["labels"], "answer": found["answers"]})
    table["error"] = table["answer"] - table["true"]
    return table.sort_values("error", key=abs, ascending=False, kind="stable", ignore_index=True)


def _how_near(run: RecordedRun, name: str) -> str:
    """A title: the mean absolute error and R², as the run's metrics have them."""
    metrics = (run.scored(METRICS) or {}).get("metrics", {})
    mae, r2 = metrics.get("test_mae"), metrics.get("test_r2")
    if not finite(mae):
        return f"Answers beside the true {name}"
    return f"Answers are {short(mae)} off the true {name} on average" + (f" (R² {short(r2)})" if finite(r2) else "")
