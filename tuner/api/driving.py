"""How a search is driven from Python: Ray is loaded without its messages, and progress is shown."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tuner.errors import asked_from_python
from tuner.history.events import Event, Listener
from tuner.lifecycle.targets import listed
from tuner.machine.installation import check_trains
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run

if TYPE_CHECKING:
    from tuner.console.live_table import Plan
    from tuner.driver import Driving


def driver_room() -> ModuleType:
    """The package that runs a search, imported without Ray's messages; raises StudyError if a library is missing."""
    check_trains("a search")
    with ray_says_nothing():
        from tuner import driver
    return driver


def driving_with(
    concurrency: int | None,
    address: str | None,
    wandb: str | None,
    nice: int | None,
    grace: float | None,
    listeners: Iterable[Listener],
    notify: Iterable[str],
    mlflow: str | None,
) -> Driving:
    """How a driver works with what a caller of `tuner.run` and others has asked for."""
    made: Driving = driver_room().Driving(
        concurrency, address, wandb, nice, grace, [*listeners], listed(notify), mlflow
    )
    return made


def resumed(
    run: RecordedRun | str | Path,
    limits: Mapping[str, float | None],
    driving: Driving,
    *,
    progress: bool,
    **asked: Any,
) -> RecordedRun:
    """The run after a driver has gone on with it; `asked` are further arguments of its `resume`.

    Raises RunFolderError if there is no such run.
    """
    from tuner.console.live_table import Plan

    path = run.path if isinstance(run, RecordedRun) else run
    earlier = load_run(path)
    with shown(Plan.of_run(earlier, limits), driving, progress=progress, earlier=earlier.events) as driven:
        found: RecordedRun = driver_room().resume(path, limits, driven, **asked)
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
