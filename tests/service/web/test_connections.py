"""Clients that open many connections, or send their requests slowly."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.commands import start
from tests.service.web.serving import PATIENT, Served, serving
from tests.service.web.test_server import lines_until
from tuner.service.web import connections, guards
from tuner.service.web.connections import allow_many_files

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
SLOW = 1_400
FEW = replace(PATIENT, connections_per_address=4)


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, limits=FEW) as found:
        yield found


def opened(port: int, sent: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), timeout=60)
    found.sendall(sent)
    return found


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes it, after what it still sends."""
    try:
        while connection.recv(10_000):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_many_half_sent_requests_leave_the_server_in_service(tmp_path: Path) -> None:
    """The server begins with room for 1,024 open files, as it is usual."""
    allow_many_files()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < SLOW + 500:
        pytest.skip(f"needs a hard limit of {SLOW + 500} open files")
    code = "import resource as r, sys, tuner.cli as c; r.setrlimit(r.RLIMIT_NOFILE, (1024, 4096)); sys.exit(c.main(sys.argv[1:]))"
    with ExitStack() as stack:
        process = stack.enter_context(
            start("serve", "--storage", "runs", "--port", "0", folder=tmp_path, program=("-c", code))
        )
        stack.callback(process.terminate)
        _, match = lines_until(process, r"(http://127\.0\.0\.1:(\d+))/welcome")
        slow = [stack.enter_context(opened(int(match[2]), HALF)) for _ in range(SLOW)]
        for _ in range(3):
            assert httpx.get(f"{match[1]}/healthz", timeout=60).json() == {"status": "ok"}
        assert is_closed(slow[0])


def test_headers_that_do_not_end_are_not_waited_for(few: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    whole = HALF.removesuffix(b"X-Slow: ") + b"\r\n"
    with opened(few.port) as silent, opened(few.port, HALF) as slow, opened(few.port, whole) as second:
        assert second.recv(15) == b"HTTP/1.1 200 OK"
        second.recv(10)  # and the rest below
        second.sendall(HALF)  # of another request on the same connection
        assert [is_closed(each) for each in (silent, slow, second)] == [True, True, True]
    assert few.client().get("/healthz").status_code == 200


@pytest.mark.parametrize("every", [0.1, 60])
def test_a_body_that_trickles_is_refused(few: Served, monkeypatch: pytest.MonkeyPatch, every: float) -> None:
    monkeypatch.setattr(guards, "BODY_SECONDS", 1.0)
    head = (
        f"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {few.url}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    with opened(few.port, head.encode()) as slow:
        slow.settimeout(every)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            slow.sendall(b" ")
            try:
                answer = slow.recv(12)
                break
            except TimeoutError:
                continue
        assert answer == b"HTTP/1.1 408"


def test_an_address_loses_its_oldest_connection_without_a_request(few: Served) -> None:
    token = few.tokens["guest"]
    stream = f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with ExitStack() as stack:
        busy = [stack.enter_context(opened(few.port, stream)) for _ in range(2)]
        assert [one.recv(12) for one in busy] == [b"HTTP/1.1 200"] * 2
        idle = [stack.enter_context(opened(few.port, HALF)) for _ in range(3)]
        assert is_closed(idle[0])
        busy += [stack.enter_context(opened(few.port, stream)) for _ in range(2)]
        assert [one.recv(12) for one in busy[2:]] == [b"HTTP/1.1 200"] * 2
        assert [is_closed(one) for one in idle[1:]] == [True, True]
        assert is_closed(stack.enter_context(opened(few.port, HALF)))  # all are used
        assert [one.recv(1) for one in busy] != [b""] * 4
