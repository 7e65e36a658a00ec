"""Studies side by side, as a page shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.events import finite
from tuner.plots.groups import comparison_against
from tuner.results import compare
from tuner.results.run import RecordedRun
from tuner.service.errors import Code, ServiceError
from tuner.text import in_utf8, printable


@dataclass(frozen=True)
class Compared:
    """Several studies: who is ahead and how surely, a row for each, and plotly's JSON of the best values so far."""

    metric: str
    mode: str
    conclusion: str
    rows: list[dict[str, Any]]
    figure: dict[str, Any]


def compared(runs: Sequence[tuple[int, RecordedRun]]) -> Compared:
    """Compare the runs of studies. Raises ServiceError if there are too few, or their metrics differ."""
    try:
        found = compare([run for _, run in runs], [printable(f"@{study} {run.name}") for study, run in runs])
    except RunFolderError as error:
        told = str(error)
        for study, run in sorted(runs, key=lambda one: -len(one[1].path)):
            told = told.replace(run.path, f"@{study}")
        raise ServiceError(Code.CONFLICT, printable(told)) from error
    rows = [
        {"study": row.pop("run"), **{key: value if _plain(value) else None for key, value in row.items()}}
        for row in found.table.to_dict("records")
    ]
    first, figure = found.runs[0], json.loads(comparison_against(found).figure.to_json())
    return Compared(first.metric, first.mode, printable(found.conclusion), in_utf8(rows), in_utf8(figure))


def _plain(value: object) -> bool:
    return finite(value) or isinstance(value, str)
