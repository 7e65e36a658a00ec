"""`tuner webhook`: addresses to which a service sends messages about studies."""

from __future__ import annotations

import argparse

from tuner.cli.remote import add_server, client_of, moment, show, table
from tuner.cli.verbs import Verbs

EVENTS = ("finished", "failed", "new_best", "paused")


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("webhook")
    parser.set_defaults(perform=perform)
    parser.add_argument("action", choices=("add", "list", "remove", "test", "sent"), help="what to do")
    parser.add_argument(
        "name", metavar="URL|ID", nargs="?", help="add: an https:// address; remove, test, sent: its number"
    )
    parser.add_argument(
        "--event", action="append", choices=EVENTS, help="an event to send; may be repeated (default: all)"
    )
    parser.add_argument(
        "--everybodys", action="store_true", help="messages about everybody's studies (only for admins)"
    )
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.errors import StudyError

    client = client_of(options)
    if options.action == "list":
        found = list(client.pages("/webhooks", {"everybodys": "true"} if options.everybodys else None))
        rows = [(one["id"], one["user"], ", ".join(one["events"]), one["url"]) for one in found]
        return show(options, found, table(("webhook", "user", "events", "address"), rows))
    if options.action == "add":
        body = {"url": options.name or "", "events": options.event, "everybodys": options.everybodys}
        made = client.ask("POST", "/webhooks", body)
        return show(options, made, f"webhook {made['id']} signs with {made['secret']}, which is shown only now")
    if options.name is None or not options.name.isdecimal():
        raise StudyError(
            f"`tuner webhook {options.action}` needs a webhook's number, got {options.name!r}; see `tuner webhook list`"
        )
    number = int(options.name)
    if options.action == "sent":
        sent = list(client.pages(f"/webhooks/{number}/deliveries"))
        lines = [
            (
                one["id"],
                one["event"],
                one["study"] or "",
                one["state"],
                one["tries"],
                moment(one["tried"]),
                one["problem"] or "",
            )
            for one in sent
        ]
        return show(options, sent, table(("delivery", "event", "study", "state", "tries", "tried", "problem"), lines))
    if options.action == "test":
        sent_now = client.ask("POST", f"/webhooks/{number}:test")
        return show(options, sent_now, f"{sent_now['state']}: {sent_now['problem'] or sent_now['status']}")
    client.ask("DELETE", f"/webhooks/{number}")
    return show(options, {"removed": number}, f"webhook {number} gets no more messages")
