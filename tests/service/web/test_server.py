"""The server's process as a user starts it, and how it ends."""

import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.commands import start
from tuner.errors import StudyError
from tuner.service.service import Service
from tuner.service.web.server import listening
from tuner.service.web.settings import WebSettings


def lines_until(process: subprocess.Popen[str], pattern: str) -> tuple[list[str], re.Match[str]]:
    """What a process says until a line fits."""
    assert process.stderr is not None
    found: list[str] = []
    for line in process.stderr:
        found.append(line)
        if match := re.search(pattern, line):
            return found, match
    raise AssertionError(found)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_server_is_reached_and_ends_in_order(tmp_path: Path, ending: signal.Signals) -> None:
    process = start("serve", "--storage", "runs", "--port", "0", folder=tmp_path)
    said, match = lines_until(
        process, r"this link, which works once: (http://127\.0\.0\.1:\d+)/welcome#tuner_[\w-]{43}$"
    )
    assert said[0] == f"tuner serves {tmp_path / 'runs'} at {match[1]}\n"
    with urllib.request.urlopen(f"{match[1]}/readyz") as answer:
        assert answer.read() == b'{"status":"ok"}'
    secret = said[-1].partition("#")[2].strip()
    assert secret.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    process.send_signal(ending)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "", "")
    with Service(tmp_path / "runs") as service:  # its lock is free
        assert service.studies() == []


def test_an_address_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StudyError) as refused:
            listening(WebSettings(port=port))
    assert str(refused.value) == (
        f"tuner serve needs an address that is free, got 127.0.0.1:{port} (Address already in use); "
        "end what listens there, or choose another --port"
    )
