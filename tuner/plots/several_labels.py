"""How good the winner is at each of several labels of the test split, and which labels it gets wrong together."""

from __future__ import annotations

from itertools import combinations

from tuner.history.scored import LABELS
from tuner.plots.classes import draw_scores, score_table
from tuner.plots.figure import Plot, label
from tuner.plots.mistakes import FIT_A_PHONE, heatmap
from tuner.results.run import RecordedRun


def label_scores(run: RecordedRun) -> Plot | None:
    """Precision, recall and F1 of each label at its threshold, the worst first; None if it was not scored."""
    found = run.scored(LABELS)
    if found is None:
        return None
    columns = {
        "label": found["labels"],
        "threshold": found["thresholds"],
        "average precision": found["average_precision"],
    }
    return draw_scores("labels", score_table(columns, list(zip(*(found[each] for each in COUNTS), strict=True))))


def mistaken_together(run: RecordedRun) -> Plot | None:
    """On how many test images two labels are both wrong, and each label; None for one label, or if it wasn't scored."""
    import pandas as pd

    found = run.scored(LABELS)
    if found is None or len(found["labels"]) < 2:
        return None
    names, counts = found["labels"], found["wrong_together"]
    rows = [(names[i], names[j], counts[i][j]) for i, j in combinations(range(len(names)), 2) if counts[i][j]]
    rows.sort(key=lambda row: -row[2])
    figure = heatmap(_most_frequent(rows), "wrong as well", "wrong label", names, counts)
    figure.update_traces(hovertemplate="%{y} and %{x} wrong: %{z}<extra></extra>")
    table = pd.DataFrame(rows, columns=["label", "wrong together with", "images"])
    return Plot("wrong together", figure, table, wide=len(names) > FIT_A_PHONE)


# Inside

COUNTS = ("hits", "having", "answered")


def _most_frequent(rows: list[tuple[str, str, int]]) -> str:
    """A title: the labels that are most often wrong together, or that several pairs are."""
    if not rows:
        return "No test image has two wrong labels"
    one, other, most = rows[0]
    ties = sum(count == most for _, _, count in rows)
    if ties > 1:
        return f"{ties} pairs of labels are wrong together equally often: on {most} of the test images each"
    return f"Most often, {label(one)} and {label(other)} are wrong together: on {most} of the test images"
