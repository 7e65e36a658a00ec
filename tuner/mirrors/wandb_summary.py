"""The content of the W&B run for a whole search: tables, figures in sections, the report, and the winner."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import re
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.history.event_lines import finite, in_json
from tuner.history.refits import TRAINED_ON
from tuner.history.scored import BEST
from tuner.plots import Plots, of_tasks
from tuner.plots.mistakes import fields_of, shown_mistakes
from tuner.results.front import reported_second
from tuner.results.run import RecordedRun
from tuner.results.wording import shipped, trained_again, trials_and_repeats
from tuner.space.values import recorded

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import wandb

SECTIONS = {  # W&B groups panels by the text before the slash
    "search": ("history", "tradeoff", "front_growth", "curves", "distribution"),
    "hyperparameters": ("importance", "parallel", "slice", "contour", "rank"),
    "cost": ("timeline", "savings", "costs"),
    "winner": (*of_tasks(), "mistakes", "least_sure", "winner_curves"),
}
OUTCOMES = {"order_obeyed": "obeyed", "order_refused": "refused"}  # of orders, by their events
_NUMBERS = ("x", "y", "z", "values")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_.-]")  # an artifact's name


def contents(run: RecordedRun) -> dict[str, Any]:
    """All panels of the run that have something to show, by their keys."""
    import wandb

    from tuner.html_report import REPORT
    from tuner.results.tables import configurations_table, trials_table

    found: dict[str, Any] = {}
    if run.record.trials:
        found["trials"] = _table(
            trials_table(run.record, run.costs, reported_second(run)).drop(columns=["started", "ended"])
        )
    if run.record.repeated:
        found["configurations"] = _table(configurations_table(run.record))
    found |= {f"{section}/{name}": wandb.Plotly(figure) for section, name, figure in _figures(run)}
    if mistakes := _mistakes(run):
        found["winner/mistaken_images"] = mistakes
    if orders := _orders(run):
        found["search/orders"] = orders
    if run.folder.exists(REPORT):
        found["report"] = wandb.Html(run.folder.read(REPORT).decode(), inject=False)
    return found


def add_winner(shown: wandb.Run, run: RecordedRun) -> None:
    """The winner's files as a model artifact, whose newest version is `best`, with its metrics and configuration."""
    import wandb

    best = run.best
    if best is None or not run.folder.exists(f"{BEST}/config.json"):
        return
    metrics = {name: value for name, value in run.best_metrics.items() if finite(value)}
    metadata = {**metrics, "trial": best.trial, "epoch": run.best_epoch, "config": best.config_in_json}
    metadata |= {"trained_on": TRAINED_ON} if trained_again(run.record) else {}
    told = "; ".join(shipped(run))
    with tempfile.TemporaryDirectory() as temporary:
        folder = run.folder.fetch(BEST, Path(temporary) / BEST)
        name = f"{_NOT_IN_A_NAME.sub('-', run.name)}-winner"
        artifact = wandb.Artifact(name, type="model", description=told or f"trial {best.trial}", metadata=metadata)
        artifact.add_dir(str(folder))
        shown.log_artifact(artifact, aliases=["latest", "best"])


def alert_about(shown: wandb.Run, run: RecordedRun) -> None:
    """Let W&B alert its users of a search that did not end well."""
    if run.status in ("failed", "interrupted"):
        done = trials_and_repeats(run.record)
        level = "ERROR" if run.status == "failed" else "WARN"
        shown.alert(f"The search has {_END[run.status]}", f"{run.title}: {done}; {run.end_reason or ''}", level)


_END = {"failed": "failed: no trial succeeded", "interrupted": "been interrupted"}


def has_marks(figure: go.Figure) -> bool:
    """Whether a figure shows a number or an image."""
    return bool(figure.layout.images) or any(map(_is_drawn, figure.data))


# Inside


def _figures(run: RecordedRun) -> Iterator[tuple[str, str, go.Figure]]:
    """Section, name and figure of those that show something."""
    for section, names in SECTIONS.items():
        for name in names:
            figure = getattr(Plots(run), name)()
            if has_marks(figure):
                yield section, name, figure


def _is_drawn(trace: Any) -> bool:
    content = trace.to_plotly_json()
    values = [content[name] for name in _NUMBERS if content.get(name) is not None]
    values += [axis.get("values") for axis in content.get("dimensions") or () if axis.get("values") is not None]
    return bool(values) and all(_has_value(each) for each in values)


def _has_value(values: Any) -> bool:
    listed = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(listed, dict):  # plotly's binary form of an array
        return bool(listed.get("bdata"))
    flat = chain.from_iterable(row if isinstance(row, list | tuple) else [row] for row in listed)
    return any(value is not None and not (isinstance(value, float) and math.isnan(value)) for value in flat)


def _table(frame: pd.DataFrame) -> wandb.Table:
    import wandb

    plain = frame.astype(object)
    plain = plain.where(plain.notna(), None)
    rows = [
        [value if recorded(value) == value else str(value) for value in row]  # a tuple, say, is no JSON
        for row in plain.itertuples(index=False, name=None)
    ]
    return wandb.Table(columns=list(frame.columns), data=rows, allow_mixed_types=True)  # type: ignore[arg-type]


def _mistakes(run: RecordedRun) -> wandb.Table | None:
    """The test images that the winner is most wrong about, a row each."""
    import wandb

    found = shown_mistakes(run)
    columns = fields_of(found)
    rows = [[image, *(one[name] for name in columns)] for one in found if (image := _image(one["image"])) is not None]
    return wandb.Table(columns=["image", *columns], data=rows) if rows else None  # type: ignore[arg-type]


def _image(encoded: str) -> wandb.Image | None:
    """A PNG in base64; None if it is damaged."""
    import wandb
    from PIL import Image

    try:
        with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
            picture.load()
            return wandb.Image(picture)
    except (OSError, binascii.Error, SyntaxError):
        return None


def _orders(run: RecordedRun) -> wandb.Table | None:
    """Users' orders to the search while it ran, and their results."""
    import wandb

    rows = [
        [event["verb"], json.dumps(event["arguments"]), event["by"], OUTCOMES[event["event"]], event["message"]]
        for event in map(in_json, run.events)
        if event["event"] in OUTCOMES
    ]
    columns = ["order", "arguments", "by", "outcome", "answer"]
    return wandb.Table(columns=columns, data=rows) if rows else None  # type: ignore[arg-type]
