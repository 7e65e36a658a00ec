"""The verbs about a service's studies and devices: `queue`, `logs`, `priority`, `cancel`, `devices`, `usage`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.cli.at_service import STUDY, add_server, client_of, moment, name_of, show, show_study, table
from tuner.cli.outcome import SUCCESS
from tuner.errors import StudyError
from tuner.text import printable

if TYPE_CHECKING:
    from tuner.service.client import RemoteStudy

ALIVE = ("checking", "queued", "starting", "running", "pausing", "paused", "ending")
LOOK_SECONDS = 1.0


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `queue`."""
    parser.add_argument(
        "--why", metavar="ID", help=f"say why this study doesn't run, such as a cap of its user: {STUDY}"
    )
    parser.add_argument("--all", action="store_true", help="also studies that are over")
    add_server(parser)


def queue(options: argparse.Namespace) -> int:
    """List the studies that a service runs, and those that wait and why; returns the exit code."""
    client = client_of(options)
    places = {place["study"]: place for place in client.queue()}
    if options.why is not None:
        study = client.study(options.why)
        place = places.get(study.id)
        return show(options, {"study": study.record, "position": place}, _why(study.record, place))
    studies = [study.record for study in client.studies(state=None if options.all else ALIVE)]
    found = [{**record, "position": places.get(record["id"])} for record in reversed(studies)]
    heads = ("study", "name", "user", "state", "priority", "place", "starts", "reason")
    return show(options, found, table(heads, map(_row, found)) if found else f"no studies at {client.url}")


def _row(study: dict[str, Any]) -> tuple[object, ...]:
    place = study["position"] or {}
    first = (f"@{study['id']}", study["name"], study["user"], study["state"], study["priority"])
    return *first, place.get("position"), moment(place.get("start")), place.get("reason") or _reason(study)


def _reason(study: dict[str, Any]) -> str | None:
    from tuner.service.model import outcome

    return outcome(study["state"], study["progress"]) or study["reason"]


def _why(study: dict[str, Any], place: dict[str, Any] | None) -> str:
    told = f"study @{study['id']} {study['name']} is {study['state']}"
    if place is None:
        return f"{told}: {reason}" if (reason := _reason(study)) else told
    start = f"; it may start at {moment(place['start'])}" if place["start"] is not None else ""
    return f"{told}, number {place['position']} in the queue: {place['reason']}{start}"


def add_priority(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `priority`."""
    parser.add_argument("study", metavar="ID", help=STUDY)
    parser.add_argument("priority", metavar="N", type=int, help="the new priority; higher goes first")
    add_server(parser)


def prioritize(options: argparse.Namespace) -> int:
    """Change which study of a service goes first; returns the exit code."""
    study = client_of(options).study(options.study).change(priority=options.priority)
    return show(options, study.record, f"study @{study.id} has priority {study.record['priority']} now")


def add_cancel(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cancel`."""
    parser.add_argument("study", metavar="ID", help=STUDY)
    add_server(parser)


def cancel(options: argparse.Namespace) -> int:
    """End a study of a service at once; returns the exit code."""
    return show_study(options, client_of(options).study(options.study).cancel())


def devices(options: argparse.Namespace) -> int:
    """List a service's devices, and who has them; returns the exit code."""
    found = client_of(options).devices()
    rows = [
        (
            name_of(use["device"]),
            "free" if use["study"] is None else f"@{use['study']}",
            use["user"],
            use["trial"],
            "" if use["busy"] is None else f"{use['busy']:.0%}",
        )
        for use in found
    ]
    return show(options, found, table(("device", "study", "user", "trial", "busy"), rows))


def add_usage(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `usage`."""
    from tuner.cli.parsing import positive

    parser.add_argument("--days", type=positive, default=7.0, metavar="N", help="how many days back (default: 7)")
    add_server(parser)


def usage(options: argparse.Namespace) -> int:
    """List who used a service's devices for how long; returns the exit code."""
    found = client_of(options).usage(options.days)
    rows = [
        (one["user"], f"@{one['study']}", one["name"], one["kind"], f"{one['device_hours']:.2f}", one["state"])
        for one in found
    ]
    return show(options, found, table(("user", "study", "name", "kind", "hours held", "state"), rows))


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `logs`."""
    parser.add_argument("study", metavar="ID", help=STUDY)
    parser.add_argument("--trial", metavar="N", help="the output of this trial (default: the driver's log)")
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until the study is over")
    add_server(parser)


def logs(options: argparse.Namespace) -> int:
    """Print what a study's driver, or one of its trials, printed; returns the exit code."""
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
        print(f"study @{study.id}: {_why_no_log(study, options.trial)}", file=sys.stderr)
    return SUCCESS


def _why_no_log(study: RemoteStudy, trial: str | None) -> str:
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


TABLE = {
    "queue": (add_queue, queue),
    "priority": (add_priority, prioritize),
    "cancel": (add_cancel, cancel),
    "devices": (add_server, devices),
    "usage": (add_usage, usage),
    "logs": (add_logs, logs),
}
