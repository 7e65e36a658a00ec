"""What W&B's client wrote: its `.wandb` files are LevelDB logs of protocol buffers."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

BLOCK, HEADER = 32768, 7  # bytes: of a block; of the file's header, and of a record's
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass(frozen=True)
class Artifact:
    """What is told of an artifact when it is logged."""

    name: str
    type: str
    aliases: tuple[str, ...]
    metadata: dict[str, Any]


@dataclass
class Shown:
    """One W&B run, from all files of its id."""

    id: str
    project: str = ""
    group: str = ""
    name: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    artifacts: list[Artifact] = field(default_factory=list)
    alerts: list[tuple[str, str, str]] = field(default_factory=list)  # title, text, level
    files: list[str] = field(default_factory=list)
    exit_code: int | None = None
    system_metrics: set[str] = field(default_factory=set)


def records(path: Path) -> list[Record]:
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    found, part, place = [], b"", HEADER
    while place + HEADER <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + HEADER])
        part += content[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (FULL, LAST):
            record = Record()
            record.ParseFromString(part)
            found.append(record)
            part = b""
    return found


def shown_runs(folder: Path) -> dict[str, Shown]:
    """The W&B runs below a folder by their names."""
    found: dict[str, Shown] = {}
    for file in sorted(folder.rglob("run-*.wandb")):
        run_id = file.stem.removeprefix("run-")
        run = found.setdefault(run_id, Shown(run_id))
        for record in records(file):
            take(run, record)
    return {run.name: run for run in found.values()}


def take(run: Shown, record: Record) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        told = record.run
        run.project, run.group, run.name, run.job_type = told.project, told.run_group, told.display_name, told.job_type
        run.tags, run.notes = tuple(told.tags), told.notes
        update(run.config, told.config.update)
    elif kind == "config":
        update(run.config, record.config.update)
    elif kind == "history":
        row: dict[str, Any] = {}
        update(row, record.history.item)
        run.history.append(row)
    elif kind == "summary":
        update(run.summary, record.summary.update)
    elif kind == "artifact":
        told_of = record.artifact
        metadata = json.loads(told_of.metadata or "{}")
        run.artifacts.append(Artifact(told_of.name, told_of.type, tuple(told_of.aliases), metadata))
    elif kind == "alert":
        run.alerts.append((record.alert.title, record.alert.text, record.alert.level))
    elif kind == "files":
        run.files += [file.path for file in record.files.files]
    elif kind == "exit":
        run.exit_code = record.exit.exit_code
    elif kind == "stats":
        run.system_metrics |= {item.key for item in record.stats.item}


def update(values: dict[str, Any], items: Any) -> None:
    for item in items:
        values[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
