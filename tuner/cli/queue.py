"""`tuner queue`: the studies that a service runs, and those that wait and why."""

from __future__ import annotations

import argparse
from typing import Any

from tuner.cli.remote import STUDY, add_server, client_of, moment, show, table
from tuner.cli.verbs import Verbs

ALIVE = ("checking", "queued", "starting", "running", "pausing", "paused", "ending")


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("queue")
    parser.set_defaults(perform=perform)
    parser.add_argument("--why", metavar="ID", help=f"say why this study doesn't run: {STUDY}")
    parser.add_argument("--all", action="store_true", help="also studies that are over")
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
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
    from tuner.service.wording import outcome

    return outcome(study["state"], study["progress"]) or study["reason"]


def _why(study: dict[str, Any], place: dict[str, Any] | None) -> str:
    told = f"study @{study['id']} {study['name']} is {study['state']}"
    if place is None:
        return f"{told}: {reason}" if (reason := _reason(study)) else told
    start = f"; it may start at {moment(place['start'])}" if place["start"] is not None else ""
    return f"{told}, number {place['position']} in the queue: {place['reason']}{start}"
