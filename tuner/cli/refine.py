"""`tuner refine`: a new study file around the good region of a run."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

from tuner.cli.at_service import located, named
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import RUN_OR_STUDY, add_trust, check_new, count, positive, write_new
from tuner.errors import StudyError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("run", metavar="RUN", help=RUN_OR_STUDY)
    parser.add_argument("-o", "--output", metavar="FILE.py", required=True, help="the study file to write")
    parser.add_argument(
        "--as",
        choices=["grid", "narrowed"],
        default="grid",
        dest="kind",
        help="a grid (default), or narrower ranges for the search algorithm",
    )
    parser.add_argument(
        "--quantile",
        type=positive,
        default=0.25,
        metavar="SHARE",
        help="share of trials that count as good (default: 0.25)",
    )
    parser.add_argument(
        "--configurations", type=count, default=30, metavar="N", help="the most configurations of a grid (default: 30)"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_trust(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.console.studies import print_refinement
    from tuner.results import load_run, refine

    path = Path(options.output)
    if path.suffix != ".py":
        raise StudyError(f"-o names a study file, which ends in .py, got {options.output!r}; add it")
    check_new(path, "-o", force=options.force)
    with redirect_stdout(sys.stderr):
        run = load_run(located(options.run))
        settings = {"quantile": options.quantile, "configurations": options.configurations, "trust": options.trust}
        with named(options.run, run.path):
            found = refine(run, options.kind, **settings)
        text = found.text(path)
    write_new(path, text, "-o", force=options.force)
    if options.json:
        print(json.dumps({"study": str(path), "summary": found.summary, "trials": found.study.trials}))
    else:
        print_refinement(found, path)
    tell_damages(run)
    return SUCCESS
