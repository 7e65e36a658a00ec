"""As much of W&B's server as its client needs to show runs, on loopback; it can also stall, or drop every connection."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Behaviour = Literal["answers", "stalls", "drops"]


@dataclass
class Received:
    """What the client has sent: a run's fields and the rows of its history, by its id; the names of files."""

    url: str
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # GraphQL's operations, with their variables
    requests: int = 0

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path.endswith("/file_stream"):
            rows = json.loads(body).get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            self.history.setdefault(path.split("/")[-2], []).extend(map(json.loads, rows))
            return {}
        if path != "/graphql":
            return {}
        request = json.loads(body)
        variables = request.get("variables") or {}
        self.asked.append((request.get("operationName") or "", variables))
        if request.get("operationName") == "UpsertBucket":
            known = {name: value for name, value in variables.items() if value is not None}
            self.runs.setdefault(variables["name"], {}).update(known)
            project = {"id": "p", "name": variables["project"], "entity": {"id": "e", "name": "team"}}
            bucket = {"id": "b", "name": variables["name"], "displayName": variables["displayName"], "project": project}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
        if request.get("operationName") == "CreateRunFiles":
            self.files += variables["files"]
            files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in variables["files"]]
            return {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}}
        if request.get("operationName") == "RunResumeStatus":
            return {"data": {"model": None}}
        if "viewer" in request["query"]:
            return {"data": {"viewer": {"id": "u", "username": "u", "entity": "team", "flags": "{}"}}}
        return {"errors": [{"message": "this is not served here"}]}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Clients that leave are no news."""


@contextmanager
def wandb_server(behaviour: Behaviour) -> Iterator[Received]:
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            received.requests += 1
            if behaviour == "stalls":
                over.wait()
            if behaviour != "answers":
                self.close_connection = True
                return
            body = self._body()
            answer = json.dumps(received.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST  # noqa: N815 -- the base class's names

        def _body(self) -> bytes:
            body = b""
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

        def log_message(self, *_: Any) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    received = Received(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield received
    finally:
        over.set()
        server.shutdown()
        server.server_close()
