"""The inbox of a run: a folder with one file per order. Everybody who can write to it can steer the search."""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tuner.errors import RunFolderError, StudyError
from tuner.orders.order import LARGEST_BYTES, Malformed, Order, identity, parsed, sender
from tuner.space.values import recorded
from tuner.storage.durable import make
from tuner.storage.folder import Folder, LocalFolder

INBOX = "inbox"
SECOND_LOOK = 1.0  # seconds until an unreadable file, which an editor may be writing, counts as wrong


def open_inbox(folder: Folder) -> None:
    """Create the folder; others can write to it if the umask allows that."""
    if isinstance(folder, LocalFolder):
        make(folder.inside(INBOX))


def put(folder: Folder, verb: str, arguments: Mapping[str, Any], by: str | None = None) -> Order:
    """Write an order, by default as this process's user; raises RunFolderError if that can't be done."""
    now = time.time()
    name = f"{int(now * 1000):013d}-{uuid.uuid4().hex[:8]}"
    order = Order(name, verb, arguments, by or sender(), now, f"{name}.json")
    told = {"id": name, "verb": verb, "arguments": recorded(dict(arguments)), "by": order.by, "time": now}
    try:
        folder.create(f"{INBOX}/{order.file}", (json.dumps(told, indent=2) + "\n").encode())
        if isinstance(folder, LocalFolder):
            with suppress(FileNotFoundError):  # the driver has read it already
                folder.inside(f"{INBOX}/{order.file}").chmod(0o644)  # the driver may be another user
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunFolderError(
            f"an order needs write access to the run's {INBOX}/, got {folder.uri!r} ({reason}); ask its owner for it"
        ) from error
    return order


def withdraw(folder: Folder, order: Order) -> None:
    """Delete an order that nobody will read."""
    with suppress(OSError):
        folder.remove(f"{INBOX}/{order.file}")


def waiting(folder: Folder) -> list[Order | Malformed]:
    """The orders that no driver has answered yet. Raises OSError if the folder can't be read."""
    return Inbox(folder).look()


class Inbox:
    """The driver's view: `look` returns new orders, each file once, and deletes those that are `done`.

    Files whose names don't end in `.json`, or begin with a dot, are an editor's own and ignored. A file that can't be
    read, or isn't an order, is read again `SECOND_LOOK` seconds later. `look` takes no lock: one thread calls it.
    `store_answers` stores the answers before the orders are deleted: otherwise an order could be lost if the driver is
    killed. If it fails, the orders are kept.
    """

    def __init__(
        self,
        folder: Folder,
        clock: Callable[[], float] = time.monotonic,
        store_answers: Callable[[], None] | None = None,
    ) -> None:
        self._folder, self._clock, self._store_answers = folder, clock, store_answers
        self._handed_out: set[str] = set()
        self._done: deque[str] = deque()
        self._doubtful: dict[str, tuple[float, bytes | None]] = {}  # when it was first read, and its content then

    def done(self, order: Order | Malformed) -> None:
        """The order was answered by an event; may be called from another thread."""
        self._done.append(order.file)

    def look(self) -> list[Order | Malformed]:
        """Orders that have come since the last call, by their times. Raises OSError if the folder can't be read."""
        self._remove_done()
        names = [name for name in self._folder.files(INBOX) if name.endswith(".json") and name[0] not in ".#"]
        self._handed_out &= set(names)
        self._doubtful = {name: seen for name, seen in self._doubtful.items() if name in names}
        found = [each for name in names if name not in self._handed_out and (each := self._read(name)) is not None]
        self._handed_out |= {each.file for each in found}
        return sorted(found, key=lambda each: (each.time, each.file))

    def _remove_done(self) -> None:
        answered = len(self._done)  # only those up to now: later answers may not be stored yet
        if answered and self._store_answers is not None:
            try:
                self._store_answers()
            except OSError:
                return
        for _ in range(answered):
            name = self._done.popleft()
            try:
                self._folder.remove(f"{INBOX}/{name}")
            except (OSError, RunFolderError):  # the file stays, and isn't read again
                continue
            self._handed_out.discard(name)

    def _read(self, name: str) -> Order | Malformed | None:
        """The order of a file; None if it is gone, or will be read again."""
        content, modified = None, 0.0
        try:
            content = self._folder.read_at_most(f"{INBOX}/{name}", LARGEST_BYTES + 1)
            modified = self._folder.modified(f"{INBOX}/{name}")
            return parsed(name, content, modified)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = "a symbolic link" if error.errno == errno.ELOOP else os.strerror(error.errno or errno.EIO)
            problem = f"an order needs to be a file that the search can read, got {name!r} ({reason}); write it again"
        except StudyError as error:
            problem = str(error)
        first, before = self._doubtful.setdefault(name, (self._clock(), content))
        if before != content:
            self._doubtful[name] = (self._clock(), content)
            return None
        if self._clock() - first < SECOND_LOOK:
            return None
        del self._doubtful[name]
        modified = modified or time.time()
        return Malformed(identity(name, None, modified), problem, modified, name)
