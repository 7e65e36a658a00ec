"""Common parts of the verbs that talk to a service."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tuner.cli.outcome import SUCCESS
from tuner.foreign_text import printable

if TYPE_CHECKING:
    from tuner.service.client import Client, RemoteStudy

STUDY = "the number of a study of the service, 17 or @17"


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options for the service, and for how its answer is shown."""
    parser.add_argument("--server", metavar="URL", help="the service (default: $TUNER_SERVER, or the last login's)")
    parser.add_argument("--json", action="store_true", help="one JSON object or list on stdout")


def client_of(options: argparse.Namespace) -> Client:
    """The service that the options name."""
    from tuner.service.client import connect

    return connect(options.server)


def show(options: argparse.Namespace, found: Any, text: str) -> int:
    """Print what was found, as JSON or as text; returns the exit code."""
    print(json.dumps(found) if options.json else printable(text))
    return SUCCESS


def show_study(options: argparse.Namespace, study: RemoteStudy) -> int:
    """Print a study's state."""
    record = study.record
    reason = f" ({record['reason']})" if record.get("reason") else ""
    return show(options, record, f"study @{study.id} {record['name']} is {study.state}{reason}")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns of text, aligned."""
    lines = [tuple(heads), *(tuple(_cell(value) for value in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def moment(seconds: float | None) -> str:
    """A time as this machine's clock shows it."""
    return "" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def name_of(device: Mapping[str, Any]) -> str:
    """A device, as a table shows it."""
    return f"{device['kind']} {device['index']}" + (f" ({device['name']})" if device.get("name") else "")


def _cell(value: object) -> str:
    return printable("" if value is None else value).replace("\n", " ")
