"""What a search service bears: connections that never finish a request, and a restart under clients that wait; a part
of `service.py`.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from service_drivers import service_of

import tuner
from tuner.service.bundles import of_json
from tuner.service.web.connections import allow_many_files

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
AWAY_SECONDS = 3.0  # of the server, between its kill and the next one
STUDY = (
    b'{"name": "furnace", "space": {"x": {"type": "uniform", "low": 0, "high": 1}}, "metric": "loss", "mode": "min"}'
)


@contextmanager
def listening(folder: str, port: int) -> Iterator[int]:
    """A server at this port; yields its process, which is killed in the end."""
    command = [sys.executable, "-m", "tuner", "serve", "--storage", folder, "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that nothing uses now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def slow_connections(count: int, asked: int = 20) -> float:
    """Seconds that `/healthz` takes at most while so many connections have sent half of a request."""
    allow_many_files()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, listening(folder, port), ExitStack() as stack:
        for _ in range(count):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            slow.sendall(HALF)
        longest = 0.0
        for _ in range(asked):
            begun = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
                answer.read()
            longest = max(longest, time.monotonic() - begun)
        return longest


def restarted(clients: int) -> int:
    """How many of so many clients that wait for a study of theirs lose it as the server is killed and started anew."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        service, chief, token = service_of(folder)
        studies = [service.submit(of_json(STUDY), chief).id for _ in range(clients)]
        ends: list[str] = []

        def wait(study: int) -> None:
            ends.append(tuner.connect(f"http://127.0.0.1:{port}", token, patience=120).study(study).wait())

        with listening(folder, port) as process:
            waiting = [threading.Thread(target=wait, args=(study,)) for study in studies]
            for thread in waiting:
                thread.start()
            time.sleep(AWAY_SECONDS)
            os.kill(process, signal.SIGKILL)
        time.sleep(AWAY_SECONDS)
        with listening(folder, port):
            for study in studies:
                service.cancel(study, chief)
            for thread in waiting:
                thread.join(120)
        service.close()
        return clients - ends.count("cancelled")


def of_the_edge(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Rows on slow connections and a restart."""
    return [
        ("1,400 half-sent requests: longest answer of /healthz", f"{slow_connections(1_400):.2f} s", "1 s"),
        ("20 clients that wait for studies: lost by a restart", f"{restarted(20)}", "0"),
    ]
