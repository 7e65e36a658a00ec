"""Events to many viewers of one run: seconds from the writing to the reading, and the server's share of a core.

    python benchmarks/streams.py [--viewers 200] [--rate 50] [--seconds 20]

The server is its own process; the viewers are sockets of this one, which read by a selector.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import selectors
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tuner.history.events import EventLog
from tuner.history.run_info import FORMAT, write_info
from tuner.service.access import Access
from tuner.service.database import studies
from tuner.service.model import Role, State, Submission
from tuner.service.service import Service
from tuner.service.web.server import listening, server
from tuner.service.web.settings import WebSettings
from tuner.storage.folder import LocalFolder

_SENT = re.compile(rb'"message":"([0-9.]+)"')


def serve(folder: Path, told: Any) -> None:
    """The server's process: a service with a study and users, served until it is killed."""
    service = Service(folder)
    access = Access(service.database)
    chief = access.accept(str(access.first_secret()), "four words are enough", "chief", "here")
    tokens = []
    for number in range(12):
        user = access.add_user(chief, f"user{number}", Role.SUBMITTER)[0]
        tokens.append(access.create_token(user, "benchmark")[1])
    study = service.submit(Submission("x.py", {"x.py": b""}), chief).id
    with service.database.changing() as connection:
        for leaves, becomes in ((State.CHECKING, State.QUEUED), (State.QUEUED, State.STARTING)):
            studies.change(connection, study, leaves, becomes, time.time())
        studies.update(connection, study, run=str(folder / "run"))
    with listening(WebSettings(port=0)) as listener:
        told.send((listener.getsockname()[1], study, tokens, os.getpid()))
        server(service, WebSettings(port=listener.getsockname()[1]), access).run(sockets=[listener])


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(port: int, study: int, tokens: list[str], viewers: int) -> selectors.BaseSelector:
    """As many streams, each with its own connection; all have caught up."""
    found = selectors.DefaultSelector()
    for number in range(viewers):
        connection = socket.create_connection(("127.0.0.1", port))
        head = f"GET /api/v1/studies/{study}/events HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(f"{head}Authorization: Bearer {tokens[number % len(tokens)]}\r\n\r\n".encode())
        while b"event: state" not in connection.recv(65_536):
            pass
        connection.setblocking(False)
        found.register(connection, selectors.EVENT_READ)
    return found


def write(log: EventLog, rate: float, seconds: float) -> None:
    """Events at a rate, each with the time of its writing."""
    begun = time.perf_counter()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        log.append("notice", message=f"{time.time():.6f}")


def measure(viewers: int, rate: float, seconds: float) -> dict[str, float]:
    """The delays of all events at all viewers, and the server's CPU."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = LocalFolder(Path(temporary) / "run")
        log = EventLog(folder)
        log.append("study_started", trials=None)
        write_info(folder, {"study": "x", "metric": "loss", "mode": "min", "status": "running", "format": FORMAT})
        here, there = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(Path(temporary), there))
        process.start()
        port, study, tokens, pid = here.recv()
        time.sleep(1.0)
        watching = watch(port, study, tokens, viewers)
        before, begun = cpu_seconds(pid), time.monotonic()
        writer = threading.Thread(target=write, args=(log, rate, seconds))
        writer.start()
        delays = _delays(watching, viewers * int(rate * seconds), seconds + 10)
        used = (cpu_seconds(pid) - before) / (time.monotonic() - begun)
        writer.join()
        process.kill()
        process.join()
    ordered = sorted(delays)
    return {
        "viewers": viewers,
        "events": len(delays) / viewers,
        "median_seconds": statistics.median(ordered),
        "p95_seconds": ordered[int(0.95 * len(ordered))],
        "cores": used,
    }


def _delays(watching: selectors.BaseSelector, expected: int, seconds: float) -> list[float]:
    found: list[float] = []
    end = time.monotonic() + seconds
    while len(found) < expected and time.monotonic() < end:
        for key, _ in watching.select(0.5):
            content = key.fileobj.recv(1_000_000)  # type: ignore[union-attr]
            now = time.time()
            found += [now - float(sent) for sent in _SENT.findall(content)]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    print(
        json.dumps({name: round(value, 4) for name, value in measure(given.viewers, given.rate, given.seconds).items()})
    )
