"""Where a message goes: an http or https address that gets it as JSON, or a command that is run with it.

A whole address may be secret, as those of chats are: tuner's own messages only name its host.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tuner.errors import StudyError, shown
from tuner.machine.web_opener import opener_for

FROM_THE_ENVIRONMENT = "TUNER_NOTIFY"
SECRET_OPTIONS = ("--notify", "--mlflow")  # whose values may contain passwords
URL_SECONDS, COMMAND_SECONDS = 10.0, 30.0
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Undelivered(Exception):  # noqa: N818 -- what happened
    """A message didn't arrive; the text says why, and holds no secret."""


@dataclass(frozen=True)
class Target(ABC):
    """One place that messages go to."""

    given: str = field(repr=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """The target's name in messages, without what may be secret."""

    @abstractmethod
    def send(self, message: Mapping[str, Any]) -> None:
        """Deliver the message; raises Undelivered."""


class Address(Target):
    """Gets a POST request with the message as JSON."""

    @property
    def name(self) -> str:
        """The scheme and host."""
        parts = urlsplit(self.given)
        return f"{parts.scheme}://{parts.hostname}"

    def send(self, message: Mapping[str, Any]) -> None:
        """Send within URL_SECONDS."""
        url, headers = self._request()
        request = urllib.request.Request(url, json.dumps(message).encode(), headers, method="POST")
        try:
            with opener_for(url).open(request, timeout=URL_SECONDS):
                return
        except urllib.error.HTTPError as error:
            raise Undelivered(f"{self.name} answered {error.code}") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Undelivered(f"{self.name} can't be reached ({getattr(reason, 'strerror', None) or reason})") from None
        except Exception as error:  # an answer that isn't HTTP; the error's text may contain the address
            raise Undelivered(f"{self.name} gave no answer that can be read ({type(error).__name__})") from None

    def _request(self) -> tuple[str, dict[str, str]]:
        """The request: user and password are taken out of the address and become a header."""
        parts, headers = urlsplit(self.given), {"Content-Type": "application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl(), headers


class Command(Target):
    """A command that the shell runs, with the message as JSON on its standard input and in its environment."""

    @property
    def name(self) -> str:
        """The command's first word."""
        words = self.given.split()
        return words[0] if len(words) == 1 else f"{words[0]} …"

    def send(self, message: Mapping[str, Any]) -> None:
        """Run it for at most COMMAND_SECONDS; then it is killed with all processes that it started."""
        process = subprocess.Popen(
            self.given,
            shell=True,
            env={**os.environ, **_variables(message)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            line = f"{json.dumps(message)}\n"  # so that `cat >> FILE` writes lines
            process.communicate(line.encode(), timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Undelivered(f"the command {self.name!r} took more than {COMMAND_SECONDS:.0f} s") from None
        except OSError:  # it ended without reading
            process.wait()
        if process.returncode != 0:
            raise Undelivered(f"the command {self.name!r} ended with exit code {process.returncode}")


def _variables(message: Mapping[str, Any]) -> dict[str, str]:
    given = {"TUNER_EVENT": message["event"], "TUNER_RUN": message["run"], "TUNER_MESSAGE": message["message"]}
    return {name: str(value).replace("\0", "") for name, value in given.items()}


def listed(notify: str | Iterable[str]) -> list[str]:
    """One target or several, as a list."""
    return [notify] if isinstance(notify, str) else list(notify)


def given_targets(given: Iterable[str]) -> list[Target]:
    """The given targets, or the lines of the environment variable TUNER_NOTIFY.

    Raises StudyError for an address that isn't http or https, or text that can't be a command.
    """
    texts = list(given) or os.environ.get(FROM_THE_ENVIRONMENT, "").splitlines()
    return [_target(text.strip()) for text in texts if text.strip() or given]


def _target(text: str) -> Target:
    if not text or "\0" in text:
        raise StudyError(f"notify needs a command or an http or https address, got {shown(text)}; leave it out")
    if not _SCHEME.match(text):
        return Command(text)
    scheme = text.partition("://")[0].lower()
    try:
        host = urlsplit(text).hostname
    except ValueError:
        host = None
    if scheme not in ("http", "https") or not host:
        wrong = f"a {scheme} address" if host else f"{scheme}:// without a host that can be read"
        raise StudyError(f"notify needs an http or https address, got {wrong}; use https://HOST/PATH, or a command")
    return Address(text)


def redacted(arguments: Sequence[str]) -> list[str]:
    """A command line for records: what follows `--notify` and `--mlflow` is left out, as it may be secret."""
    found: list[str] = []
    hide = False
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        # argparse also accepts abbreviated options
        is_secret = len(option) > len("--n") and any(secret.startswith(option) for secret in SECRET_OPTIONS)
        found.append("…" if hide else f"{option}=…" if is_secret and equals else argument)
        hide = is_secret and not equals and not hide
    return found
