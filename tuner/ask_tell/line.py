"""A desk behind a Unix socket that only this user may open: one JSON object per line, answered one after another."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tuner.ask_tell.desk import Desk
from tuner.errors import StudyError

LONGEST_LINE = 4_000_000  # bytes


class Line:
    """Serves a desk at `path` for the length of a `with` block. Raises StudyError if the disk takes no sockets."""

    def __init__(self, path: Path, desk: Desk) -> None:
        self._desk = desk
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()
        self._listener = _listening(path)

    def __enter__(self) -> Line:
        threading.Thread(target=self._accept, name="tuner-line", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changing:
            for each in (self._listener, *self._open):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(caller,), name="tuner-line-1", daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        self._note(caller, is_open=True)
        try:
            with caller.makefile("rb") as lines, suppress(OSError, ValueError, RuntimeError):  # ends this caller
                while line := lines.readline(LONGEST_LINE):
                    caller.sendall(json.dumps(self._desk.answer(json.loads(line))).encode() + b"\n")
        finally:
            self._note(caller, is_open=False)
            caller.close()

    def _note(self, caller: socket.socket, *, is_open: bool) -> None:
        with self._changing:
            (self._open.add if is_open else self._open.discard)(caller)
            watched = bool(self._open)
        with suppress(RuntimeError):  # the desk was closed
            self._desk.watch(watched)


def _listening(path: Path) -> socket.socket:
    """A socket at a path of any length: a descriptor names its folder, because sockets' addresses are short."""
    found = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        found.bind(f"/proc/self/fd/{folder}/{path.name}")
    except OSError as error:
        found.close()
        raise StudyError(
            f"a study that workers ask needs storage that can hold a socket, got {str(path.parent)!r} "
            f"({error.strerror or error}); choose another --storage"
        ) from error
    finally:
        os.umask(before)
        os.close(folder)
    found.listen(16)
    return found
