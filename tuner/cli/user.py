"""`tuner user`: who may use a service; for its admins."""

from __future__ import annotations

import argparse

from tuner.cli.remote import add_server, client_of, show, table
from tuner.cli.verbs import Verbs

ROLES = ("viewer", "worker", "submitter", "admin")


def add(verbs: Verbs) -> None:
    """Add the arguments of the verb."""
    parser = verbs.add_parser("user")
    parser.set_defaults(perform=perform)
    parser.add_argument(
        "action",
        choices=("add", "remove", "role", "link", "list"),
        help="link: make a new link for a user who forgot the password",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the user")
    parser.add_argument("role", metavar="ROLE", nargs="?", choices=ROLES, help="viewer, worker, submitter or admin")
    add_server(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.errors import StudyError
    from tuner.service.connection import path_of

    if options.action != "list" and options.name is None:
        raise StudyError(f"`tuner user {options.action}` needs a user's name, got none; write it after the action")
    if options.action == "role" and options.role is None:
        raise StudyError(f"`tuner user role` needs a role, got none; choose one of {', '.join(ROLES)}")
    client = client_of(options)
    if options.action == "list":
        found = list(client.pages("/users"))
        rows = [(one["name"], "removed" if one["disabled"] else one["role"], one["weight"]) for one in found]
        return show(options, found, table(("user", "role", "weight"), rows))
    path = path_of("users", options.name)
    if options.action == "remove":
        client.ask("DELETE", path)
        return show(options, {"removed": options.name}, f"{options.name} may no longer use {client.url}")
    if options.action == "role":
        user = client.ask("PATCH", path, {"role": options.role, "disabled": False})
        return show(options, user, f"{user['name']} is {user['role']} now")
    if options.action == "link":
        user = client.ask("POST", f"{path}:link")
    else:
        user = client.ask("POST", "/users", {"name": options.name, "role": options.role or "submitter"})
    return show(options, user, f"{user['name']} sets a password with this link, which works once:\n{user['link']}")
