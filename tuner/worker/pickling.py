"""Pickles a trial or a study for another process; separate from the code that runs it, which loads Ray Tune."""

from __future__ import annotations

import sys

from ray import cloudpickle

from tuner.study import Study
from tuner.study_file import STUDY_MODULE
from tuner.trial import Trial


def pickle_trial(trial: Trial) -> bytes:
    """The trial for another process, including the code of study files: workers can't import these files."""
    return _with_code_of_studies(trial)


def pickle_study(study: Study) -> bytes:
    """The study for another process, in the same way."""
    return _with_code_of_studies(study)


def _with_code_of_studies(value: object) -> bytes:
    """Pickled with the code of all study files that were loaded here: a partial function doesn't name its own."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(STUDY_MODULE)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(value))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
