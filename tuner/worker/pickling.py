"""Pickles a trial or a study for another process; separate from the code that runs it, which loads Ray Tune."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ray import cloudpickle

from tuner.space.values import OF_STUDY_FILE, canonical
from tuner.study import Study
from tuner.study_file import STUDY_MODULE
from tuner.trial import Trial


def pickle_trial(trial: Trial) -> bytes:
    """The trial for another process, including the code of study files: workers can't import these files."""
    return with_code_of_studies(trial)


def pickle_study(study: Study) -> bytes:
    """The study for another process, in the same way."""
    return with_code_of_studies(study)


def sendable(config: Mapping[str, Any]) -> Any:
    """The configuration as Ray may pickle it: if it has functions of study files, pickled with their code."""
    return with_code_of_studies(config) if f"{OF_STUDY_FILE}." in canonical(config) else config


def received(config: Any) -> dict[str, Any]:
    """What `sendable` made, where the import path is the driver's."""
    return dict(cloudpickle.loads(config) if isinstance(config, bytes) else config)


def with_code_of_studies(value: object) -> bytes:
    """Pickled with the code of all study files that were loaded here: a partial function doesn't name its own."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(STUDY_MODULE)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(value))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
