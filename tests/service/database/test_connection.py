import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tuner.errors import StudyError
from tuner.service.database import Database, studies
from tuner.service.database.connection import MIGRATIONS
from tuner.service.model import State

ROW = {"name": "s", "user_id": 1, "user": "anne", "state": State.QUEUED, "submitted": 1.0, "changed": 1.0}


def test_what_fails_in_a_transaction_changes_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    with pytest.raises(sqlite3.IntegrityError), database.changing() as connection:
        connection.executemany("INSERT INTO users (name, role, created) VALUES (?, '', 0)", [("anne",), ("ANNE",)])
    with database.reading() as connection:
        assert list(connection.execute("SELECT * FROM users")) == []


def test_one_transaction_at_a_time_of_many_threads(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    with database.changing() as connection:
        study = studies.insert(connection, **ROW)

    def die() -> None:
        for _ in range(20):
            with database.changing() as connection:
                studies.update(connection, study, deaths=studies.get(connection, study).deaths + 1)

    threads = [threading.Thread(target=die) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.reading() as connection:
        assert studies.get(connection, study).deaths == 80


def test_a_backup_is_whole_while_the_database_is_written(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    with database.changing() as connection:
        studies.insert(connection, **ROW)
        database.backup(tmp_path / "copy")  # without what isn't committed
    with Database(tmp_path / "copy").reading() as connection:
        assert studies.page(connection) == []
    with pytest.raises(StudyError, match="a backup needs a new file"):
        database.backup(tmp_path / "copy")
    with pytest.raises(StudyError, match="a backup needs a file that can be written"):
        database.backup(tmp_path / "nowhere/copy")


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Database(tmp_path / "db").close()
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute("PRAGMA user_version = 9999")
    with pytest.raises(StudyError, match="got version 9999"):
        Database(tmp_path / "db")


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"no database" * 500)
    with pytest.raises(StudyError, match=r"a service needs its database, got .*; restore it from a backup"):
        Database(tmp_path / "db")


def damaged(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:  # what the WAL has comes into the file
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(file.read_bytes())
    content[4096 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4096)
    file.write_bytes(content)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def without_tables(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (damaged, r", got '.*/db' \(.*\); restore it from a backup$"),
        (emptied, r", got '.*/db', which is empty; restore it from a backup, or delete it to begin a new service$"),
        (without_tables, r", got '.*/db', which is empty; restore it from a backup, or delete it to begin a new"),
    ],
)
def test_a_damaged_or_empty_database_is_refused(tmp_path: Path, change: Callable[[Path], None], told: str) -> None:
    database = Database(tmp_path / "db")
    with database.changing() as connection:
        studies.insert(connection, **ROW)
    database.close()
    change(tmp_path / "db")
    for _ in range(2):  # the first refusal doesn't turn it into a new one
        with pytest.raises(StudyError, match=f"^a service needs its database{told}"):
            Database(tmp_path / "db")


OPENING = """
import sys, time
from pathlib import Path
from tuner.service.database import Database

while time.time() < float(sys.argv[2]):
    pass
Database(Path(sys.argv[1])).close()
"""


def test_processes_that_begin_a_service_at_once_have_one_new_database(tmp_path: Path) -> None:
    begin = time.time() + 3
    command = [sys.executable, "-c", OPENING, str(tmp_path / "db")]
    opening = [subprocess.Popen([*command, str(begin + k / 500)], stderr=subprocess.PIPE) for k in range(5)]
    assert [process.communicate(timeout=60)[1] for process in opening] == [b""] * 5
    assert [process.returncode for process in opening] == [0] * 5


def test_a_first_start_that_was_killed_leaves_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Path, __: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            Database(tmp_path / "db")
    Database(tmp_path / "db").close()
    assert {file.name for file in tmp_path.iterdir()} == {"db"}


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_locked_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr("tuner.service.database.connection.BUSY_SECONDS", 0.1)
    Database(tmp_path / "db").close()
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute(f"BEGIN {how}")
        with pytest.raises(StudyError, match=r"\(database is locked\); end the program that has it open$"):
            Database(tmp_path / "db")


def test_a_full_database_refuses_in_a_sentence_and_takes_more_once_there_is_room(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    with database.changing() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    database._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    from tuner.service.errors import Code, ServiceError

    with pytest.raises(ServiceError, match="a study needs room") as full, database.changing() as connection:
        studies.insert(connection, **ROW, options={"fixed": "x" * 100_000})
    assert full.value.code is Code.FULL
    database._writer.execute("PRAGMA max_page_count = 1000000")
    with database.changing() as connection:
        assert studies.insert(connection, **ROW) == 1


def test_studies_of_an_older_service_that_were_promised_devices_keep_them(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as old:
        for script in sorted(MIGRATIONS.glob("000[1-5]_*.sql")):
            old.executescript(script.read_text())
        old.execute("PRAGMA user_version = 5")
        row = "INSERT INTO studies (name, user_id, user, state, submitted, changed, kind, wanted, facts) VALUES "
        old.execute("INSERT INTO users (id, name, role, created) VALUES (1, 'anne', 'admin', 0)")
        for kind, wanted, facts in (
            ("cpu", None, '{"packed": false}'),
            ("cpu", None, '{"packed": true}'),
            ("gpu", None, "{}"),
            ("gpu", 2, '{"packed": false}'),
            ("gpu", None, '{"packed": true}'),
            ("external", None, "{}"),
        ):
            old.execute(f"{row} ('s', 1, 'anne', 'queued', 0, 0, ?, ?, ?)", (kind, wanted, facts))
    with Database(tmp_path / "db").reading() as connection:
        fixed = [study.demand.fixed for study in studies.in_states(connection, [State.QUEUED])]
    assert fixed == [False, False, False, True, True, True]


def test_migrations_are_numbered_one_after_the_other() -> None:
    """Two of one number, as of two changes that were merged, would leave one out."""
    numbers = sorted(int(path.name[:4]) for path in MIGRATIONS.iterdir() if path.suffix == ".sql")
    assert numbers == list(range(1, len(numbers) + 1))
