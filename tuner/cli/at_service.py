"""Common parts of the verbs that talk to a service, or about a run that is a study of one: `@17` for a folder."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import amount
from tuner.errors import StudyError
from tuner.text import command, printable

if TYPE_CHECKING:
    from tuner.service.client import Client, RemoteStudy

_STUDY = re.compile(r"@[0-9]{1,16}")
STUDY = "the number of a study of the service, 17 or @17"


def is_study(run: str) -> bool:
    """Whether it names a study of a service and not a folder."""
    return _STUDY.fullmatch(run) is not None


def study_of(run: str) -> RemoteStudy:
    """The study that `@17` names, at the service of the last login."""
    from tuner.service.client import connect

    return connect().study(run)


def located(run: str) -> str:
    """A folder with the run: the given one, or the study's run folder on this machine, or a present copy of it."""
    if not is_study(run):
        return run
    study = study_of(run)
    if (here := _run_here(study)) is not None:
        return here
    return str(_fetched(study))


@contextmanager
def named(run: str, path: str) -> Iterator[None]:
    """Within the block, messages name the study and the commands that resume it, not the folder of its run."""
    try:
        yield
    except StudyError as error:
        if not is_study(run):
            raise
        text = str(error)
        for told, instead in (
            (command("resume", path, "--trials"), command("set", run, "--trials")),
            (command("resume", path), command("resume", run)),
            (repr(path), run),
        ):
            text = text.replace(told, instead)
        raise StudyError(text) from error


def _run_here(study: RemoteStudy) -> str | None:
    """The run's folder, if the service runs on this machine."""
    from tuner.machine.web_opener import is_loopback

    run = study.record["run"]
    return run if run is not None and is_loopback(study.server) and (Path(run) / "run.json").is_file() else None


def steer(options: argparse.Namespace, verb: str, arguments: Mapping[str, Any]) -> int:
    """Send an order to a study of a service, and print the answer; returns the exit code."""
    study = study_of(options.run)
    return _told(options, study, _sent(study, verb, arguments))


def _told(options: argparse.Namespace, study: RemoteStudy, answer: dict[str, Any]) -> int:
    if options.json:
        print(json.dumps(answer))
    elif "outcome" in answer:
        print(printable(answer["message"]))
    else:
        print(printable(f"study @{study.id} {answer['name']} is {answer['state']}"))
    return SUCCESS


def go_on(options: argparse.Namespace, limits: Mapping[str, Any]) -> int:
    """Let a study of a service go on, with new limits if they are given; returns the exit code."""
    if limits:
        changed = study_of(options.run).change(**limits)
        if changed.state not in ("paused", "failed"):  # new limits already put a finished study into the queue
            return _told(options, changed, changed.record)
    return steer(options, "resume", {})


def _sent(study: RemoteStudy, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(arguments)
    trial = given.get("trial")
    if verb == "stop" and trial is not None:
        return study.request("POST", f"/trials/{int(trial) if str(trial).isdecimal() else trial}:stop")
    if verb in ("try", "note"):
        return study.request("POST", "/trials" if verb == "try" else "/notes", given)
    if verb == "set":
        return study.change(**given).record
    return {"pause": study.pause, "resume": study.resume, "stop": study.finish}[verb]().record


def _fetched(study: RemoteStudy) -> Path:
    """A copy of a study's run, in a folder that the next command deletes."""
    from tuner.machine.temporary import OwnedFolder, sweep

    sweep()
    folder = OwnedFolder("study").path
    print(f"fetching the run of study @{study.id}", file=sys.stderr)
    archive = study.download("archive", folder / "archive.tar")
    _unpack(archive, folder)
    archive.unlink()
    return folder / f"study-{study.id}"


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the regular files of an archive; anything else, and anything that would lie outside, is left out."""
    import shutil
    import tarfile

    with tarfile.open(archive) as opened:
        for member in opened:
            content, place = opened.extractfile(member) if member.isreg() else None, folder / member.name
            if content is None or ".." in place.parts or not place.is_relative_to(folder):
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            with content, place.open("wb") as file:
                shutil.copyfileobj(content, file)


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the options for the service, and for how its answer is shown."""
    parser.add_argument("--server", metavar="URL", help="the service (default: $TUNER_SERVER, or the last login's)")
    parser.add_argument(
        "--patience",
        type=amount,
        metavar="M",
        help="wait so many minutes for a server that is away (default: 10 once it has answered, else 0)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object or list on stdout")


def client_of(options: argparse.Namespace) -> Client:
    """The service that the options name."""
    from tuner.service.client import connect

    return connect(options.server, patience=None if options.patience is None else 60 * options.patience)


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
