"""How good the winner is at each class of the test split, and whether its confidence matches its accuracy.

From the confusion matrix and `best/calibration.json`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.history.scored import CALIBRATION
from tuner.plots.figure import BEST, CATEGORIES, GREY, SECOND, Plot, label, new_figure, within
from tuner.plots.mistakes import confusion
from tuner.results.findings import share_error
from tuner.results.run import RecordedRun

if TYPE_CHECKING:
    import pandas as pd

MOST_CLASSES = 30  # of which are drawn, the worst ones; the table has all
SCORES = ("precision", "recall", "F1")
SYMBOLS = ("triangle-up", "square", "circle")

Share = tuple[int, int]  # number of right ones, total number
Error = Callable[[float, int], float]  # from a share and its total number
SMALLEST, LARGEST = 6, 18  # pixels of a mark
CLEAR_GAP = 0.02  # between confidence and accuracy, from which on a title mentions it


def class_scores(run: RecordedRun) -> Plot | None:
    """Precision, recall and F1 of each class with standard errors, the worst first; None if it was not scored.

    The errors of shares are those of Agresti and Coull (1998). F1 = 2J / (1 + J), where J is the share of both among
    images that are of the class or predicted as it; its error follows from J's (delta method).
    """
    found = confusion(run)
    if found is None or not found[0]:
        return None
    table = class_table(*found)
    shown = table.head(MOST_CLASSES)
    names = [label(name) for name in shown["class"]]
    worst = shown.iloc[0]
    figure = new_figure(
        f"{label(worst['class'])} is the class with the lowest F1: {worst['F1']:.2f} ± {worst['F1 ±']:.2f}"
        + (f"; the lowest {MOST_CLASSES} of {len(table)} classes are shown" if len(table) > MOST_CLASSES else ""),
        x="share, with its standard error",
    )
    for index, score in enumerate(SCORES):
        figure.add_scatter(
            x=shown[score],
            y=[position + 0.22 * (index - 1) for position in range(len(names))],
            text=[f"{name}: {score}" for name in names],
            error_x=within(shown[score], shown[f"{score} ±"]),
            name=score,
            mode="markers",
            marker={"color": CATEGORIES[index], "symbol": SYMBOLS[index], "size": 9},
            hovertemplate="%{text} %{x:.3f}<extra></extra>",
        )
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    figure.update_yaxes(range=[len(names) - 0.5, -0.5], **ticks).update_layout(height=180 + 34 * len(names))
    return Plot("classes", figure, table)


def class_table(classes: list[str], counts: list[list[int]]) -> pd.DataFrame:
    """A row per class, the lowest F1 first: class, support, and each score with its standard error ("F1 ±").

    `support` is the number of test images of the class. If no image was predicted as the class, its precision is
    missing.
    """
    import pandas as pd

    rows = []
    for index, name in enumerate(classes):
        hits, support, taken = counts[index][index], sum(counts[index]), sum(row[index] for row in counts)
        shares = ((hits, taken), (hits, support), (hits, taken + support - hits))
        row = {"class": name, "support": support}
        for score, share in zip(SCORES, shares, strict=True):
            row |= {score: _value(score, share), f"{score} ±": _error(score, share)}
        rows.append(row)
    return pd.DataFrame(rows).sort_values("F1", kind="stable", ignore_index=True)


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


def reliability(run: RecordedRun) -> Plot | None:
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
