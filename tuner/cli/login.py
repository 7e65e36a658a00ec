"""`tuner login`: store a token for a service, which the other verbs use."""

from __future__ import annotations

import argparse
import getpass
import json
import platform
import sys

from tuner.cli.outcome import SUCCESS
from tuner.errors import StudyError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("url", metavar="URL", help="the service's address")
    parser.add_argument(
        "--link", action="store_true", help="set the password with a link that works once; asks for the link"
    )
    parser.add_argument("--user", metavar="NAME", help="the user's name (default: asks for it)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--days", type=float, metavar="N", help="days that the login is valid (default: 30)")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
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
    login = log_in(options.url, name, password, platform.node(), options.days)
    if options.json:
        print(json.dumps({"server": login.url, "user": login.user, "role": login.role, "file": str(login.file)}))
        return SUCCESS
    print(f"logged in to {login.url} as {login.user}, {login.role}; the token is in {login.file}", file=sys.stderr)
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
