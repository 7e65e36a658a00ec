"""`tuner token`: tokens with which programs identify themselves at a service."""

from __future__ import annotations

import argparse

from tuner.cli.remote import add_server, client_of, moment, show, table
from tuner.cli.user import ROLES
from tuner.cli.verbs import Verbs


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("token")
    parser.set_defaults(perform=perform)
    parser.add_argument("action", choices=("create", "list", "revoke"), help="what to do")
    parser.add_argument("name", metavar="NAME|ID", nargs="?", help="create: a name for the token; revoke: its number")
    parser.add_argument("--role", choices=ROLES, help="the token's role (default: your own)")
    parser.add_argument("--days", type=float, metavar="N", help="days that it is valid (default: 30)")
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.errors import StudyError

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
