"""The database's file: opens it, migrates it to this version, and lets many threads read and one at a time write."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tuner.errors import StudyError, one_line
from tuner.service.errors import Code, ServiceError
from tuner.storage.durable import sync

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 10.0  # that a command, while the server runs, waits for its turn
_SCRIPT = re.compile(r"(\d{4})_\w+\.sql")


class Database:
    """SQLite in WAL mode: readers never wait, writers wait for each other; a commit survives a power cut."""

    def __init__(self, file: Path) -> None:
        """Raises StudyError for a file that is no service's whole database, or that another program has locked."""
        self.file = file
        self._writing = threading.RLock()
        with _usable(file), _alone(file.parent):
            if not file.exists():
                _create(file)
            self._writer = _connected(file)
            _check(self._writer, file)
            _migrate(self._writer)
        self._readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        self.commits = 0  # of this process: if the number is the same, nothing in the database has changed

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: complete or, after an exception, not at all. Raises ServiceError if the disk is full."""
        with self._writing:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
                self.commits += 1
            except BaseException as error:
                self._roll_back()
                if isinstance(error, sqlite3.Error) and _is_full(error):
                    raise disk_full(str(self.file.parent)) from error
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """What was committed last, unchanged for the length of the block."""
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = _connected(self.file)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.rollback()
            if self._closed:
                connection.close()
            else:
                self._readers.append(connection)

    def backup(self, file: Path) -> None:
        """Copy the database's state at one moment, while it is in use. Raises StudyError if the file exists."""
        if file.exists():
            raise StudyError(f"a backup needs a new file, got {str(file)!r}, which is there; choose another name")
        try:
            with closing(sqlite3.connect(file)) as target, closing(_connected(self.file)) as source:
                source.backup(target)
            file.chmod(0o600)
        except (sqlite3.Error, OSError) as error:
            file.unlink(missing_ok=True)
            raise StudyError(
                f"a backup needs a file that can be written, got {str(file)!r} ({error}); choose another place"
            ) from error

    def close(self) -> None:
        """Close the file; nothing may be read or written afterwards."""
        self._closed = True
        with self._writing:
            self._writer.close()
        while self._readers:
            self._readers.pop().close()

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")


def disk_full(where: str) -> ServiceError:
    """The message to a user whose study or order has no room on the disk."""
    return ServiceError(
        Code.FULL,
        "a study needs room on the server's disk",
        f"none that is free in {where!r}",
        "free some, `python -m tuner clean` says how; searches that run go on",
        retry_after=60,
    )


@contextmanager
def _usable(file: Path) -> Iterator[None]:
    """Within the block an error of the database is told as a sentence."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        is_locked = getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
        fix = "end the program that has it open" if is_locked else "restore it from a backup"
        raise StudyError(f"a service needs its database, got {str(file)!r} ({error}); {fix}") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Within the block no other process opens a database in the folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _create(file: Path) -> None:
    """A new database, complete or not at all: so one that is empty is damaged."""
    beside = file.with_name(f"{file.name}.new")
    for left in (beside, beside.with_name(f"{beside.name}-journal")):  # of a process that was killed
        left.unlink(missing_ok=True)
    with closing(sqlite3.connect(beside, isolation_level=None)) as connection:
        _migrate(connection)
    beside.chmod(0o600)
    beside.rename(file)
    sync(file.parent)


def _connected(file: Path) -> sqlite3.Connection:
    with _usable(file):
        connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.create_function("casefold", 1, str.casefold, deterministic=True)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _scripts() -> dict[int, Path]:
    return {int(match[1]): path for path in MIGRATIONS.iterdir() if (match := _SCRIPT.fullmatch(path.name))}


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check(connection: sqlite3.Connection, file: Path) -> None:
    """Raise StudyError or sqlite3.Error for a database that isn't whole, of a later version, or locked."""
    version, newest = _version(connection), max(_scripts())
    if version > newest:
        raise StudyError(
            f"this tuner reads databases up to version {newest}, got version {version} in {str(file)!r}; update tuner"
        )
    if not version:
        raise StudyError(
            f"a service needs its database, got {str(file)!r}, which is empty; restore it from a backup, or delete it "
            "to begin a new service"
        )
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(one_line(found))
    connection.execute("BEGIN IMMEDIATE")  # nothing could be changed while another program has it locked
    connection.execute("ROLLBACK")


def _migrate(connection: sqlite3.Connection) -> None:
    """Run the scripts that this file hasn't run yet, each completely or not at all."""
    version = _version(connection)
    for number, path in sorted(_scripts().items()):
        if number > version:
            script = path.read_text(encoding="utf-8")
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE"))
