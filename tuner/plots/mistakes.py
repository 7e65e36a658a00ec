"""What the winner gets wrong on the test split, from the data in `best/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.history.scored import CONFUSION, LEAST_SURE, MISTAKE, MISTAKES
from tuner.plots.figure import Plot, label, new_figure
from tuner.results.run import RecordedRun

if TYPE_CHECKING:
    import plotly.graph_objects as go

SHOWN_MISTAKES = 16
ALSO = ("confidence", "file")  # of an image, if they are known
COLUMNS = 8
ROW = 1.5  # height of an image with its text, in edges of the image
LARGEST_WRITTEN = 20  # up to so many classes a matrix shows its counts
FIT_A_PHONE = 6  # classes up to which a matrix needs no scrolling on a phone
MOST_TIES = 3  # the most that a title names


def confusion(run: RecordedRun) -> Plot | None:
    """How often the winner confuses each class with each other one, on the test split; None if it was not scored."""
    import pandas as pd

    found = confusion_counts(run)
    if found is None or not found[0]:
        return None
    classes, counts = found
    rows = [
        (name, classes[other], count)
        for name, row in zip(classes, counts, strict=True)
        for other, count in enumerate(row)
        if count and classes[other] != name
    ]
    rows.sort(key=lambda row: -row[2])
    figure = heatmap(_most_frequent(rows), "predicted", "class", classes, counts)
    figure.update_traces(hovertemplate="%{y} taken for %{x}: %{z}<extra></extra>")
    table = pd.DataFrame(rows, columns=["class", "taken for", "images"])
    return Plot("confusion matrix", figure, table, wide=len(classes) > FIT_A_PHONE)


def heatmap(title: str, x: str, y: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> go.Figure:
    """Counts of pairs of names as colours, the first row on top."""
    figure, named = new_figure(title, x=x, y=y), [label(name) for name in names]
    figure.add_heatmap(
        z=counts,
        x=named,
        y=named,
        colorscale="Blues",
        showscale=False,
        text=counts,
        texttemplate="%{text}" if len(names) <= LARGEST_WRITTEN else None,
    )
    figure.update_xaxes(type="category").update_yaxes(type="category", autorange="reversed")
    return figure.update_layout(height=max(360, min(900, 160 + 34 * len(names))))


def mistakes(run: RecordedRun) -> Plot | None:
    """The test images that the winner is most wrong about, of classes most confidently; None if there are none."""
    found = shown_mistakes(run)
    kind = "most confident" if any("confidence" in one for one in found) else "worst"
    return _images("mistakes", f"The winner's {kind} mistakes: its answer, and the right one", found)


def least_sure(run: RecordedRun) -> Plot | None:
    """The test images with the winner's least confident predictions, right or wrong; None if there are none."""
    return _images("least sure", "The images that the winner is least sure about", shown_least_sure(run))


def shown_mistakes(run: RecordedRun) -> list[dict[str, Any]]:
    """The worst mistakes: index, label, predicted, the image as PNG in base64, and what may be (`ALSO`)."""
    return list((run.scored(MISTAKES) or [])[:SHOWN_MISTAKES])


def shown_least_sure(run: RecordedRun) -> list[dict[str, Any]]:
    """The images with the least confident predictions, as in `shown_mistakes`."""
    return list((run.scored(LEAST_SURE) or [])[:SHOWN_MISTAKES])


def fields_of(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is known of all these images, apart from how they look."""
    return [field for field in (*MISTAKE, *ALSO) if field != "image" and all(field in one for one in found)]


def confusion_counts(run: RecordedRun) -> tuple[list[str], list[list[int]]] | None:
    """Classes, and for each a row of counts by predicted class; None if the winner was not scored."""
    found = run.scored(CONFUSION)
    return None if found is None else (found["classes"], found["counts"])


# Inside


def _most_frequent(rows: list[tuple[str, str, int]]) -> str:
    """A title: the most frequent confusion, or that several are equally frequent."""
    if not rows:
        return "No test image was taken for another class"
    most = rows[0][2]
    ties = [f"{label(name)} for {label(other)}" for name, other, count in rows if count == most]
    images = f"{most} of the test images"
    if len(ties) == 1:
        return f"Most often, {label(rows[0][0])} is taken for {label(rows[0][1])}: {images}"
    if len(ties) > MOST_TIES:
        return f"No confusion stands out: {len(ties)} pairs of classes are confused equally often, {images} each"
    return f"{', '.join(ties[:-1])} and {ties[-1]} are taken equally often: {images} each"


def _images(name: str, title: str, found: list[dict[str, Any]]) -> Plot | None:
    """Images in rows, each with the winner's prediction and, below, where it looked, if that is known."""
    import pandas as pd

    if not found:
        return None
    fields = fields_of(found)
    table = pd.DataFrame([[one[field] for field in fields] for one in found], columns=fields)
    figure = new_figure(title)
    looked = any(one.get("saliency") for one in found)
    row = ROW + looked
    for position, one in enumerate(found):
        x, y = position % COLUMNS, -(position // COLUMNS) * row
        for depth, field in enumerate(("image", "saliency")):
            if one.get(field):
                source = f"data:image/png;base64,{one[field]}"
                place = {"xref": "x", "yref": "y", "x": x + 0.05, "y": y - depth * 0.95, "sizex": 0.9, "sizey": 0.9}
                figure.add_layout_image(source=source, sizing="contain", **place)
        figure.add_annotation(x=x + 0.5, y=y - 0.95 - looked * 0.95, text=_answer(one), showarrow=False, yanchor="top")
    lines = -(-len(found) // COLUMNS)
    figure.update_xaxes(visible=False, range=[0, COLUMNS]).update_yaxes(visible=False, range=[-row * lines + 0.1, 0.05])
    figure.update_layout(height=round(100 + 125 * row * lines))
    return Plot(name, figure, table)


def _answer(one: dict[str, Any]) -> str:
    right = "right" if one["label"] == one["predicted"] else f"is {label(one['label'], 14)}"
    sure = f" ({one['confidence']:.0%})" if "confidence" in one else ""
    return f"{label(one['predicted'], 14)}{sure}<br>{right}"
