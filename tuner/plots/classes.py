"""How good the winner is at each class or label of the test split, and whether its confidence matches its accuracy.

Of classes from the confusion matrix and `best/calibration.json`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.history.scored import CALIBRATION
from tuner.plots.figure import BEST, CATEGORIES, GREY, SECOND, Plot, label, new_figure, within
from tuner.plots.mistakes import confusion_counts
from tuner.results.findings import share_error
from tuner.results.run import RecordedRun

if TYPE_CHECKING:
    import pandas as pd

MOST_SHOWN = 30  # classes that are drawn, the worst ones; the table has all
SCORES = ("precision", "recall", "F1")
SYMBOLS = ("triangle-up", "square", "circle")

Share = tuple[int, int]  # number of right ones, total number
Tally = tuple[int, int, int]  # images: rightly answered with a label, that have it, answered with it
Error = Callable[[float, int], float]  # from a share and its total number
SMALLEST, LARGEST = 6, 18  # pixels of a mark
CLEAR_GAP = 0.02  # between confidence and accuracy, from which on a title mentions it


def classes(run: RecordedRun) -> Plot | None:
    """Precision, recall and F1 of each class with standard errors, the worst first; None if it was not scored."""
    found = confusion_counts(run)
    return None if found is None else draw_scores("classes", class_table(*found))


def class_table(classes: list[str], counts: list[list[int]]) -> pd.DataFrame:
    """The scores of each class, see `score_table`."""
    tallies = [(row[index], sum(row), sum(other[index] for other in counts)) for index, row in enumerate(counts)]
    return score_table({"class": classes}, tallies)


def score_table(columns: Mapping[str, Sequence[Any]], tallies: Sequence[Tally]) -> pd.DataFrame:
    """A row per class or label, the lowest F1 first: `columns`, support, each score with its standard error ("F1 ±").

    `support` is the number of test images that have the label. If it was answered for no image, its precision is
    missing. The errors of shares are those of Agresti and Coull (1998). F1 = 2J / (1 + J), where J is the share of both
    among images that have the label or were answered with it; its error follows from J's (delta method).
    """
    import pandas as pd

    rows = []
    for place, (hits, support, taken) in enumerate(tallies):
        shares = ((hits, taken), (hits, support), (hits, taken + support - hits))
        row = {name: column[place] for name, column in columns.items()} | {"support": support}
        for score, share in zip(SCORES, shares, strict=True):
            row |= {score: _value(score, share), f"{score} ±": _error(score, share)}
        rows.append(row)
    names = [*columns, "support", *(f"{score}{error}" for score in SCORES for error in ("", " ±"))]
    return pd.DataFrame(rows, columns=names).sort_values("F1", kind="stable", ignore_index=True)


def draw_scores(name: str, table: pd.DataFrame) -> Plot | None:
    """The scores of a table of `score_table`, whose first column is "class" or "label"; None if it has none."""
    if table["F1"].isna().all():
        return None
    kind, shown = str(table.columns[0]), table.head(MOST_SHOWN)
    names, worst = [label(one) for one in shown[kind]], shown.iloc[0]
    limits = [f", from {limit:.2f} on" for limit in shown["threshold"]] if "threshold" in shown else [""] * len(shown)
    figure = new_figure(
        f"{label(worst[kind])} is the {kind} with the lowest F1: {worst['F1']:.2f} ± {worst['F1 ±']:.2f}"
        + (f"; the lowest {MOST_SHOWN} of {len(table)} are shown" if len(table) > MOST_SHOWN else ""),
        x="share, with its standard error",
    )
    for index, score in enumerate(SCORES):
        figure.add_scatter(
            x=shown[score],
            y=[position + 0.22 * (index - 1) for position in range(len(names))],
            text=[f"{one}{limit}: {score}" for one, limit in zip(names, limits, strict=True)],
            error_x=within(shown[score], shown[f"{score} ±"]),
            name=score,
            mode="markers",
            marker={"color": CATEGORIES[index], "symbol": SYMBOLS[index], "size": 9},
            hovertemplate="%{text} %{x:.3f}<extra></extra>",
        )
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    figure.update_yaxes(range=[len(names) - 0.5, -0.5], **ticks).update_layout(height=180 + 34 * len(names))
    return Plot(name, figure, table)


# Inside


def _value(score: str, share: Share) -> float:
    hits, images = share
    if images == 0:
        return math.nan
    return 2 * hits / (images + hits) if score == "F1" else hits / images


def _error(score: str, share: Share) -> float:
    hits, images = share
    if images == 0:
        return math.nan
    error = share_error(hits / images, images)
    return error * 2 / (1 + hits / images) ** 2 if score == "F1" else error


def calibration(run: RecordedRun) -> Plot | None:
    """How often predictions of each confidence are right on the test split, before and after temperature scaling.

    A reliability diagram with the expected calibration error of 15 bins (Guo et al. 2017, "On Calibration of Modern
    Neural Networks"). None if the winner has no such score.
    """
    import pandas as pd

    found = run.scored(CALIBRATION)
    if found is None or not found["bins"]:
        return None
    temperature = found["temperature"]  # None for a winner that was trained on the validation images, too
    scaled = "" if temperature is None else f", {found['scaled_ece']:.1%} at temperature {temperature:.3g}"
    figure = new_figure(
        f"{_how_sure(found['confidence'] - found['accuracy'])}: calibration error {found['ece']:.1%}{scaled}",
        x="confidence of the answer",
        y="share of right answers",
    )
    figure.add_scatter(
        x=[0, 1], y=[0, 1], name="as sure as right", mode="lines", line={"color": GREY, "dash": "dot"}, hoverinfo="skip"
    )
    tables = []
    for name, bins, colour, symbol in (
        ("as trained", found["bins"], BEST, "circle"),
        *([(f"temperature {temperature:.3g}", found["scaled_bins"], SECOND, "square-open")] if scaled else []),
    ):
        table, line = _table(name, bins), {"width": 2, "color": colour}
        figure.add_scatter(
            x=table["confidence"],
            y=table["right"],
            customdata=table["images"],
            error_y=within(table["right"], table["±"]),
            name=name,
            mode="markers",
            marker={
                "color": colour,
                "symbol": symbol,
                "size": _sizes(table["images"]),
                "line": line,
            },
            hovertemplate="confidence %{x:.1%}: %{y:.1%} right, of %{customdata} images",
        )
        tables.append(table)
    figure.update_xaxes(range=[0, 1.02], tickformat=".0%").update_yaxes(range=[0, 1.05], tickformat=".0%")
    return Plot("calibration", figure, pd.concat(tables, ignore_index=True))


# Inside


def _how_sure(gap: float) -> str:
    if abs(gap) < CLEAR_GAP:
        return "The winner is about as sure as it is right"
    return f"The winner is {'surer than' if gap > 0 else 'less sure than'} it is right"


def _sizes(images: pd.Series[int]) -> list[float]:
    """Pixels by the number of images, so that bins with one or two don't look like the others."""
    return [round(SMALLEST + (LARGEST - SMALLEST) * share, 1) for share in (images / images.sum()) ** 0.5]


def _table(name: str, bins: list[dict[str, float]]) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (name, one["images"], one["confidence"], one["accuracy"], share_error(one["accuracy"], int(one["images"])))
        for one in bins
    ]
    return pd.DataFrame(rows, columns=["answers", "images", "confidence", "right", "±"])
