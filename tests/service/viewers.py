"""Viewers of streams that connect again and again, as browsers do, with the id that they saw last."""

import json
import threading
import time
from typing import Any

import httpx


class Viewer:
    """Reads a stream in a thread until `close`, whatever becomes of the server."""

    def __init__(self, url: str, token: str) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []  # id and event, of those that have an id
        self.connections = 0
        self._url, self._headers = url, {"Authorization": f"Bearer {token}"}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __enter__(self) -> "Viewer":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(300)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for _, event in self.seen]

    def _watch(self) -> None:
        while not self._closed.is_set():
            last = {"Last-Event-ID": self.seen[-1][0]} if self.seen else {}
            try:
                with httpx.stream("GET", self._url, headers=self._headers | last, timeout=2, trust_env=False) as answer:
                    assert answer.status_code == 200, answer.read()
                    self.connections += 1
                    self._read(answer)
            except httpx.HTTPError:
                time.sleep(0.05)

    def _read(self, answer: httpx.Response) -> None:
        place = None
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                place = value
            elif name == "data" and place is not None:
                self.seen.append((place, json.loads(value)))
                place = None
            if self._closed.is_set():
                return
