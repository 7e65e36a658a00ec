"""A real web server on this machine that keeps what it gets."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Answers each POST with `status`, after `go_on` is set, and keeps it."""

    def __init__(self) -> None:
        self.status = 200
        self.location: str | None = None
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = threading.Event()  # set by the first POST, answered or not
        self.arrived = threading.Condition()
        self.url = ""

    @property
    def messages(self) -> list[Any]:
        return [body for _, _, body in self.requests]

    def wait_for(self, count: int) -> list[Any]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, 300), self.requests
        return self.messages


@contextmanager
def receiving() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kept.asked.set()
            kept.go_on.wait(30)
            with kept.arrived:
                kept.requests.append((self.path, dict(self.headers), body))
                kept.arrived.notify_all()
            self.send_response(kept.status)
            if kept.location is not None:
                self.send_header("Location", kept.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        kept.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
