"""Hyperparameter search for people who fine-tune image classifiers, on Ray Tune.

A study file declares what to search (`Study`, domains, a search algorithm, a scheduler); `python -m tuner run`
searches. Importing this package loads neither Ray nor torch; the functions that need them do.
"""

from __future__ import annotations

from tuner import starting as _starting  # noqa: F401 -- first: Ctrl-C while the rest is imported
from tuner.api import connect, load_model, resume, run, start
from tuner.ask_tell import AskedTrial, Search
from tuner.budget import Budget
from tuner.errors import ReportError, SearchFailed, StudyError, TrialError, TunerError
from tuner.failures import Failures
from tuner.resources import Resources
from tuner.results import Comparison, Run, compare, export, find_runs, load_run, refine
from tuner.schedule import ASHA, HyperBand, MedianStopping, NoEarlyStopping
from tuner.search import BOHB, Grid, History, HyperOpt, MultiFidelityGP, Optuna, Random
from tuner.session import checkpoint, report
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
from tuner.study import Study
from tuner.study_file import load_study
from tuner.study_json import study_from_json, study_to_json
from tuner.trial import External, ImageClassifier

__version__ = "0.1.0"

__all__ = [
    "ASHA",
    "BOHB",
    "AskedTrial",
    "Budget",
    "Comparison",
    "External",
    "Failures",
    "Grid",
    "History",
    "HyperBand",
    "HyperOpt",
    "ImageClassifier",
    "MedianStopping",
    "MultiFidelityGP",
    "NoEarlyStopping",
    "Optuna",
    "Random",
    "ReportError",
    "Resources",
    "Run",
    "Search",
    "SearchFailed",
    "Study",
    "StudyError",
    "TrialError",
    "TunerError",
    "checkpoint",
    "choice",
    "compare",
    "connect",
    "export",
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
    "report",
    "resume",
    "run",
    "sample_from",
    "start",
    "study_from_json",
    "study_to_json",
    "uniform",
]
