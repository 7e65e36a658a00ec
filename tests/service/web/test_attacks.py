"""What an attacker tries, as real requests to a real server."""

import base64
import io
import os
import resource
import socket
import tarfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.web.serving import PASSWORD, Served, a_run, serving
from tuner.errors import StudyError
from tuner.service.model import State
from tuner.service.web.settings import WebSettings


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def served(storage: Path) -> Iterator[Served]:
    with serving(storage) as found:
        yield found


@pytest.fixture(scope="module")
def study(served: Served, storage: Path) -> int:
    """A study whose code has put into its folder what should lead out of it."""
    run = a_run(storage, reports=20)
    folder = Path(run.path)
    (storage / "secret.txt").write_text("nobody may read this")
    (folder / "link.txt").symlink_to(storage / "secret.txt")
    (folder / "out").symlink_to(storage)
    os.mkfifo(folder / "pipe")
    (folder / "evil.html").write_text("<script>parent.alert(1)</script>")
    (folder / "odd \n name\udcff.txt").write_text("odd")
    (folder / "report.html").write_text("<script>fetch('/api/v1/users')</script>")
    return served.study(state=State.RUNNING, run=run)


def raw(served: Served, request: bytes) -> bytes:
    """The answer to bytes that no client would send."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize(
    "path",
    [
        "../../secret.txt",
        "..%2f..%2fsecret.txt",
        "%2e%2e/%2e%2e/secret.txt",
        "....//secret.txt",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "out/secret.txt",
        "link.txt",
        "events/../../../secret.txt",
        "pipe",
        "events",
        "",
        "run.json%00.txt",
        "run.json/",
        "a" * 3000,
        "%ff%fe",
    ],
)
def test_no_path_leads_out_of_a_run(served: Served, study: int, path: str) -> None:
    head = f"GET /api/v1/studies/{study}/files/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    answer = raw(served, f"{head}Authorization: Bearer {served.tokens['anne']}\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 422 ")), answer[:300]
    assert b"nobody may read this" not in answer
    assert b"root:" not in answer


def test_files_of_a_run_cannot_act_in_the_servers_name(served: Served, study: int) -> None:
    client = served.client("anne")
    page = client.get(f"/api/v1/studies/{study}/files/evil.html")
    assert page.text == "<script>parent.alert(1)</script>"
    assert page.headers["content-disposition"].startswith("attachment;")
    assert page.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert page.headers["x-content-type-options"] == "nosniff"
    report = client.get(f"/api/v1/studies/{study}/report")
    policy = report.headers["content-security-policy"]
    assert "sandbox allow-scripts;" in policy
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy  # which default-src 'none' forbids
    assert "default-src 'none'" in policy


def test_an_archive_has_no_links_and_no_pipes(served: Served, study: int) -> None:
    answer = served.client("anne").get(f"/api/v1/studies/{study}/archive")
    assert b"nobody may read this" not in answer.content
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        names = {member.name for member in archive}
        assert all(member.isreg() for member in archive)
        kept = archive.extractfile(f"study-{study}/evil.html")
        assert kept is not None
        assert kept.read() == b"<script>parent.alert(1)</script>"
    assert {f"study-{study}/run.json", f"study-{study}/events/000001.jsonl"} <= names
    assert not {f"study-{study}/link.txt", f"study-{study}/pipe", f"study-{study}/out/secret.txt"} & names


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "localhost@evil"])
def test_another_name_for_this_server_is_refused(served: Served, host: str) -> None:
    token = served.tokens["chief"]
    head = f"GET /api/v1/users HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    answer = raw(served, f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 421 "), answer[:200]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:9999", "[::1]:8765"])
def test_this_machines_own_names_are_served(served: Served, host: str) -> None:
    token = served.tokens["chief"]
    head = f"GET /api/v1/users HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    assert raw(served, f"{head}Authorization: Bearer {token}\r\n\r\n".encode()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_a_foreign_page_changes_nothing_by_a_cookie(served: Served, origin: str | None) -> None:
    secret = served.access._session(served.users["anne"], "log in")[0]
    browser = served.client(cookies={f"tuner_session_{served.port}": secret})
    headers = {} if origin is None else {"Origin": origin}
    answer = browser.post("/api/v1/tokens", json={"name": "stolen"}, headers=headers)
    assert answer.status_code == 403
    assert browser.get("/api/v1/tokens", headers=headers).status_code == 200
    own = browser.post("/api/v1/tokens", json={"name": "own"}, headers={"Origin": served.url})
    assert own.status_code == 201


def test_a_foreign_page_logs_nobody_in(served: Served) -> None:
    served.access._set_password(served.users["bert"], PASSWORD, "set")
    served.tokens["bert"] = served.access.create_token(served.users["bert"], "test")[1]
    body = {"name": "bert", "password": PASSWORD}
    foreign = served.client(headers={"Origin": "http://evil.example"}).post("/api/v1/login", json=body)
    assert foreign.status_code == 403
    assert "set-cookie" not in foreign.headers


def test_a_token_in_an_address_is_refused_and_not_repeated(served: Served) -> None:
    token = served.tokens["anne"]
    for path in (f"/api/v1/queue?token={token}", f"/api/v1/{token}", f"/api/v1/queue?x={token.replace('_', '%5f')}"):
        answer = served.client("anne").get(path)
        assert answer.status_code == 400, path
        assert token not in answer.text


def test_no_message_repeats_a_password(served: Served) -> None:
    client = served.client("anne")
    for path, body in (
        ("login", {"name": "anne", "password": ["hunter2hunter2"]}),
        ("login", {"name": "anne", "password": "hunter2hunter2", "more": 1}),
        ("welcome", {"secret": ["hunter2hunter2"], "password": "hunter2hunter2"}),
    ):
        answer = client.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == 422
        assert "hunter2" not in answer.text


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer x", "Bearer tuner_" + "a" * 43, "bearer \udcff"])
def test_a_token_that_is_none_is_refused(served: Served, header: str) -> None:
    request = b"GET /api/v1/users HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: "
    answer = raw(served, request + header.encode("latin-1", "replace") + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"www-authenticate: Bearer" in answer


def test_the_database_of_the_service_is_no_file_of_a_run(served: Served, storage: Path) -> None:
    assert (storage / ".service").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (WebSettings(host="0.0.0.0"), "an address that others reach needs TLS, got --host 0.0.0.0 without it"),
        (WebSettings(host="192.0.2.1"), "an address that others reach needs TLS"),
        (WebSettings(host="::"), "an address that others reach needs TLS"),
        (WebSettings(behind_proxy=True), "--behind-proxy needs the names by which the server is reached, got none"),
        (WebSettings(tls_cert=Path("x")), "TLS needs --tls-cert and --tls-key, got one of them"),
    ],
)
def test_a_network_gets_no_server_without_protection(settings: WebSettings, message: str) -> None:
    with pytest.raises(StudyError) as refused:
        settings.check()
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_this_machine_alone_needs_no_protection(host: str) -> None:
    WebSettings(host=host).check()


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 2\r\nContent-Length: 30\r\n",
        b"Content-Length: 2, 30\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
    ],
)
def test_a_request_of_two_lengths_smuggles_no_other(served: Served, framing: bytes) -> None:
    head = b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + framing + b"\r\n"
    token = served.tokens["chief"].encode()
    hidden = b"GET /api/v1/users HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + token
    answer = raw(served, head + b"{}" + hidden + b"\r\n\r\n")
    assert b"HTTP/1.1 200 " not in answer
    assert answer.count(b"HTTP/1.1 ") <= 1


def test_a_chunked_body_without_a_length_ends_at_the_limit(served: Served) -> None:
    head = b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    most = b"f4240\r\n" + b" " * 1_000_000 + b"\r\n"
    assert raw(served, head + most + b"0\r\n\r\n").startswith(b"HTTP/1.1 422 ")
    assert raw(served, head + most + b"1\r\n \r\n0\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_body_that_is_packed_is_never_unpacked(served: Served) -> None:
    """Neither as a body nor as a file of a submission: 300 MB of zeros in 300 kB."""
    packing = zlib.compressobj(wbits=31)
    bomb = b"".join(packing.compress(bytes(10**7)) for _ in range(30)) + packing.flush()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answer = served.client("anne", headers=headers).post("/api/v1/studies", content=bomb)
    assert answer.status_code == 422
    files = {"parabola.py": base64.b64encode(b"study = None").decode(), "bomb.gz": base64.b64encode(bomb).decode()}
    sent = served.client("anne", timeout=60).post("/api/v1/studies", json={"main": "parabola.py", "files": files})
    assert sent.status_code == 201
    laid_out = served.service.folder.bundle(sent.json()["id"]) / "bomb.gz"
    assert laid_out.stat().st_size == len(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kB


def test_headers_without_end_are_refused(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), 20) as connection:
        answer = b""
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            for number in range(2_000):
                connection.sendall(b"X-%d: " % number + b"a" * 1000 + b"\r\n")
            answer = connection.recv(1000)
        except ConnectionError:
            return  # it hung up in the midst
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 ")) or answer == b""


def test_a_name_adds_no_header(served: Served, study: int) -> None:
    path = f"/api/v1/studies/{study}/files/evil.html%0d%0aSet-Cookie:%20a=b"
    answer = served.client("anne").get(path)
    assert answer.status_code == 404
    assert "set-cookie" not in answer.headers
    key = served.client("anne").get("/api/v1/queue", headers={"Last-Event-ID": "x%0d%0aSet-Cookie: a=b"})
    assert "set-cookie" not in key.headers


def test_a_session_that_was_given_before_the_login_is_none_after_it(served: Served) -> None:
    served.access._set_password(served.users["hand"], PASSWORD, "set")
    served.tokens["hand"] = served.access.create_token(served.users["hand"], "test")[1]
    fixed = "tuner_" + "a" * 43
    browser = served.client(cookies={f"tuner_session_{served.port}": fixed}, headers={"Origin": served.url})
    answer = browser.post("/api/v1/login", json={"name": "hand", "password": PASSWORD})
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert fixed not in cookie
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert served.client(cookies={f"tuner_session_{served.port}": fixed}).get("/api/v1/queue").status_code == 401


def test_a_folder_that_becomes_a_link_while_it_is_read_leads_nowhere(served: Served, study: int, storage: Path) -> None:
    run = served.service.run(study)
    assert run is not None
    folder = Path(run.path) / "swapped"
    outside = storage / "outside"
    for one in (folder, outside):
        one.mkdir()
    (folder / "secret.txt").write_text("mine")
    (outside / "secret.txt").write_text("nobody may read this")
    ended = threading.Event()

    def swap() -> None:
        away = folder.with_name("away")
        while not ended.is_set():
            folder.rename(away)
            folder.symlink_to(outside)
            folder.unlink()
            away.rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        with served.client("anne") as client:
            texts = {client.get(f"/api/v1/studies/{study}/files/swapped/secret.txt").text for _ in range(150)}
    finally:
        ended.set()
        swapping.join()
    assert "mine" in texts
    assert not any("nobody may read this" in text for text in texts)
