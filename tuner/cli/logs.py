"""`tuner logs`: what a study's driver, or one of its trials, printed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuner.cli.outcome import SUCCESS
from tuner.cli.remote import STUDY, add_server, client_of
from tuner.foreign_text import printable

if TYPE_CHECKING:
    from tuner.service.client import RemoteStudy

LOOK_SECONDS = 1.0


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("study", metavar="ID", help=STUDY)
    parser.add_argument("--trial", metavar="N", help="the output of this trial (default: the driver's log)")
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until the study is over")
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.errors import StudyError

    if options.follow and options.json:
        raise StudyError("--follow shows text as it comes, got it with --json; leave one of them out")
    study = client_of(options).study(options.study)
    parts = _parts(study, options.trial, follow=options.follow)
    if options.json:
        print(json.dumps({"study": study.id, "trial": options.trial, "log": "".join(parts)}))
        return SUCCESS
    empty = True
    for part in parts:
        empty = False
        sys.stdout.write(printable(part))
        sys.stdout.flush()
    if empty:
        print(f"study @{study.id}: {_why_empty(study, options.trial)}", file=sys.stderr)
    return SUCCESS


def _why_empty(study: RemoteStudy, trial: str | None) -> str:
    if trial is None:
        return "its driver printed nothing"
    if study.record["external"]:
        return f"trial {trial} runs outside the service, where its worker has the output; `tuner show` names the worker"
    return f"trial {trial} printed nothing"


def _parts(study: RemoteStudy, trial: str | None, *, follow: bool) -> Iterator[str]:
    from tuner.service.client import OVER

    start = 0
    while True:
        over = study.state in OVER or not follow  # checked before the last part is read
        text, end = study.log(trial, start)
        if text:
            yield text
        elif over:
            return
        else:
            time.sleep(LOOK_SECONDS)
            study.refresh()
        start = end
