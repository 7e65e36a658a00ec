"""Whether the winner's confidence matches its accuracy, from `best/calibration.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.history.scored import CALIBRATION
from tuner.plots.base import BEST, GREY, SECOND, Plot, new_figure, within
from tuner.results.findings import share_error

if TYPE_CHECKING:
    import pandas as pd

    from tuner.results.run import Run

SMALLEST, LARGEST = 6, 18  # pixels of a mark
CLEAR_GAP = 0.02  # between confidence and accuracy, from which on a title mentions it


def reliability(run: Run) -> Plot | None:
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
