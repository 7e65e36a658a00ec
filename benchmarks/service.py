"""How quick the search service is, beside its targets, which are for two idle cores.

    python benchmarks/service.py [--queued 1000] [--repeats 40]

The server is a process of its own, as `tuner serve` starts it; the queue is filled without checks, as they aren't
measured. Events to many viewers have a benchmark of their own: `benchmarks/streams.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tuner.service.access import Access
from tuner.service.database import studies
from tuner.service.devices import devices_of_cluster
from tuner.service.model import Role, State, Submission, User
from tuner.service.service import Service


def ready() -> tuple[float, float]:
    """Seconds from the start of `tuner serve` until it answers, and its memory a second later, in MB."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        command = [sys.executable, "-m", "tuner", "serve", "--storage", folder, "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        url = process.stderr.readline().split(" at ")[-1].strip()
        while True:
            try:
                with urllib.request.urlopen(f"{url}/readyz"):
                    break
            except OSError:
                time.sleep(0.01)
        seconds = time.monotonic() - begun
        time.sleep(1.0)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        process.terminate()
        process.wait()
        return seconds, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def queued(count: int, repeats: int) -> dict[str, list[float]]:
    """Seconds that a submission, a page of the list, and a plan take, with so many studies in the queue of 17 users."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(folder, devices=devices_of_cluster(1, 0))
        users = _users(service)
        submission = Submission("x.py", {"x.py": b"study = None\n" * 100})
        submits = []
        for number in range(count):
            begun = time.monotonic()
            study = service.submit(submission, users[number % len(users)]).id
            submits.append(time.monotonic() - begun)
            with service.database.changing() as connection:
                studies.change(connection, study, State.CHECKING, State.QUEUED, time.time())
        found = {
            "submit": submits,
            "list": _times(lambda: service.studies(limit=200), repeats),
            "plan": _times(service.queue, repeats),
        }
        service.close()
        return found


def _users(service: Service) -> list[User]:
    access = Access(service.database)
    chief = access.accept(str(access.first_secret()), "four words are enough", "chief", "here")
    return [access.add_user(chief, f"user{number}", Role.SUBMITTER)[0] for number in range(17)]


def _times(work: Callable[[], object], repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        begun = time.monotonic()
        work()
        found.append(time.monotonic() - begun)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queued", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=40)
    options = parser.parse_args()
    seconds, megabytes = ready()
    rows = [("ready", f"{seconds:.2f} s", "2 s"), ("idle memory", f"{megabytes:.0f} MB", "120 MB")]
    names = {
        "submit": "submit without check, p95",
        "list": f"a page of 200 of {options.queued} queued, p95",
        "plan": f"a plan for {options.queued} queued, p95",
    }
    for name, times in queued(options.queued, options.repeats).items():
        rows.append((names[name], f"{statistics.quantiles(times, n=20)[-1] * 1000:.0f} ms", "50 ms"))
    for what, measured, target in rows:
        print(f"{what:42}{measured:>10}  target {target}")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
