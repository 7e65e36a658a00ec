"""Reads and writes run folders: events, tables, summaries. Knows neither Ray nor torch."""

from tuner.results.folder import Folder, LocalFolder, open_folder
from tuner.results.run import Run, find_runs, load_run

__all__ = ["Folder", "LocalFolder", "Run", "find_runs", "load_run", "open_folder"]
