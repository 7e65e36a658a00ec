"""Stands in for download.pytorch.org: a proxy on this machine that answers for it, by HTTPS with a certificate."""

import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HOST = "download.pytorch.org"


class _Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    folder: Path
    context: ssl.SSLContext
    asked: list[str]


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Proxy)
        target = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with server.context.wrap_socket(self.connection, server_side=True) as inner, inner.makefile("rb") as lines:
            method, path, _ = lines.readline().decode().split()
            while lines.readline().strip():
                pass
            server.asked.append(f"{method} {target.partition(':')[0]}{path}")
            file = server.folder / Path(path).name
            found = file.is_file()
            body = file.read_bytes() if found else b""
            status = "200 OK" if found else "403 Forbidden"
            inner.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
            if method == "GET":
                inner.sendall(body)


@contextmanager
def torch_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Files that lie in `folder` are at download.pytorch.org/models/ within the block; what was asked for so far."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, certificate = folder.parent / "key.pem", folder.parent / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    subprocess.run([*made, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with _Proxy(("127.0.0.1", 0), _Handler) as server:
        server.folder, server.asked = folder, []
        server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.context.load_cert_chain(certificate, key)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_address[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies of its first use in a process
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.asked
        finally:
            server.shutdown()
            thread.join()
