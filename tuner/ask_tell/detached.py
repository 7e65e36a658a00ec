"""A search that workers ask over a socket: `python -m tuner.ask_tell.detached FOLDER/task.json`.

A search service starts it. The task is as in `tuner.cli.detached`, with a study in JSON; requests come in at `socket`
in the same folder, see `desk.py`. For other files there see `tuner.lifecycle.task_folder`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tuner.ask_tell.desk import Desk
from tuner.ask_tell.leases import holders
from tuner.ask_tell.search import Search
from tuner.errors import StudyError
from tuner.lifecycle.task_folder import Task, perform, tell_begun
from tuner.results.declaring import declared_study
from tuner.results.run_folders import load_run
from tuner.search import Proposals
from tuner.storage.folder import LocalFolder
from tuner.study.as_json import study_from_json
from tuner.study.declaration import Study

LOOK_SECONDS = 0.25
SOCKET = "socket"
LONGEST_LINE = 4_000_000  # bytes


def search(task: Task, folder: LocalFolder) -> str:
    """Serve a search until it is over, or told to end; returns the run's status."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    found, desk = _begun(task)
    with Line(folder.path / SOCKET, desk):
        print(f"serving the search {found.run.path}", flush=True)
        tell_begun(folder, found.run.path)
        while not found.over and not told.wait(LOOK_SECONDS):
            desk.look()
        found.close()  # waits until everything after the search is written
        desk.close()
    print(f"the search is {found.run.status}", flush=True)
    return found.run.status


def _begun(task: Task) -> tuple[Search, Desk]:
    """The search and its desk: a new one, or one that goes on with the workers that it had."""
    if task["run"] is None:
        study = study_from_json(Path(task["study"]).read_bytes())
        _load(study)
        new = Search(study, storage=task["storage"], **task["options"], **task["driving"])
        return new, Desk(new)
    earlier = load_run(task["run"])
    _load(declared_study(earlier))
    had, cut_off = holders(earlier.events), sum(trial.live for trial in earlier.record.trials.values())
    found = Search.resume(task["run"], **task["limits"], **task["driving"], retry=[] if task["retry"] else None)
    desk = Desk(found)
    desk.take_back(had, cut_off)
    return found, desk


def _load(study: Study) -> None:
    """Import what suggestions need in advance: it takes a second, for which the first workers shouldn't wait."""
    Proposals(study.problem, study.search.build(study.problem)).propose(0)


class Line:
    """Serves a desk at `path` for the length of a `with` block. Raises StudyError if the disk takes no sockets.

    Behind a Unix socket that only this user may open: one JSON object per line, answered one after another.
    """

    def __init__(self, path: Path, desk: Desk) -> None:
        self._desk = desk
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()
        self._listener = _listening(path)

    def __enter__(self) -> Line:
        threading.Thread(target=self._accept, name="tuner-line", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
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


if __name__ == "__main__":
    sys.exit(perform(sys.argv[1], search))
