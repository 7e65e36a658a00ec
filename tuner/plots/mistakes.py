"""What the winner gets wrong on the test split, from the data in `best/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.history.scored import CONFUSION, MISTAKE, MISTAKES
from tuner.plots.base import GREY, Plot, new_figure

if TYPE_CHECKING:
    from tuner.results.run import Run

SHOWN_MISTAKES = 16
COLUMNS = 8
LARGEST_WRITTEN = 20  # classes up to which a matrix has its counts written into it


def confusion_matrix(run: Run) -> Plot:
    """How often the winner takes each class for each other one, on the test split."""
    import pandas as pd

    classes, counts = _confusion(run) or ([], [])
    rows = [
        (label, classes[other], count)
        for label, row in zip(classes, counts, strict=True)
        for other, count in enumerate(row)
        if count and classes[other] != label
    ]
    rows.sort(key=lambda row: -row[2])
    table = pd.DataFrame(rows, columns=["class", "taken for", "images"])
    if not classes:
        return Plot("confusion matrix", new_figure("The winner was not scored on a test split"), table)
    worst = table.iloc[0] if len(table) else None
    title = "No test image was taken for another class"
    if worst is not None:
        title = f"Most often, {worst['class']} is taken for {worst['taken for']}: {worst['images']} of the test images"
    figure = new_figure(title, x="predicted", y="class")
    figure.add_heatmap(
        z=counts,
        x=classes,
        y=classes,
        colorscale="Blues",
        showscale=False,
        text=counts,
        texttemplate="%{text}" if len(classes) <= LARGEST_WRITTEN else None,
        hovertemplate="%{y} taken for %{x}: %{z}<extra></extra>",
    )
    figure.update_xaxes(type="category").update_yaxes(type="category", autorange="reversed")
    figure.update_layout(height=max(360, min(900, 160 + 34 * len(classes))))
    return Plot("confusion matrix", figure, table)


def mistakes(run: Run) -> Plot:
    """The test images that the winner is most confidently wrong about."""
    import pandas as pd

    found = shown_mistakes(run)
    columns = [name for name in MISTAKE if name != "image"]
    table = pd.DataFrame([{name: one[name] for name in columns} for one in found], columns=columns)
    if not found:
        return Plot("mistakes", new_figure("The winner has no mistakes to show"), table)
    lines = -(-len(found) // COLUMNS)
    figure = new_figure("The winner's most confident mistakes: its answer, and the right one")
    for position, one in enumerate(found):
        x, y = position % COLUMNS, -(position // COLUMNS) * 1.5
        figure.add_layout_image(
            source=f"data:image/png;base64,{one['image']}",
            xref="x",
            yref="y",
            x=x + 0.05,
            y=y,
            sizex=0.9,
            sizey=0.9,
            sizing="contain",
        )
        text = f"{one['predicted']} ({one['confidence']:.0%})<br>is {one['label']}"
        figure.add_annotation(x=x + 0.5, y=y - 0.95, text=text, showarrow=False, yanchor="top", font={"color": GREY})
    figure.update_xaxes(visible=False, range=[0, COLUMNS]).update_yaxes(visible=False, range=[-1.5 * lines + 0.1, 0.05])
    figure.update_layout(height=100 + 190 * lines)
    return Plot("mistakes", figure, table)


def scored(run: Run) -> bool:
    """Whether the winner was scored on a test split."""
    return _confusion(run) is not None


def shown_mistakes(run: Run) -> list[dict[str, Any]]:
    """The most confident mistakes: index, label, predicted, confidence, and the image as PNG in base64."""
    return list((run.scored(MISTAKES) or [])[:SHOWN_MISTAKES])


def _confusion(run: Run) -> tuple[list[str], list[list[int]]] | None:
    """Classes, and for each a row of counts by predicted class; None if the winner was not scored."""
    found = run.scored(CONFUSION)
    return None if found is None else (found["classes"], found["counts"])
