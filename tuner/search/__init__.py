"""Search algorithms: declarations for the study file, and the searchers that they build. Knows no executor."""

from tuner.search.base import EndStatus, Problem, SearchAlgorithm, Searcher
from tuner.search.bohb import BOHB
from tuner.search.grid import Grid
from tuner.search.history import EarlierStudy, EarlierTrial, History, Learned, learn, start_from_runs, why_unfit
from tuner.search.hyperopt import HyperOpt
from tuner.search.multi_fidelity import MultiFidelityGP
from tuner.search.optuna import Optuna
from tuner.search.portfolio import of_defaults, suggested_by_portfolio, usual_names
from tuner.search.proposals import Proposals
from tuner.search.random import Random
from tuner.search.refinement import Region, good_region, grid_of

__all__ = [
    "BOHB",
    "EarlierStudy",
    "EarlierTrial",
    "EndStatus",
    "Grid",
    "History",
    "HyperOpt",
    "Learned",
    "MultiFidelityGP",
    "Optuna",
    "Problem",
    "Proposals",
    "Random",
    "Region",
    "SearchAlgorithm",
    "Searcher",
    "good_region",
    "grid_of",
    "learn",
    "of_defaults",
    "start_from_runs",
    "suggested_by_portfolio",
    "usual_names",
    "why_unfit",
]
