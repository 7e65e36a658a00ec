"""The verbs about who uses a service, and who is told: `login`, `user`, `token` and `webhook`."""

from __future__ import annotations

import argparse
import getpass
import json
import math
import platform
import sys
from collections.abc import Callable

from tuner.cli.at_service import add_server, client_of, moment, show, table
from tuner.cli.outcome import SUCCESS
from tuner.errors import StudyError

ROLES = ("viewer", "worker", "submitter", "admin")
EVENTS = ("finished", "failed", "new_best", "paused")


def add_user(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `user`."""
    parser.add_argument(
        "action",
        choices=("add", "remove", "role", "cap", "link", "list"),
        help="cap: limit what their studies use (--devices, --hours, --weight); link: make a new link for a user who "
        "forgot the password",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the user")
    parser.add_argument("role", metavar="ROLE", nargs="?", choices=ROLES, help="viewer, worker, submitter or admin")
    parser.add_argument("--role", dest="named_role", choices=ROLES, help="the same")
    parser.add_argument(
        "--devices", type=_cap(int), metavar="N|none", help="cap: the most GPUs, and the most CPUs, at once"
    )
    parser.add_argument(
        "--hours", type=_cap(float), metavar="N|none", help="cap: the most device-hours in the last 7 days"
    )
    parser.add_argument(
        "--weight", type=float, metavar="N", help="cap: their share of the devices beside others' (default: 1)"
    )
    add_server(parser)


def user(options: argparse.Namespace) -> int:
    """Change who may use a service; returns the exit code."""
    from tuner.service.http_client import path_of

    if None not in (options.role, options.named_role) and options.role != options.named_role:
        raise StudyError(f"a user has one role, got {options.role} and --role {options.named_role}; leave one out")
    options.role = options.role or options.named_role
    if options.action != "list" and options.name is None:
        raise StudyError(f"`tuner user {options.action}` needs a user's name, got none; write it after the action")
    if options.action == "role" and options.role is None:
        raise StudyError(f"`tuner user role` needs a role, got none; choose one of {', '.join(ROLES)}")
    caps = _caps(options)
    client = client_of(options)
    if options.action == "list":
        found = list(client.pages("/users"))
        rows = [
            (
                one["name"],
                "removed" if one["disabled"] else one["role"],
                one["weight"],
                one["most_devices"],
                one["most_hours"],
            )
            for one in found
        ]
        return show(options, found, table(("user", "role", "weight", "devices", "hours a week"), rows))
    path = path_of("users", options.name)
    if options.action == "remove":
        client.ask("DELETE", path)
        return show(options, {"removed": options.name}, f"{options.name} may no longer use {client.url}")
    if options.action == "role":
        user = client.ask("PATCH", path, {"role": options.role, "disabled": False})
        return show(options, user, f"{user['name']} is {user['role']} now")
    if options.action == "cap":
        user = client.ask("PATCH", path, caps)
        told_caps = (("devices at once", user["most_devices"]), ("device-hours in 7 days", user["most_hours"]))
        told = ", ".join(f"{'no cap on' if most is None else f'at most {most:g}'} {what}" for what, most in told_caps)
        return show(options, user, f"{user['name']} has {told}, weight {user['weight']:g}")
    if options.action == "link":
        user = client.ask("POST", f"{path}:link")
    else:
        user = client.ask("POST", "/users", {"name": options.name, "role": options.role or "submitter"})
    return show(options, user, f"{user['name']} sets a password with this link, which works once:\n{user['link']}")


def _cap(kind: type[int] | type[float]) -> Callable[[str], float | str]:
    """The type of an option: a number of at least 0, or "none"."""

    def cap(text: str) -> float | str:
        if text == "none":
            return text
        try:
            value = kind(text)
        except ValueError:
            value = kind(-1)
        if not 0 <= value < math.inf:
            raise argparse.ArgumentTypeError(f"needs a number of at least 0, or none, got {text!r}; use 4")
        return value

    return cap


def _caps(options: argparse.Namespace) -> dict[str, float | None]:
    """The body that changes what was given. Raises StudyError if `cap` is given nothing, or another action is."""
    given = {"most_devices": options.devices, "most_hours": options.hours, "weight": options.weight}
    found = {name: None if value == "none" else value for name, value in given.items() if value is not None}
    if options.action == "cap" and not found:
        raise StudyError("`tuner user cap` needs --devices, --hours or --weight, got none; write --devices 4")
    if options.action != "cap" and found:
        option = "--" + next(iter(found)).removeprefix("most_")
        raise StudyError(
            f"only `tuner user cap` takes {option}, got it with `tuner user {options.action}`; "
            f"run `tuner user cap {options.name or 'NAME'} {option} N` for it"
        )
    return found


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `token`."""
    parser.add_argument("action", choices=("create", "list", "revoke"), help="what to do")
    parser.add_argument("name", metavar="NAME|ID", nargs="?", help="create: a name for the token; revoke: its number")
    parser.add_argument("--role", choices=ROLES, help="the token's role (default: your own)")
    parser.add_argument("--days", type=float, metavar="N", help="days that it is valid (default: 30)")
    add_server(parser)


def token(options: argparse.Namespace) -> int:
    """Create, list or revoke tokens with which programs identify themselves at a service; returns the exit code."""
    client = client_of(options)
    if options.action == "create":
        body = {"name": options.name or "", "role": options.role, "days": options.days}
        token = client.ask("POST", "/tokens", body)
        return show(options, token, token["secret"])
    if options.action == "list":
        found = list(client.pages("/tokens"))
        rows = [(one["id"], one["name"], one["role"], moment(one["expires"]), moment(one["used"])) for one in found]
        return show(options, found, table(("token", "name", "role", "expires", "used"), rows))
    if options.name is None or not options.name.isdecimal():
        raise StudyError(f"`tuner token revoke` needs a token's number, got {options.name!r}; see `tuner token list`")
    client.ask("DELETE", f"/tokens/{int(options.name)}")
    return show(options, {"revoked": int(options.name)}, f"token {int(options.name)} is no longer valid")


def add_webhook(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `webhook`."""
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


def webhook(options: argparse.Namespace) -> int:
    """Change the addresses to which a service sends messages about studies; returns the exit code."""
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


def add_login(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `login`."""
    parser.add_argument("url", metavar="URL", help="the service's address")
    parser.add_argument(
        "--link", action="store_true", help="set the password with a link that works once; asks for the link"
    )
    parser.add_argument("--user", metavar="NAME", help="the user's name (default: asks for it)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--days", type=float, metavar="N", help="days that the login is valid (default: 30)")


def login(options: argparse.Namespace) -> int:
    """Store a token for a service, which the other verbs use; returns the exit code."""
    from tuner.service.logins import accept, log_in

    if "#" in options.url:
        url = options.url.partition("#")[0].removesuffix("/welcome")
        raise StudyError(
            "a login link must not be in a command, which others on this machine can see, got one there; "
            f"use `tuner login {url} --link`, which asks for it"
        )
    secret = _secret() if options.link else None
    name = options.user or _asked("user: ")
    password = _password("new password: " if secret else "password: ")
    if secret:
        if sys.stdin.isatty() and _password("the same again: ") != password:
            raise StudyError("a new password is written twice, got two different ones; try again")
        name = accept(options.url, secret, name, password)
    made = log_in(options.url, name, password, platform.node(), options.days)
    if options.json:
        print(json.dumps({"server": made.url, "user": made.user, "role": made.role, "file": str(made.file)}))
        return SUCCESS
    print(f"logged in to {made.url} as {made.user}, {made.role}; the token is in {made.file}", file=sys.stderr)
    return SUCCESS


def _secret() -> str:
    """The secret of a link: the part after its `#`."""
    return _password("link: ", "a link").rpartition("#")[2].strip()


def _asked(question: str) -> str:
    if not sys.stdin.isatty():
        raise StudyError("login needs a user's name, got none; give --user NAME")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _password(question: str, what: str = "a password") -> str:
    """The password, from the terminal without showing it, or the next line of a pipe."""
    found = getpass.getpass(question) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not found:
        raise StudyError(f"login needs {what}, got none; type it, or send it as a line on stdin")
    return found


TABLE = {
    "login": (add_login, login),
    "user": (add_user, user),
    "token": (add_token, token),
    "webhook": (add_webhook, webhook),
}
