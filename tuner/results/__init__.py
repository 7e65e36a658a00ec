"""Everything computed from a run's folder: tables, findings, comparisons, exports. Needs neither Ray nor torch."""

from tuner.history.events import EventFollower
from tuner.results.comparison import Comparison, compare
from tuner.results.export import export
from tuner.results.found import find_runs, follow_log, load_run
from tuner.results.refining import Refinement, refine
from tuner.results.run import Run
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.locations import open_folder

__all__ = [
    "Comparison",
    "EventFollower",
    "Folder",
    "LocalFolder",
    "Refinement",
    "Run",
    "compare",
    "export",
    "find_runs",
    "follow_log",
    "load_run",
    "open_folder",
    "refine",
]
