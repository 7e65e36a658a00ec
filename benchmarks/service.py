"""The speed of the search service, compared with its targets, which are for two idle cores.

    python benchmarks/service.py [--queued 1000] [--repeats 40] [--workers 32] [--trials 500]

`--only queue`, `ask`, `page`, `adopt`, `pause`, `share` or `edge` leaves the rest out; `--search` names the algorithm
of the study that workers ask for, `--epoch-seconds` how long an epoch of it takes. `page` needs a Chromium.

The server is its own process, as `tuner serve` starts it; the queue is filled without checks, as they aren't
measured. Events to many viewers have a benchmark of their own: `benchmarks/streams.py`.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from service_drivers import SPACE, cpu_seconds, of_adoption, of_pauses, served, service_of
from service_edge import of_the_edge
from service_shares import of_shares

import tuner
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
    """Seconds for a submission, a page of the list, and a plan, with this many studies in the queue of 17 users."""
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


def asking(
    workers: int, trials: int, search: str, epoch_seconds: float
) -> tuple[dict[str, list[float]], float, tuple[float, float]]:
    """Seconds that requests of workers take, by their verb; requests a second; and seconds of the processor.

    These are the server's and the search's, for each request. A trial has two epochs.

    The workers are threads of this process, each with a token and its own connection.
    """
    with tempfile.TemporaryDirectory() as folder:
        service = Service(folder)
        access = Access(service.database)
        chief = access.accept(str(access.first_secret()), "four words are enough", "chief", "here")
        tokens = [access.create_token(chief, f"w{number}")[1] for number in range(workers)]
        command = [sys.executable, "-m", "tuner", "serve", "--storage", folder, "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        url = process.stderr.readline().split(" at ")[-1].strip()
        try:
            declared = {"name": "furnace", "space": SPACE, "metric": "loss", "mode": "min", "warm_start": None}
            declared |= {"search": search, "scheduler": "NoEarlyStopping"}
            declared |= {"budget": {"trials": trials, "max_epochs": 2}}
            study = tuner.connect(url, tokens[0]).ask("POST", "/studies", {"study": declared})["id"]
            while service.study(study).state is not State.RUNNING:
                time.sleep(0.1)
            times: dict[str, list[float]] = {"ask": [], "report": []}
            work = partial(_work, url, study, times, epoch_seconds)
            begun = time.monotonic()
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(work, tokens))
            count = sum(map(len, times.values()))
            rate = count / (time.monotonic() - begun)
            folder_of_search = service.folder.attempt(study, 1)
            search_pid = json.loads((folder_of_search / "process.json").read_text())["pid"]
            cpu = (cpu_seconds(process.pid) / count, cpu_seconds(search_pid) / count)
            service.cancel(study, chief)
            while service.study(study).devices:
                time.sleep(0.1)
            return times, rate, cpu
        finally:
            process.terminate()
            process.wait()
            service.close()


def page(trials: int, repeats: int) -> dict[str, list[tuple[float, float, float]]]:
    """How a page of a finished study of this many trials of 20 epochs comes, by its visits.

    "first": this server hasn't read the run before. "later": the visits after it. Of each: seconds until the head can
    be used, until the best trials and the curves are there, and the seconds of the processor that the server has used
    until then. The browser is started before.
    """
    import shutil

    from playwright.sync_api import sync_playwright
    from results import written

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = written(Path(folder) / "cheap" / "1", trials, 20)
        service, chief, token = service_of(folder)
        study = service.submit(Submission("x.py", {"x.py": b"study = None\n"}), chief).id
        with service.database.changing() as connection:
            for leaves, becomes in itertools.pairwise(_WAY):
                studies.change(connection, study, leaves, becomes, time.time())
            studies.update(connection, study, run=str(run))
        service.close()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        found: dict[str, list[tuple[float, float, float]]] = {}
        try:
            with served(folder) as (url, server):
                for name in ("first", *["later"] * repeats):
                    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {token}"})
                    visit = _visit(context.new_page(), f"{url}/studies/{study}", server)
                    found.setdefault(name, []).append(visit)
                    context.close()
        finally:
            browser.close()
        return found


_WAY = (State.CHECKING, State.QUEUED, State.STARTING, State.RUNNING, State.FINISHED)


def _visit(tab: Any, address: str, server: int) -> tuple[float, float, float]:
    tab.set_default_timeout(300_000)
    used, begun = cpu_seconds(server), time.monotonic()
    tab.goto(address)
    tab.wait_for_selector("h2.study")
    head = time.monotonic() - begun
    tab.wait_for_selector("#trials tbody tr")
    tab.wait_for_selector("#curves.js-plotly-plot .trace")
    return head, time.monotonic() - begun, cpu_seconds(server) - used


def _work(url: str, study: int, times: dict[str, list[float]], epoch_seconds: float, token: str) -> None:
    """Work until nothing is left."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))

    def send(verb: str, path: str, **body: object) -> dict[str, Any]:
        while True:
            begun = time.monotonic()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            told = json.dumps({**body, "worker": token[-8:].replace("-", "_")})
            connection.request("POST", f"/api/v1/studies/{study}{path}", told, headers)
            answer = connection.getresponse()
            content = json.loads(answer.read())
            times[verb].append(time.monotonic() - begun)
            if answer.status == 200:
                return dict(content)
            time.sleep(float(answer.headers["retry-after"]))  # the limit of requests of one token

    while (found := send("ask", ":ask"))["outcome"] == "trial":
        trial = found["trial"]
        for epoch in (1, 2):
            time.sleep(epoch_seconds)
            value = sum((each - 0.3) ** 2 for each in trial["config"].values()) + 1 / epoch
            send("report", f"/trials/{trial['id']}:report", epoch=epoch, metrics=value)


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
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--search", default="MultiFidelityGP")
    parser.add_argument("--epoch-seconds", type=float, default=1.0)
    parser.add_argument("--page-trials", type=int, default=10_000)
    parser.add_argument("--pauses", type=int, default=5)
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    rows = [row for name, part in PARTS.items() if options.only in (None, name) for row in part(options)]
    for what, measured, target in rows:
        print(f"{what:60}{measured:>10}  target {target}")
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


def of_workers(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Rows on asking and reporting."""
    times, rate, (server, search) = asking(options.workers, options.trials, options.search, options.epoch_seconds)
    of = f"{options.trials} trials, {options.workers} workers, {options.search}"
    asks = times["ask"]
    return [
        (f"ask, {of}, p95", _p95(asks), "100 ms"),
        ("ask, median and longest", f"{statistics.median(asks) * 1000:.0f}, {max(asks) * 1000:.0f} ms", "none"),
        (f"report, p95, at {rate:.0f} requests a second", _p95(times["report"]), "none"),
        ("CPU of server and search a request", f"{server * 1000:.1f}, {search * 1000:.1f} ms", "none"),
    ]


def _p95(times: list[float]) -> str:
    return f"{statistics.quantiles(times, n=20)[-1] * 1000:.0f} ms"


def of_the_queue(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Rows on the start and the queue."""
    seconds, megabytes = ready()
    rows = [("ready", f"{seconds:.2f} s", "2 s"), ("idle memory", f"{megabytes:.0f} MB", "120 MB")]
    names = {
        "submit": "submit without check, p95",
        "list": f"a page of 200 of {options.queued} queued, p95",
        "plan": f"a plan for {options.queued} queued, p95",
    }
    for name, times in queued(options.queued, options.repeats).items():
        rows.append((names[name], _p95(times), "50 ms"))
    return rows


def of_the_page(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Rows on a page of many trials."""
    found = page(options.page_trials, 5)
    rows = []
    for which, visits in found.items():
        head, whole, cpu = (statistics.median(column) for column in zip(*visits, strict=True))
        what = f"{which} page of {options.page_trials} trials: head, trials and curves"
        rows += [(what, f"{head:.2f}, {whole:.2f} s", "2 s"), ("CPU of the server for it", f"{cpu:.2f} s", "none")]
    return rows


PARTS = {
    **{"queue": of_the_queue, "ask": of_workers, "page": of_the_page, "adopt": of_adoption, "pause": of_pauses},
    **{"share": of_shares, "edge": of_the_edge},
}


if __name__ == "__main__":
    main()
