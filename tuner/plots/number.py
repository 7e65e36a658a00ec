"""A winner's answers of a number beside the true ones of the test split, and its errors by the true number."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tuner.history.event_lines import finite
from tuner.history.scored import METRICS, NUMBERS
from tuner.plots.figure import BEST, GREY, Plot, label, new_figure
from tuner.results.run import RecordedRun
from tuner.results.wording import short
from tuner.trial.tasks import NUMBER

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 3_000  # of more images a part is drawn; the table has all
DIAGONAL = {"color": GREY, "dash": "dot"}
QUARTILES = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}


def predicted_against_true(run: RecordedRun) -> Plot | None:
    """The winner's answer against the true number of each test image; None if it was not scored."""
    answers = _answers(run)
    if answers is None:
        return None
    name, step = label(run.scored(NUMBERS)["name"]), -(-len(answers) // MOST_POINTS)
    scores = (run.scored(METRICS) or {}).get("metrics", {})
    mae, r2 = scores.get("test_mae"), scores.get("test_r2")
    title = (
        f"Answers are {short(mae)} off the true {name} on average" if finite(mae) else f"Answers and the true {name}"
    )
    title += (f" (R² {short(r2)})" if finite(r2) else "") + (f"; 1 image of {step} is drawn" if step > 1 else "")
    shown = answers.iloc[::step]  # ordered by their errors, so that large and small ones are drawn
    figure = new_figure(title, x=f"true {name}", y="predicted")
    figure.add_scatter(
        x=shown["true"],
        y=shown["answer"],
        mode="markers",
        marker={"color": BEST, "size": 6, "opacity": 0.6},
        hovertemplate="%{y:.4g}, true %{x:.4g}<extra></extra>",
    )
    ends = [answers["true"].min(), answers["true"].max()]
    figure.add_scatter(x=ends, y=ends, mode="lines", line=DIAGONAL, hoverinfo="skip")
    return Plot("predicted against true", figure.update_layout(showlegend=False), answers)


def errors_by_target(run: RecordedRun) -> Plot | None:
    """The median and quartiles of the errors by ranges of the true number; None if it was not scored."""
    answers = _answers(run)
    if answers is None:
        return None
    name, strata = label(run.scored(NUMBERS)["name"]), NUMBER.strata(Counter(answers["true"].tolist()))
    places = [strata.of(number)[0] for number in answers["true"].tolist()]
    errors = answers["error"].groupby(places)
    quartiles = {quartile: errors.quantile(share) for quartile, share in QUARTILES.items()}
    sizes, means = answers["error"].abs().groupby(places).mean(), answers["true"].groupby(places).mean()
    table = errors.count().to_frame("images").assign(true=means, **quartiles, **{"mean absolute error": sizes})
    table.insert(0, "range", strata.names)
    figure = new_figure(
        f"Errors are largest for {name} {strata.names[int(sizes.argmax())]}: {short(float(sizes.max()))} on average",
        x=f"true {name}",
        y="error: median and quartiles",
    )
    low, middle, high = (table[quartile] for quartile in QUARTILES)
    figure.add_scatter(
        x=table["true"],
        y=middle,
        customdata=table[["range", "images"]],
        error_y={"type": "data", "array": high - middle, "arrayminus": middle - low, "thickness": 1.5, "width": 0},
        mode="markers",
        marker={"color": BEST, "size": 9},
        hovertemplate="%{customdata[0]}: %{y:.4g}, %{customdata[1]} images<extra></extra>",
    )
    return Plot("errors by target", figure.add_hline(y=0, line=DIAGONAL), table)


# Inside


def _answers(run: RecordedRun) -> pd.DataFrame | None:
    """The true number, the answer and the error of each test image, the largest error first; None without any."""
    import pandas as pd

    found = run.scored(NUMBERS)
    if found is None or not found["labels"]:
        return None
    table = pd.DataFrame({"true": found["labels"], "answer": found["answers"]})
    table = table.assign(error=table["answer"] - table["true"])
    return table.sort_values("error", key=abs, ascending=False, kind="stable", ignore_index=True)
