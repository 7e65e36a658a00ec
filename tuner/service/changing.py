"""How many trials of a submitted study run at once, changed after its submission."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from tuner.budget import check_names
from tuner.errors import StudyError
from tuner.service.checking.facts import Facts, demand_of
from tuner.service.database import studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Device, SubmittedStudy

GOING_ON = ("running", "paused", "interrupted")  # trials that can


def set_concurrency(
    connection: sqlite3.Connection, study: SubmittedStudy, concurrency: int, devices: Sequence[Device]
) -> None:
    """Set the number for the study's next driver, with the devices it needs; before the check, the check sets these."""
    columns: dict[str, object] = {"options": {**study.options, "concurrency": concurrency}}
    if study.facts and not study.external:
        wanted = studies.wanted_devices(connection, study.id)
        columns["demand"] = demand_of(Facts.read(study.facts), devices, wanted, concurrency)
    studies.update(connection, study.id, **columns)


def check_above(study: SubmittedStudy, limits: Mapping[str, float]) -> None:
    """Raise ServiceError for a limit that the study's run has reached already: its next driver would refuse it.

    As long as a trial can go on, the limit leaves something to do.
    """
    counts: Mapping[str, int] = study.progress.get("trials") or {}
    if study.run is None or study.devices or any(counts.get(status) for status in GOING_ON):
        return
    reached = {"trials": sum(counts.values()), "total_epochs": int(study.progress.get("epochs") or 0)}
    for name, limit in limits.items():
        if limit <= reached.get(name, -1):
            raise ServiceError(
                Code.REFUSED,
                f"{name} counts the whole run and must be above the {reached[name]} that it has",
                f"{limit:g}",
                f"use {reached[name] + 1} or more",
                field=f"limits.{name}",
            )


def check_limits(limits: Mapping[str, float], concurrency: int | None) -> None:
    """Raise ServiceError for impossible limits of a budget or numbers of trials at once."""
    told = dict(limits) if concurrency is None else {**limits, "concurrency": concurrency}
    try:
        check_names(limits)
        if told:
            from tuner.orders.order import checked

            checked("set", told)
    except StudyError as error:
        raise ServiceError(Code.REFUSED, str(error)) from error
