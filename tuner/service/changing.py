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


def set_concurrency(
    connection: sqlite3.Connection, study: SubmittedStudy, concurrency: int, devices: Sequence[Device]
) -> None:
    """For its next driver, with the devices that this asks for; one that wasn't checked yet gets those by its check."""
    columns: dict[str, object] = {"options": {**study.options, "concurrency": concurrency}}
    if study.facts and not study.external:
        wanted = studies.wanted_devices(connection, study.id)
        columns["demand"] = demand_of(Facts.read(study.facts), devices, wanted, concurrency)
    studies.update(connection, study.id, **columns)


def check_limits(limits: Mapping[str, float], concurrency: int | None) -> None:
    """Raise ServiceError for limits of a budget, or trials at once, that can't be."""
    told = dict(limits) if concurrency is None else {**limits, "concurrency": concurrency}
    try:
        check_names(limits)
        if told:
            from tuner.orders.order import checked

            checked("set", told)
    except StudyError as error:
        raise ServiceError(Code.REFUSED, str(error)) from error
