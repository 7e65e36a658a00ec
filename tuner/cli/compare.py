"""`tuner compare`: runs side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.cli.at_service import located
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import write_new


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders with the same metric")
    parser.add_argument("--html", metavar="FILE", help="write the comparison as a page with plots")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.console.tables import print_comparison
    from tuner.html_report import comparison_html
    from tuner.results import compare, load_run

    found = compare([load_run(located(path)) for path in options.runs])
    if options.html is not None:
        write_new(Path(options.html), comparison_html(found), "--html", force=options.force)
    if options.json:
        print(found.table.to_json(orient="records"))
    else:
        print_comparison(found)
    tell_damages(*found.runs)
    return SUCCESS
