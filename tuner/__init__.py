"""Hyperparameter search for people who fine-tune image classifiers, on Ray Tune.

A study file declares what to search (`Study`, domains, a search algorithm, a scheduler); `python -m tuner run`
searches. Importing this package loads neither Ray nor torch; the functions that need them do.
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:  # no file beside a study may hide a module, such as json.py
    sys.path.append(sys.path.pop(0))

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tuner.machine import starting as _starting  # noqa: F401 -- first: Ctrl-C while the rest is imported
from tuner.machine.version import __version__ as __version__

if TYPE_CHECKING:
    from tuner.api.callbacks import LightningReport, TransformersReport
    from tuner.api.calls import combine, export_model, find_label_errors, load_model, refit, resume, run, start
    from tuner.api.run import Comparison, Run, compare, confirm, find_runs, load_run
    from tuner.ask_tell import AskedTrial, Search
    from tuner.errors import ReportError, SearchFailed, StudyError, TrialError, TunerError
    from tuner.results import refine
    from tuner.results.export import export
    from tuner.schedule import ASHA, HyperBand, MedianStopping, NoEarlyStopping
    from tuner.search import BOHB, Grid, History, HyperOpt, MultiFidelityGP, Optuna, Random
    from tuner.service.client import connect
    from tuner.space import (
        choice,
        grid_search,
        lograndint,
        loguniform,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        sample_from,
        uniform,
    )
    from tuner.study.as_json import study_from_json, study_to_json
    from tuner.study.budget import Budget
    from tuner.study.declaration import Study
    from tuner.study.failures import Failures
    from tuner.study.file import load_study
    from tuner.study.resources import Resources
    from tuner.trial import External, Folds, ImageClassifier, Latency, RecallAtPrecision, Table
    from tuner.trial.session import checkpoint, report

__all__ = [
    "ASHA",
    "BOHB",
    "AskedTrial",
    "Budget",
    "Comparison",
    "External",
    "Failures",
    "Folds",
    "Grid",
    "History",
    "HyperBand",
    "HyperOpt",
    "ImageClassifier",
    "Latency",
    "LightningReport",
    "MedianStopping",
    "MultiFidelityGP",
    "NoEarlyStopping",
    "Optuna",
    "Random",
    "RecallAtPrecision",
    "ReportError",
    "Resources",
    "Run",
    "Search",
    "SearchFailed",
    "Study",
    "StudyError",
    "Table",
    "TransformersReport",
    "TrialError",
    "TunerError",
    "checkpoint",
    "choice",
    "combine",
    "compare",
    "confirm",
    "connect",
    "export",
    "export_model",
    "find_label_errors",
    "find_runs",
    "grid_search",
    "load_model",
    "load_run",
    "load_study",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "refine",
    "refit",
    "report",
    "resume",
    "run",
    "sample_from",
    "start",
    "study_from_json",
    "study_to_json",
    "uniform",
]

_ROOMS = {
    "tuner.api.calls": "combine export_model find_label_errors load_model refit resume run start",
    "tuner.api.run": "Comparison Run compare confirm find_runs load_run",
    "tuner.ask_tell": "AskedTrial Search",
    "tuner.study.budget": "Budget",
    "tuner.errors": "ReportError SearchFailed StudyError TrialError TunerError",
    "tuner.study.failures": "Failures",
    "tuner.study.resources": "Resources",
    "tuner.results": "refine",
    "tuner.results.export": "export",
    "tuner.schedule": "ASHA HyperBand MedianStopping NoEarlyStopping",
    "tuner.search": "BOHB Grid History HyperOpt MultiFidelityGP Optuna Random",
    "tuner.service.client": "connect",
    "tuner.trial.session": "checkpoint report",
    "tuner.space": "choice grid_search lograndint loguniform qlograndint qloguniform qrandint qrandn quniform "
    "randint randn sample_from uniform",
    "tuner.study.declaration": "Study",
    "tuner.study.file": "load_study",
    "tuner.study.as_json": "study_from_json study_to_json",
    "tuner.api.callbacks": "LightningReport TransformersReport",
    "tuner.trial": "External Folds ImageClassifier Latency RecallAtPrecision Table",
}  # each is loaded when one of its names is used: the command's help needs none of them
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
