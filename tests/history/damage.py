"""Ways in which a run folder can be damaged, each a function of the folder."""

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

from tests.results.simulated import simulated
from tuner import Budget
from tuner.history.run_info import write_info
from tuner.results.tables import write_tables
from tuner.storage.folder import LocalFolder

Damage = Callable[[Path], object]

STUDY = """
from tuner import *
study = Study(
    "simulated", trial=lambda config: None, metric="loss", mode="min", search=Random(), scheduler=ASHA(),
    space={"lr": loguniform(1e-4, 1e-1), "kind": choice(["a", "b"]), "depth": randint(1, 9),
           "momentum": uniform(0, 1).when(kind="b"), "width": choice([16, 32, 64])},
    budget=Budget(trials=8, max_epochs=9), resources=Resources(gpus=64),
)
"""  # no machine of these tests has 64 GPUs, so `resume` never comes to start Ray
BEST = {
    "model.json": {
        "model": "resnet18", "data": "digits", "weights": "None", "classes": ["a", "b"],
        "inputs": {"channels": 1, "image_size": 32, "normalisation": {"mean": [0.5], "sd": [0.5]}},
    },
    "config.json": {"lr": 0.1},
    "metrics.json": {"trial": "00000", "metrics": {"test_accuracy": 0.5}, "images": {"test": 9, "validation": 9}},
    "confusion_matrix.json": {"classes": ["a", "b"], "counts": [[3, 1], [2, 3]]},
    "mistakes.json": [{"index": 1, "label": "a", "predicted": "b", "confidence": 0.9, "image": "iVBORw0KGgo="}],
}  # fmt: skip


def whole(folder: Path) -> None:
    """A run as a driver leaves it, with every file that the verbs read."""
    run = simulated(folder, budget=Budget(trials=8, max_epochs=9))
    write_tables(LocalFolder(folder), run.record)
    (folder / "study.py").write_text(STUDY)
    (folder / "title.txt").write_text("the first")
    for name, content in BEST.items():
        LocalFolder(folder).write(f"best/{name}", json.dumps(content).encode())
    more = {
        "seed": 0, "search": "Random()", "scheduler": "ASHA()", "warm_start": "History()",
        "resources": {"cpus": 1, "gpus": 0, "strategy": None, "placement": "pack"}, "trial": "train",
        "started_from": None, "data_fingerprint": None, "working_directory": str(folder), "sessions": 1,
        "started": "2026-01-31T09:30:00+00:00", "git_commit": None, "study_file": str(folder / "study.py"),
        "report": None, "command": ["tuner", "run"], "address": None, "pid": 2**22 + 1, "concurrency": 2,
        "machine": {"cpus": 2}, "python": "3.11", "versions": {"tuner": "1"}, "ended": None, "end_reason": "trials",
        "trials": {"completed": 1}, "best": "00000", "wall_seconds": 1.0, "wandb": "off", "status": "finished",
        "budget": {"trials": 8, "max_epochs": 9, "hours": None, "device_hours": None, "total_epochs": None,
                   "target": None, "min_improvement": None},
    }  # fmt: skip
    write_info(LocalFolder(folder), {**run.info, **more})


# Damage to any file

FILES = ("run.json", "events/000001.jsonl", "study.py", "title.txt", "trials.csv", *(f"best/{name}" for name in BEST))


def _of_files() -> Iterator[tuple[str, Damage]]:
    for name in FILES:
        yield f"{name} cut", _file(name, lambda content: content[: len(content) // 2])
        yield f"{name} emptied", _file(name, lambda content: b"")
        yield f"{name} flipped", _file(name, _flipped)
        yield f"{name} binary", _file(name, lambda content: bytes(range(256)) * 4)
        yield f"{name} removed", lambda folder, name=name: (folder / name).unlink()  # type: ignore[misc]
        yield f"{name} a folder", lambda folder, name=name: _to_folder(folder / name)  # type: ignore[misc]
        yield f"{name} a pipe", lambda folder, name=name: _to_pipe(folder / name)  # type: ignore[misc]
        yield f"{name} a socket", lambda folder, name=name: _to_socket(folder / name)  # type: ignore[misc]
        yield f"{name} huge", lambda folder, name=name: os.truncate(folder / name, 2**40)  # type: ignore[misc]
        yield f"{name} a loop", lambda folder, name=name: _to_loop(folder / name)  # type: ignore[misc]
        yield f"{name} a pipe's end", lambda folder, name=name: _to_dangling(folder / name)  # type: ignore[misc]
    for name in FILES:
        if name.endswith(".json"):
            yield f"{name} deep", _file(name, lambda content: b"[" * 100_000)
            yield f"{name} nested", _file(name, lambda content: b"[" * 1000 + b"]" * 1000)
            yield f"{name} a list", _file(name, lambda content: b"[]")
            yield f"{name} a number", _file(name, lambda content: b"1e999")
    for name in ("events", "best"):
        yield f"{name}/ a file", lambda folder, name=name: _to_file(folder / name)  # type: ignore[misc]
        yield f"{name}/ removed", lambda folder, name=name: shutil.rmtree(folder / name)  # type: ignore[misc]
        yield f"{name}/ a loop", lambda folder, name=name: _to_loop(folder / name)  # type: ignore[misc]


def _file(name: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def _flipped(content: bytes) -> bytes:
    """A bit of every 97th byte turned over."""
    return bytes(byte ^ 1 << index % 8 if index % 97 == 50 else byte for index, byte in enumerate(content))


def _removed(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _to_folder(path: Path) -> None:
    _removed(path)
    path.mkdir()


def _to_loop(path: Path) -> None:
    _removed(path)
    path.symlink_to(path.name)


def _to_dangling(path: Path) -> None:
    _removed(path)
    path.symlink_to("nowhere")


def _to_pipe(path: Path) -> None:
    _removed(path)
    os.mkfifo(path)


def _to_socket(path: Path) -> None:
    _removed(path)
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as opened:  # an address has at most 107 bytes
        opened.bind(path.name)


def _to_file(path: Path) -> None:
    _removed(path)
    path.write_text("a file")


# Fields of JSON files with other content

ODD: tuple[Any, ...] = (
    None, True, -1, 3, 0, 1e308, 10**400, "text", "", "\udcff\x1b[2J", [], [None], ["a", {"b": 1}], {}, {"a": {"b": []}},
    {"trials": "x", "max_epochs": "y", "hours": [], "gpus": "z", "cpus": {}}, {"max_epochs": -1, "gpus": 1e308}, float("nan"),
    {"lr": {"domain": "uniform(0, "}, "kind": {}, "depth": 3, "x": {"domain": "choice([])"}},
    {"lr": {"domain": "loguniform(1e-320, 1e308)"}, "a.b": {"constant": 1}, "a": {"constant": {"b": 1}}, "w": {"domain": "choice([1])", "when": [1]}},
)  # fmt: skip


def _of_fields(folder: Path, name: str) -> Iterator[tuple[str, Damage]]:
    content = json.loads((folder / name).read_text())
    entries = list(content) if isinstance(content, dict) else list(range(len(content)))
    for entry in entries:
        for index, odd in enumerate(ODD):
            yield f"{name} {entry} odd {index}", _json(name, lambda whole, e=entry, o=odd: {**whole, e: o})  # type: ignore[misc]
        yield f"{name} without {entry}", _json(name, lambda whole, e=entry: {n: v for n, v in whole.items() if n != e})  # type: ignore[misc]


def _json(name: str, change: Callable[[Any], Any]) -> Damage:
    return _file(name, lambda content: json.dumps(change(json.loads(content))).encode())


def fields_of(folder: Path) -> Iterator[tuple[str, Damage]]:
    for name in ("run.json", "best/model.json", "best/metrics.json", "best/confusion_matrix.json"):
        yield from _of_fields(folder, name)
    for field in BEST["mistakes.json"][0]:  # type: ignore[index]
        for index, odd in enumerate(ODD):
            change = _json("best/mistakes.json", lambda whole, f=field, o=odd: [{**whole[0], f: o}])  # type: ignore[misc]
            yield f"best/mistakes.json {field} odd {index}", change


# Events


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    return _file("events/000001.jsonl", lambda content: b"".join(change(content.splitlines(keepends=True))))


def _of_events() -> Iterator[tuple[str, Damage]]:
    yield "lines swapped", _lines(lambda lines: [*lines[:4][::-1], *lines[4:]])
    yield "lines turned round", _lines(lambda lines: lines[::-1])
    yield "a line of a megabyte", _lines(lambda lines: [*lines[:9], b"x" * 2**20 + b"\n", *lines[9:]])
    yield "NUL bytes", _lines(lambda lines: [*lines[:9], b"\0" * 4096, *lines[9:]])
    yield (
        "no UTF-8",
        _lines(lambda lines: [*lines[:9], b'{"event": "notice", "time": 1, "message": "\xff\xfe"}\n', *lines[9:]]),
    )
    yield (
        "a deep line",
        _lines(lambda lines: [*lines[:9], b'{"event":' + b"[" * 1000 + b"]" * 1000 + b"}\n", *lines[9:]]),
    )
    yield "a million brackets", _lines(lambda lines: [*lines[:9], b"[" * 10**6 + b"\n", *lines[9:]])
    yield "the segment twice", lambda f: shutil.copy(f / "events/000001.jsonl", f / "events/000002.jsonl")
    yield "a segment missing", lambda f: (f / "events/000001.jsonl").rename(f / "events/000003.jsonl")
    yield (
        "segments of strange names",
        lambda f: [
            (f / "events" / name).write_text("{}\n") for name in ("²²²²²².jsonl", "9" * 200 + ".jsonl", "x.jsonl")
        ],
    )


def changed_events(**fields: Any) -> Damage:
    """Fields of every event that has them replaced, as by an earlier version, without a checksum."""

    def changed(line: bytes) -> bytes:
        event = json.loads(line)
        event.pop("sum", None)
        return (
            json.dumps({**event, **{name: value for name, value in fields.items() if name in event}}).encode() + b"\n"
        )

    return _lines(lambda lines: [*lines[:3], *map(changed, lines[3:])])


def without(field: str) -> Damage:
    def changed(line: bytes) -> bytes:
        return json.dumps({n: v for n, v in json.loads(line).items() if n not in (field, "sum")}).encode() + b"\n"

    return _lines(lambda lines: [*lines[:3], *map(changed, lines[3:])])


FIELDS = ("event", "time", "trial", "number", "config", "seed", "epoch", "metrics", "decision", "status", "from_epoch",
          "path", "message", "cause")  # fmt: skip
ODD_METRICS = (
    {"loss": "0.5"}, {"loss": 10**400}, {"loss": 1e308}, {"loss": -1e308}, {"loss": [1]}, {"loss": {"a": 1}}, {"loss": True},
    {"loss": 1, "": 1}, {"loss": 1, "epoch": 3, "time": "x", "trial": None}, {"loss": 1, "\udcff": "\ud800", "\x1b[2J": "\x07"},
    {"loss": 1, "a": 1, "b": "x"}, {"loss": 1, "memory_peak_bytes": 1e308, "images_per_second": 1e308},
)  # fmt: skip
ODD_CONFIGS = (
    {"lr": "x", "kind": 3, "depth": None}, {"lr": 10**400, "depth": 1e308}, {"lr": [], "kind": {"a": 1}}, {"": 1, ".": 2, "a.b": 3},
    {"lr": "\udcff", "kind": "\x1b]0;title\x07", "=cmd": "=1+1"}, {"lr": -1, "depth": True}, {"lr": 0}, {"epochs": 10**400}, {"epochs": "9"},
    {"lr": {"kind": {"depth": 1}}}, {"lr": True, "kind": False}, {"lr": 1e-320}, {"lr": 1e308},
)  # fmt: skip


def _of_event_fields() -> Iterator[tuple[str, Damage]]:
    for field in FIELDS:
        yield f"events without {field}", without(field)
        for index, odd in enumerate(ODD[:16]):
            yield f"events with {field} odd {index}", changed_events(**{field: odd})
    for index, metrics in enumerate(ODD_METRICS):
        yield f"events with odd metrics {index}", changed_events(metrics=metrics)
    for index, config in enumerate(ODD_CONFIGS):
        yield f"events with odd config {index}", changed_events(config=config)
    for time in (-1e9, 1e12, 1e308, 0):
        yield f"events at {time}", changed_events(time=time)
    yield "times turned round", _lines(_turned_times)


def _turned_times(lines: list[bytes]) -> list[bytes]:
    events = [json.loads(line) for line in lines]
    times = [event["time"] for event in events][::-1]
    changed = [{**event, "time": time} for event, time in zip(events, times, strict=True)]
    return [json.dumps({n: v for n, v in event.items() if n != "sum"}).encode() + b"\n" for event in changed]


def unreadable(path: Path) -> None:
    path.chmod(0)
    assert not os.access(path, os.R_OK) or os.geteuid() == 0


KINDS: dict[str, Damage] = dict([*_of_files(), *_of_events(), *_of_event_fields()])
