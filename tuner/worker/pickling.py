"""A trial or a study on its way to another process; apart from what runs it there, which loads Ray Tune."""

from __future__ import annotations

import sys

from ray import cloudpickle

from tuner.study import Study
from tuner.study_file import STUDY_MODULE
from tuner.trial import Trial


def pickle_trial(trial: Trial) -> bytes:
    """The trial for another process, with the code of the study file in it: workers can't import that file."""
    names = {getattr(function, "__module__", "") or "" for function in trial.functions}
    return _with_code_of(names, trial)


def pickle_study(study: Study) -> bytes:
    """The study for another process, with the code of study files in it, whatever of the study it belongs to."""
    return _with_code_of(set(sys.modules), study)


def _with_code_of(names: set[str], value: object) -> bytes:
    modules = [sys.modules[name] for name in names if name.startswith(STUDY_MODULE) and name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(value))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
