"""`tuner submit`: put a study into a service's queue."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tuner.cli.at_service import add_server, client_of, show_study
from tuner.cli.outcome import NO_WINNER, SUCCESS
from tuner.cli.parsing import add_study_options, count, study_options
from tuner.errors import StudyError
from tuner.text import printable

if TYPE_CHECKING:
    from tuner.service.client import RemoteStudy

CHECK_SECONDS = 120.0  # seconds to wait for the check


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument(
        "study",
        metavar="SPACE.py",
        help="a study file; modules in its folder that it imports are sent, too. Or a study in JSON, STUDY.json, "
        "whose trials are run by workers",
    )
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="-10 to 10; only admins give more than 0")
    parser.add_argument("--preemptible", action="store_true", help="may be paused for studies of a higher priority")
    parser.add_argument(
        "--devices", type=count, metavar="N", help="number of devices for the study (default: as the study says)"
    )
    parser.add_argument("--concurrency", type=count, metavar="N", help="the most trials at once")
    parser.add_argument(
        "--after", action="append", default=[], metavar="ID", help="begin when this study has finished; may be repeated"
    )
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait", action="store_true", help="wait until the study is over; exit code 1 if it didn't finish"
    )
    waiting.add_argument(
        "--no-wait", action="store_true", help="return before the service has checked it (default: wait for its check)"
    )
    add_study_options(parser)
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.service.client import number_of

    given = study_options(options)
    if options.concurrency is not None:
        given["concurrency"] = options.concurrency
    study = client_of(options).submit(
        options.study,
        priority=options.priority,
        preemptible=options.preemptible,
        devices=options.devices,
        after=[number_of(each) for each in options.after],
        options=given,
    )
    if options.no_wait:
        return show_study(options, study)
    _wait_for_its_check(options, study)
    if not options.wait:
        return show_study(options, study)
    state = study.wait()
    show_study(options, study)
    return SUCCESS if state == "finished" else NO_WINNER


def _wait_for_its_check(options: argparse.Namespace, study: RemoteStudy) -> None:
    """Raises StudyError if the service refuses the study."""
    print(printable(f"study @{study.id} {study.record['name']} is {study.state}"), file=sys.stderr)
    try:
        study.checked(CHECK_SECONDS)
    except TimeoutError:
        print(f"its check takes longer; `tuner queue --why @{study.id}` says what it finds", file=sys.stderr)
    except StudyError:
        if options.json and study.state == "refused":
            show_study(options, study)
        raise
