"""Reads and writes run folders: events, tables, summaries, what follows from them. Knows neither Ray nor torch."""

from tuner.results.comparison import Comparison, compare
from tuner.results.events import EventFollower
from tuner.results.export import export
from tuner.results.folder import Folder, LocalFolder
from tuner.results.locations import open_folder
from tuner.results.refining import Refinement, refine
from tuner.results.report import comparison_html, report_html, write_report
from tuner.results.run import Run, find_runs, load_run

__all__ = [
    "Comparison",
    "EventFollower",
    "Folder",
    "LocalFolder",
    "Refinement",
    "Run",
    "compare",
    "comparison_html",
    "export",
    "find_runs",
    "load_run",
    "open_folder",
    "refine",
    "report_html",
    "write_report",
]
