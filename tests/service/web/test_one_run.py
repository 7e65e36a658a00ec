"""`tuner show --web`: the page of one run, without a server to set up."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from tests.commands import environment
from tests.html_report.browsing import PATIENCE_MS, needs_browser
from tests.searches import wait_for
from tests.service.web.serving import a_run
from tuner import Run, load_run
from tuner.cli.main import main
from tuner.history.events import EventLog
from tuner.service.one_run import OneRun
from tuner.service.web.application import application
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held


@contextmanager
def shown(run: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the link that it prints."""
    command = [sys.executable, "-m", "tuner", "show", run, "--web", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return a_run(tmp_path / "with space")


def test_a_link_opens_the_run_once_for_reading_alone(run: Run) -> None:
    before = sorted(Path(run.path).iterdir())
    with shown(run.path) as (process, link):
        address, _, secret = link.partition("#")
        browser = httpx.Client(base_url=address.removesuffix("/open"), verify=False, headers={"Origin": address[:-5]})
        assert browser.get("/").headers["location"] == "/studies/1"
        assert browser.get("/studies/1").headers["location"] == "/login"
        assert browser.get("/api/v1/studies/1/summary").status_code == 401
        assert browser.post("/api/v1/open", json={"secret": "x"}).status_code == 401
        assert browser.post("/api/v1/open", json={"secret": secret}).status_code == 201
        assert "read-only" not in browser.get("/studies/1").text  # which the script says
        assert browser.get("/api/v1/studies/1/summary").json()["best"]["trial"] == run.best.trial  # type: ignore[union-attr]
        row = browser.get("/api/v1/studies/1/row").json()
        assert (row["state"], row["steerable"], row["has_run"]) == ("finished", False, True)
        assert browser.get("/api/v1/studies/1/archive").status_code == 200
        again = httpx.Client(base_url=address.removesuffix("/open"), verify=False).post
        refused = again("/api/v1/open", json={"secret": secret})
        assert (refused.status_code, refused.json()["fix"][:21]) == (401, "open the newest link ")
        assert process.stdout
        assert "the link works once" in process.stdout.readline()
        newest = process.stdout.readline().strip().partition("#")[2]
        assert again("/api/v1/open", json={"secret": newest}).status_code == 201
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert sorted(Path(run.path).iterdir()) == before


def test_nobody_can_change_anything_there(run: Run, tmp_path: Path) -> None:
    """The user of the page is a viewer, and nobody else can come in."""
    from tuner.service.access import Guests

    with OneRun(run, tmp_path / "sessions") as service:
        guests = Guests(service.database, lambda _: None)
        app = application(service, guests=guests)
        user, _, _ = guests.enter(guests.secret())
        assert user.role == "viewer"
        assert "/api/v1/open" in app.openapi()["paths"]
        with pytest.raises(Exception, match="the only study here is 1"):
            service.study(2)
        assert service.queue() == service.devices() == []
        with TestClient(app, base_url="http://localhost") as client:
            entered = client.post("/api/v1/open", json={"secret": guests.secret()})
            assert entered.status_code == 201, entered.text
            for path, methods in app.openapi()["paths"].items():
                for method in methods.keys() - {"get"}:
                    if path in ("/api/v1/open", "/api/v1/logout", "/api/v1/login", "/api/v1/welcome"):
                        continue
                    address = re.sub(r"{\w+}", "1", path)
                    headers = {"origin": "http://localhost"}
                    answer = client.request(method, address, json={"role": "viewer"}, headers=headers)
                    assert answer.status_code == 403, (method, path, answer.text)
            account = client.get("/account", follow_redirects=False)
            assert (account.status_code, account.headers["location"]) == (303, "/studies/1")


def test_a_run_is_followed_from_its_first_driver_to_its_last(run: Run, tmp_path: Path) -> None:
    """A driver works, is paused, and another one goes on to the end: the page sees each."""
    file, folder = Path(run.path) / "run.json", LocalFolder(run.path)
    info = json.loads(file.read_text())
    with held(folder):
        file.write_text(json.dumps(info | {"status": "running"}))
        with OneRun(load_run(run.path), tmp_path / "sessions") as service:
            told: list[tuple[str, str]] = []
            service.subscribe(lambda change: told.append((change.kind, str(change.state))))
            assert service.study(1).state == "running"
            assert service.followed(1)
            before = service.progress(1)
            log = EventLog(folder)
            log.append("notice", message="it goes on")
            log.close()
            wait_for(lambda: ("progress", "running") in told)
            file.write_text(json.dumps(info | {"status": "interrupted", "interrupted_by": "paused by anne"}))
            wait_for(lambda: service.study(1).state == "paused")
            assert str(service.study(1).reason).startswith("paused by anne; to go on: ")
            assert service.followed(1) is None
            after = service.progress(1)
            assert before
            assert after
            assert (after.best, after.trials) == (before.best, before.trials)
            file.write_text(json.dumps(info | {"status": "finished"}))
            wait_for(lambda: ("state", "finished") in told)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--web", "--log", "--trial", "1"], "--web shows the whole run in a browser, got it with --trial"),
        (["--port", "8000"], "--port needs --web"),
        (["no such run", "--web"], "a run is a folder with run.json"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
@needs_browser
def test_in_a_browser_the_run_is_read_like_a_study(run: Run, browser: Any) -> None:
    complaints: list[str] = []
    with shown(run.path) as (_, link):
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(link)
        page.wait_for_selector("#curves.js-plotly-plot .trace")
        assert "#" not in page.url
        assert page.text_content("#user") == "read-only"
        assert page.locator("#trials tbody tr").count() == 24
        assert page.locator("#leave, [data-verb]").count() == 0
        page.goto(link)  # it is used up, and the session goes on
        page.wait_for_selector("#curves.js-plotly-plot .trace")
        other = browser.new_context().new_page()
        other.goto(link)
        other.wait_for_selector("#problem:has-text('open the newest link')")
        assert other.locator("#curves").count() == 0
    assert [text for text in complaints if "401" not in text] == []
