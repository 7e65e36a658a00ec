"""Studies side by side, as a page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.events import finite
from tuner.results import compare
from tuner.results.run import RecordedRun
from tuner.service.errors import Code, ServiceError
from tuner.text import in_utf8, printable

PLACES = 200  # points of a course


@dataclass(frozen=True)
class Course:
    """The value of the leading trial of a study after this many epochs of all its trials."""

    study: int
    name: str
    epochs: list[int]
    values: list[float]


@dataclass(frozen=True)
class Compared:
    """Several studies: who is ahead and how surely, a row for each, and their courses."""

    metric: str
    mode: str
    conclusion: str
    rows: list[dict[str, Any]]
    courses: list[Course]


def compared(runs: Sequence[tuple[int, RecordedRun]]) -> Compared:
    """Compare the runs of studies. Raises ServiceError if there are too few, or their metrics differ."""
    try:
        found = compare([run for _, run in runs])
    except RunFolderError as error:
        told = str(error)
        for study, run in sorted(runs, key=lambda one: -len(one[1].path)):
            told = told.replace(run.path, f"@{study}")
        raise ServiceError(Code.CONFLICT, printable(told)) from error
    names = {name: f"@{study} {run.name}" for name, (study, run) in zip(found.names, runs, strict=True)}
    rows = [
        {"study": names[row.pop("run")], **{key: value if _plain(value) else None for key, value in row.items()}}
        for row in found.table.to_dict("records")
    ]
    conclusion = found.conclusion
    for name in sorted(names, key=len, reverse=True):
        conclusion = conclusion.replace(name, names[name])
    first = found.runs[0]
    courses = [_course(study, run) for study, run in runs]
    return Compared(first.metric, first.mode, printable(conclusion), in_utf8(rows), courses)


def _plain(value: object) -> bool:
    return finite(value) or isinstance(value, str)


def _course(study: int, run: RecordedRun) -> Course:
    found = run.leads
    steps = [*found[: -1 : max(1, len(found) // PLACES)], *found[-1:]]
    return Course(study, printable(f"@{study} {run.name}"), [one.epochs for one in steps], [one.value for one in steps])
