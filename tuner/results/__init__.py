"""Everything computed from a run's folder: tables, findings, comparisons, exports. Needs neither Ray nor torch."""

from tuner.history.events import CONCLUDING, EventFollower
from tuner.results.comparison import compare
from tuner.results.export import export
from tuner.results.refining import Refinement, refine
from tuner.results.run_folders import find_runs, follow_log, load_run

__all__ = [
    "CONCLUDING",
    "EventFollower",
    "Refinement",
    "compare",
    "export",
    "find_runs",
    "follow_log",
    "load_run",
    "refine",
]
