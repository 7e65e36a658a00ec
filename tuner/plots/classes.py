"""How good the winner is at each class of the test split, from its confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.plots.base import CATEGORIES, Plot, label, new_figure, within
from tuner.plots.mistakes import confusion
from tuner.results.findings import share_error

if TYPE_CHECKING:
    import pandas as pd

    from tuner.results.run import Run

MOST_CLASSES = 30  # of which are drawn, the worst ones; the table has all
SCORES = ("precision", "recall", "F1")
SYMBOLS = ("triangle-up", "square", "circle")

Share = tuple[int, int]  # number of right ones, total number
Error = Callable[[float, int], float]  # from a share and its total number


def class_scores(run: Run) -> Plot | None:
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
