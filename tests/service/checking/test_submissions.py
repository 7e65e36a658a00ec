import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner.service.checking import submissions
from tuner.service.checking.submissions import Checks
from tuner.service.data_folder import DataFolder
from tuner.service.database import Database
from tuner.service.model import Limits


def test_once_it_is_closed_no_thread_reads_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "LOOK_SECONDS", 0.001)
    folder = DataFolder(tmp_path)
    folder.make()
    database = Database(folder.database)
    now_reading = set[object]()
    reading = database.reading

    @contextmanager
    def slowly() -> Iterator[object]:
        now_reading.add(one := object())
        with reading() as connection:
            yield connection
            time.sleep(0.01)
        now_reading.remove(one)

    monkeypatch.setattr(database, "reading", slowly)
    for _ in range(10):
        checks = Checks(database, folder, Limits(), (), lambda study: None)
        checks.start()
        while not now_reading:
            time.sleep(0.001)
        checks.close()
        assert not now_reading
        time.sleep(0.02)
        assert not now_reading
    database.close()


def test_a_database_that_cannot_be_read_for_a_moment_ends_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "LOOK_SECONDS", 0.001)
    folder = DataFolder(tmp_path)
    folder.make()
    database = Database(folder.database)
    reading, looks = database.reading, 0

    @contextmanager
    def failing_at_first() -> Iterator[object]:
        nonlocal looks
        looks += 1
        if looks <= 5:
            raise sqlite3.OperationalError("unable to open database file")
        with reading() as connection:
            yield connection

    monkeypatch.setattr(database, "reading", failing_at_first)
    checks = Checks(database, folder, Limits(), (), lambda study: None)
    checks.start()
    until = time.monotonic() + 30
    while looks < 50:
        assert time.monotonic() < until
        time.sleep(0.001)
    assert all(thread.is_alive() for thread in checks._threads)
    checks.close()
    database.close()
