"""Stands in for the Hugging Face hub: the requests that its own library sends, answered on this machine."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Hub(ThreadingHTTPServer):
    """Serves repositories as `tests.hub_cache` lays them: HOME/hub/models--OWNER--NAME.

    Attributes:
        asked: "METHOD path" of each request
        cut_after: a GET of weights breaks off after so many bytes, once
    """

    daemon_threads = True

    def __init__(self, home: Path) -> None:
        """Listen on a free port."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.home = home
        self.asked: list[str] = []
        self.cut_after: int | None = None

    @property
    def address(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def folder(self, repository: str) -> Path:
        """A repository's place."""
        return self.home / "hub" / f"models--{repository.replace('/', '--')}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        if named := re.fullmatch(r"/api/models/([^/]+/[^/?]+)(?:/revision/\w+)?(?:\?.*)?", self.path):
            main = self.server.folder(named[1]) / "refs" / "main"
            if main.is_file():
                self._send(json.dumps({"id": named[1], "sha": main.read_text(), "siblings": []}).encode())
                return
        if named := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", self.path):
            folder = self.server.folder(named[1])
            main = folder / "refs" / "main"
            commit = main.read_text() if named[2] == "main" and main.is_file() else named[2]
            file = folder / "snapshots" / commit / named[3]
            if file.is_file():
                self._send(file.read_bytes(), commit)
                return
        self._send(b"Entry not found", status=404)

    def _send(self, body: bytes, commit: str = "", status: int = 200) -> None:
        start = int(found[1]) if (found := re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))) else 0
        self.send_response(206 if start else status)
        if commit:
            self.send_header("X-Repo-Commit", commit)
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        elif status == 404:
            self.send_header("X-Error-Code", "EntryNotFound")
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = self.server.cut_after
        if cut is not None and self.path.endswith(".safetensors"):
            self.server.cut_after = None
            self.wfile.write(body[start : start + cut])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(body[start:])


@contextmanager
def hub_server(home: Path) -> Iterator[Hub]:
    """The hub within the block."""
    with Hub(home) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
