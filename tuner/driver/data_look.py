"""Checks the study's data while Ray starts: unusable data are refused, files that are left out are recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from tuner.history.data_record import DATA_FILE
from tuner.storage.folder import Folder
from tuner.study.declaration import Study
from tuner.worker.implementation import DataLook, implementation_of


def look(study: Study, *, before: bool = False) -> DataLook | None:
    """The findings, None if there is nothing to say; raises DataError if no trial could work on the data.

    The images are decoded as a first random configuration needs them. `before`: see `tuner.history.data_record`.
    """
    config = study.search_space.sample(np.random.default_rng(study.seed))
    trial = study.declared_trial
    return implementation_of(trial).look(trial, config, split_seed=study.seed, before=before)


def write_data(folder: Folder, found: DataLook | None) -> None:
    """Write data.json into a run's folder."""
    if found is not None:
        folder.write(DATA_FILE, f"{json.dumps(found.record, indent=1)}\n".encode())


def news_of(found: DataLook | None, told: Iterable[str]) -> list[str]:
    """The notices that the run doesn't have yet."""
    known = set(told)
    return [] if found is None else [notice for notice in found.notices if notice not in known]
