"""Stands between a program and an S3-compatible server: may be gone, slow, or refuse every account."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

REFUSAL = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
FORBIDDEN = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
)


class Proxy(socketserver.ThreadingTCPServer):
    """Hands requests on; `gone` cuts every connection, `delay` is in seconds for a request, `refuses` answers 403."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self.server = (host, int(port))
        self.gone, self.delay, self.refuses, self.requests = False, 0.0, False, 0
        super().__init__(("127.0.0.1", 0), Connection)

    @property
    def endpoint(self) -> str:
        """Where programs find it."""
        return f"127.0.0.1:{self.server_address[1]}"


class Connection(socketserver.BaseRequestHandler):
    """One connection, both ways."""

    server: Proxy

    def handle(self) -> None:
        """Until one side closes it, or the server is gone."""
        with suppress(OSError), socket.create_connection(self.server.server, timeout=60) as behind:
            threading.Thread(target=self._back, args=(behind,), daemon=True).start()
            while not self.server.gone and (told := self.request.recv(65536)):
                if told[:4] in (b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE"):
                    self.server.requests += 1
                    time.sleep(self.server.delay)
                    if self.server.refuses:
                        self.request.sendall(FORBIDDEN % (len(REFUSAL), REFUSAL))
                        return
                if self.server.gone:
                    return
                behind.sendall(told)

    def _back(self, behind: socket.socket) -> None:
        with suppress(OSError):
            while not self.server.gone and (told := behind.recv(65536)):
                self.request.sendall(told)
            self.request.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(endpoint: str) -> Iterator[Proxy]:
    """A proxy before the endpoint, for the length of the block."""
    with Proxy(endpoint) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()
