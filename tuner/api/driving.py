"""How a search is driven from Python: Ray is loaded without its messages, and progress is shown."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tuner.errors import asked_from_python
from tuner.history.events import Event
from tuner.installation import check_trains
from tuner.results.found import load_run
from tuner.results.run import RecordedRun

if TYPE_CHECKING:
    from tuner.console.progress import Plan
    from tuner.driver import Driving


def driver_room() -> ModuleType:
    """The package that runs a search, imported without Ray's messages; raises StudyError if a library is missing."""
    check_trains("a search")
    with ray_says_nothing():
        from tuner import driver
    return driver


def resumed(
    run: RecordedRun | str | Path,
    limits: Mapping[str, float | None],
    options: Sequence[Any],
    *,
    progress: bool,
    **asked: Any,
) -> RecordedRun:
    """The run after a driver has gone on with it; `options` are the first of `Driving`, `asked` those of its `resume`.

    Raises RunFolderError if there is no such run.
    """
    driver, path = driver_room(), run.path if isinstance(run, RecordedRun) else run
    from tuner.console.progress import Plan

    earlier, driving = load_run(path), driver.Driving(*options)
    with shown(Plan.of_run(earlier, limits), driving, progress=progress, earlier=earlier.events) as driven:
        found: RecordedRun = driver.resume(path, limits, driven, **asked)
    return found


@contextmanager
def shown(plan: Plan, driving: Driving, *, progress: bool, earlier: Sequence[Event] = ()) -> Iterator[Driving]:
    """How a search is driven whose progress is shown within the block."""
    from tuner.console.notebook import shown_here

    with asked_from_python(), shown_here(plan, quiet=not progress, earlier=earlier) as listener:
        yield replace(driving, listeners=[*driving.listeners, listener])


@contextmanager
def ray_says_nothing() -> Iterator[None]:
    """Within the block Ray, when imported in a notebook, doesn't print which widgets it would like to have."""
    logging.getLogger("ray.widgets.util").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"):
        yield
