"""The good region of a study's run as the next study: its differences, and its submission."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Literal

from tuner.service.bundles import read_back
from tuner.service.checking.parent import Refined, refined
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Submission, SubmittedStudy, of_driver
from tuner.service.service import Service
from tuner.text import printable

Kind = Literal["grid", "narrowed"]
MOST_LINES = 2_000  # of each text that are compared


@dataclass(frozen=True)
class NextStudy:
    """A study for the good region of another one: why this region, its unified diff in lines, and its submission."""

    summary: str
    diff: list[str]
    submission: Submission


def next_study(service: Service, study: int, kind: Kind) -> NextStudy:
    """Refine a study's run. Raises ServiceError if it has none yet, too few trials, or its file is gone."""
    found = service.study(study)
    bundle = service.folder.bundle(study)
    if found.run is None or not found.main or not bundle.is_dir():
        raise ServiceError(
            Code.CONFLICT,
            "refining needs a study that has begun",
            f"one that is {found.state}",
            "wait for it",
        )
    files = read_back(bundle, service.limits)
    main = _new_name(Path(found.main).stem, kind, files)
    text = refined(found.run, bundle / main, kind, service.limits)
    return NextStudy(printable(text.summary), _difference(found, text), _submission(found, text, files))


def _submission(study: SubmittedStudy, text: Refined, files: dict[str, bytes]) -> Submission:
    """The submission: changes of the study are in the new file already; the driver's options stay the same."""
    return Submission(
        text.main,
        {**files, text.main: text.after.encode()},
        preemptible=study.preemptible,
        options=of_driver(study.options),
    )


def _difference(study: SubmittedStudy, text: Refined) -> list[str]:
    before, after = (one.splitlines()[:MOST_LINES] for one in (text.before, text.after))
    return [printable(line) for line in unified_diff(before, after, study.main, text.main, n=2, lineterm="")]


def _new_name(stem: str, kind: Kind, files: dict[str, bytes]) -> str:
    names = (f"{stem}_{kind}.py", *(f"{stem}_{kind}_{number}.py" for number in range(2, 1000)))
    return next(name for name in names if name not in files)
