"""`tuner labels`: images whose label is probably wrong."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import RUN, add_trust, check_new
from tuner.errors import StudyError
from tuner.machine.installation import check_trains
from tuner.results.wording import plural
from tuner.text import command, printable

if TYPE_CHECKING:
    from tuner.label_errors import LabelErrors
    from tuner.results.run import RecordedRun
    from tuner.storage.folder import Folder

ROWS = "label_errors.csv"
SHOWN = 10  # suspects on the terminal


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--out", metavar="DIR", help="the folder of label_errors.html and label_errors.csv (default: the run's)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--force", action="store_true", help="replace label_errors.csv, with the corrections in it")
    which.add_argument(
        "--apply",
        metavar="FILE.csv",
        help="judge nothing: write a table of all images with the labels that label_errors.csv suggests, for a new "
        "study's data",
    )
    add_trust(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    check_trains("a judgement of labels", libraries=("torch", "torchvision"))
    from tuner.label_errors import find
    from tuner.results import load_run
    from tuner.storage.locations import open_folder

    run = load_run(options.run)
    folder = run.folder if options.out is None else open_folder(options.out)
    if options.apply is not None:
        return _apply(options, run, folder)
    with redirect_stdout(sys.stderr):
        found = find(run, folder, force=options.force, trust=options.trust)
    if options.json:
        print(json.dumps(found.record()))
    else:
        _print(found)
    tell_damages(run)
    return SUCCESS


def _print(found: LabelErrors) -> None:
    """The surest suspects, how many there are, and where all of them are."""
    from tuner.console.printing import new_console, new_table

    table = new_table("file", "label", "suggested", "confidence")
    for one in found.suspects[:SHOWN]:
        table.add_row(one.file, one.label, one.suggested, f"{one.confidence:.0%}")
    if found.suspects:
        new_console().print(table)
    told = f"{plural(len(found.suspects), 'label')} probably wrong: {found.judged}"
    print(printable(f"{told}\npage: {found.page}\nto correct: {found.rows}"))


def _apply(options: argparse.Namespace, run: RecordedRun, folder: Folder) -> int:
    """Write the table with corrected labels; returns the exit code."""
    from tuner.label_errors import study_of, write_corrected
    from tuner.storage.locations import fetched_file

    target = Path(options.apply)
    if target.suffix.lower() != ".csv":
        raise StudyError(f"--apply names a table, which ends in .csv, got {options.apply!r}; add it")
    check_new(target, "--apply", force=False)
    if not folder.exists(ROWS):
        again = command("labels", run.path, *([] if options.out is None else ["--out", options.out]))
        raise StudyError(f"--apply needs {ROWS}, got {folder.uri!r} without it; write it with: {again}")
    with redirect_stdout(sys.stderr), TemporaryDirectory() as temporary:
        trial = study_of(run, None, trust=options.trust)[1]
        changed, left_out = write_corrected(trial, fetched_file(folder, ROWS, Path(temporary)), target)
    data = f"table:{target.absolute()}"
    if options.json:
        print(json.dumps({"data": data, "changed": changed, "left_out": left_out}))
    else:
        print(printable(f"{plural(changed, 'label')} changed, {plural(left_out, 'image')} left out; in the new study:"))
        print(printable(f"data={data!r}"))
    return SUCCESS
