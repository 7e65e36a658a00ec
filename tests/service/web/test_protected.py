"""TLS with a real certificate, and a real proxy before the server."""

import http.client
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.service.web.serving import PASSWORD, Served, serving
from tuner.errors import StudyError
from tuner.service.web.settings import WebSettings

NAME = "tuner.example"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One for this machine, by openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def log_in(client: httpx.Client, served: Served, origin: str) -> httpx.Response:
    served.access._set_password(served.users["anne"], PASSWORD, "set")
    served.tokens["anne"] = served.access.create_token(served.users["anne"], "test")[1]
    return client.post("/api/v1/login", json={"name": "anne", "password": PASSWORD}, headers={"Origin": origin})


def first_event(client: httpx.Client, token: str) -> str:
    with client.stream("GET", "/api/v1/events", headers={"Authorization": f"Bearer {token}"}) as stream:
        assert stream.status_code == 200
        return next(stream.iter_lines())


def test_tls_with_a_certificate(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with serving(tmp_path, WebSettings(port=0, tls_cert=cert, tls_key=key)) as served:
        trusting = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=served.url, verify=trusting, trust_env=False) as client:
            assert served.url.startswith("https://127.0.0.1:")
            answer = log_in(client, served, served.url)
            assert answer.status_code == 200
            assert "secure" in answer.headers["set-cookie"].lower().split("; ")
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
            assert (
                client.post("/api/v1/tokens", json={"name": "own"}, headers={"Origin": served.url}).status_code == 201
            )
            plain = served.url.replace("https", "http")
            answer = client.post("/api/v1/tokens", json={"name": "stolen"}, headers={"Origin": plain})
            assert answer.status_code == 403
            assert first_event(client, served.tokens["anne"])
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{served.url}/healthz", trust_env=False)


@contextmanager
def proxy(port: int) -> Iterator[str]:
    """A reverse proxy as common ones are: it sets X-Forwarded-* itself and sends on what comes as it comes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value for name, value in self.headers.items() if not name.lower().startswith("x-forw")}
            headers |= {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "Connection": "close"}
            behind = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            behind.request(self.command, self.path, body, headers)
            answer = behind.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "date"):
                    self.send_header(name, value)
            self.end_headers()
            try:
                while part := answer.read1(65_536):
                    self.wfile.write(part)
            except OSError:
                pass
            behind.close()

        def do_GET(self) -> None:
            self.pass_on()

        def do_POST(self) -> None:
            self.pass_on()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_behind_a_proxy_that_has_tls(tmp_path: Path) -> None:
    with (
        serving(tmp_path, WebSettings(port=0, behind_proxy=True, names=(NAME,))) as served,
        proxy(served.port) as url,
        httpx.Client(base_url=url, headers={"Host": NAME}, trust_env=False) as client,
    ):
        assert served.url == f"https://{NAME}"
        answer = log_in(client, served, f"https://{NAME}")
        assert answer.status_code == 200
        assert "secure" in answer.headers["set-cookie"].lower().split("; ")
        assert first_event(client, served.tokens["anne"])
        for _ in range(6):
            wrong = {"name": "anne", "password": "wrong wrong wrong"}
            refused = client.post("/api/v1/login", json=wrong, headers={"Origin": f"https://{NAME}"})
        assert refused.status_code == 429
        assert refused.headers["retry-after"].isdecimal()
        answer = client.get("/api/v1/queue", headers={"Host": "evil.example"})
        assert answer.status_code == 421


@pytest.mark.parametrize(("trusted", "codes"), [("127.0.0.0/8", [401, 200]), ("10.0.0.0/8", [429, 429])])
def test_requests_come_from_where_a_trusted_proxy_says(tmp_path: Path, trusted: str, codes: list[int]) -> None:
    """Else all users of a proxy would share one limit of failed logins."""
    settings = WebSettings(port=0, behind_proxy=True, proxies=(trusted,), names=(NAME,))
    with serving(tmp_path, settings) as served, served.client(base_url=f"http://127.0.0.1:{served.port}") as client:

        def answer(address: str, password: str) -> int:
            headers = {"Host": NAME, "Origin": f"https://{NAME}", "X-Forwarded-For": address}
            body = {"name": "anne", "password": password}
            return client.post("/api/v1/login", json=body, headers=headers).status_code

        served.access._set_password(served.users["anne"], PASSWORD, "set")
        assert [answer("203.0.113.1", "wrong wrong wrong") for _ in range(6)][-1] == 429
        assert [answer("203.0.113.2", "wrong wrong wrong"), answer("203.0.113.2", PASSWORD)] == codes


@pytest.mark.parametrize("proxy", ["proxy", "10.0.0.0/99", ""])
def test_a_proxy_that_is_no_network_is_refused(proxy: str) -> None:
    with pytest.raises(StudyError, match="--trust-proxy needs an address or a network such as"):
        WebSettings(behind_proxy=True, names=(NAME,), proxies=(proxy,)).check()


def test_without_a_proxy_nobody_says_where_a_request_comes_from(tmp_path: Path) -> None:
    with serving(tmp_path) as served, served.client() as client:
        refused = []
        for number in range(52):
            headers = {"X-Forwarded-For": f"203.0.113.{number}", "X-Forwarded-Proto": "https", "Origin": served.url}
            body = {"name": f"nobody{number}", "password": "wrong wrong wrong"}
            refused.append(client.post("/api/v1/login", json=body, headers=headers).status_code)
    assert refused.count(429) >= 1  # one address, however it calls itself
