"""`tuner serve` as a process: it answers, refuses a second one, ends in order, and is copied while it runs."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import tuner

SERVE = [sys.executable, "-m", "tuner", "serve", "--port", "0", "--cpus", "1"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server's process, and its address."""
    with subprocess.Popen(SERVE, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert address, line
            yield process, address[0]
        finally:
            process.kill()


def test_a_program_reads_where_a_server_listens_and_who_becomes_its_admin(tmp_path: Path) -> None:
    with subprocess.Popen([*SERVE, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
        finally:
            process.kill()
    assert told["storage"] == str(tmp_path / "runs")
    assert told["link"].startswith(f"{told['url']}/welcome#tuner_")


def test_a_server_answers_alone_and_ends_in_order(served: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    process, address = served
    with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
        assert answer.status == 200
    second = tuner("serve", "--port", "0", "--cpus", "1", folder=tmp_path)
    assert second.code == 2
    assert f"has one server at a time, got {str(tmp_path / 'runs')!r}, which process {process.pid} on" in second.err
    told = tuner("serve", "--backup", "copy.sqlite3", "--json", folder=tmp_path)
    assert (told.code, json.loads(told.out)) == (0, {"backup": "copy.sqlite3"})
    with closing(sqlite3.connect(tmp_path / "copy.sqlite3")) as copy:
        assert copy.execute("SELECT count(*) FROM studies").fetchone() == (0,)
    assert tuner("runs", folder=tmp_path).code == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=300) in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "an address that others reach needs TLS, got --host 0.0.0.0 without it"),
        (["--port", "70000"], "needs a port up to 65535, got 70000"),
        (["--pass", "NOWHERE_SET"], "--pass needs variables that are set, got NOWHERE_SET"),
        (["--backup", "x"], "--backup needs a storage folder that was served, got 'runs', which has no database"),
        (["--cpus", "0", "--gpus", "0"], "a server needs a device for its studies"),
    ],
)
def test_what_can_not_be_served_is_refused_in_a_sentence(tmp_path: Path, options: list[str], message: str) -> None:
    refused = tuner("serve", *options, folder=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert "Traceback" not in refused.err
    assert list(tmp_path.iterdir()) == []
