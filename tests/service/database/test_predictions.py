"""Whether the ends of studies lay where they were foretold."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.running import running, wait_until
from tests.service.submissions import ANNE, STUDY, submission
from tuner.service.database import Database, predictions, studies
from tuner.service.database.predictions import LeftRecord
from tuner.service.model import State


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    database = Database(tmp_path / "service.sqlite3")
    with database.changing() as found:
        for number in range(12):
            studies.insert(found, name=str(number), user_id=1, user="anne", state="running", submitted=0, changed=0)
        yield found
    database.close()


def test_what_counts_is_the_last_before_half_of_the_time(connection: sqlite3.Connection) -> None:
    predictions.note(connection, 1, 10.0, 200.0, 300.0)  # would not have held
    predictions.note(connection, 1, 40.0, 90.0, 130.0)
    predictions.note(connection, 1, 60.0, 101.0, 102.0)  # too late to count, as 60 is more than half of 100
    predictions.ended(connection, 1, 0.0, 100.0)
    assert predictions.record(connection) == LeftRecord(1, 1)
    predictions.note(connection, 2, 10.0, 120.0, 300.0)
    predictions.ended(connection, 2, 0.0, 100.0)
    assert predictions.record(connection) == LeftRecord(1, 2)


def test_what_somebody_changed_or_nobody_foretold_counts_for_nothing(connection: sqlite3.Connection) -> None:
    predictions.note(connection, 1, 10.0, 200.0, 300.0)
    predictions.forget(connection, 1)
    predictions.ended(connection, 1, 0.0, 100.0)
    predictions.ended(connection, 2, 0.0, 100.0)
    assert predictions.record(connection) is None


def test_the_record_is_of_the_last_ten(connection: sqlite3.Connection) -> None:
    for study in range(1, 13):
        predictions.note(connection, study, 1.0, 0.0, 1000.0 if study > 2 else 2.0)
        predictions.ended(connection, study, 0.0, 100.0 + study)
    assert predictions.record(connection) == LeftRecord(10, 10)


def test_it_is_noted_at_each_doubling(connection: sqlite3.Connection) -> None:
    noted = []
    for now in range(1, 100):
        if predictions.due(connection, 1, 0.0, now):
            predictions.note(connection, 1, now, now, now)
            noted.append(now)
    assert noted == [5, 10, 20, 40, 80]


def test_a_study_that_ends_by_itself_comes_into_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "FIRST_SECONDS", 0.0)
    monkeypatch.setenv("EPOCH_SECONDS", "0.02")
    with running(tmp_path) as service:
        study = service.submit(submission(STUDY.replace("trials=4", "trials=60")), ANNE).id
        wait_until(service, study, State.RUNNING)
        until = time.monotonic() + 300
        while time.monotonic() < until and service.study(study).state is not State.FINISHED:
            time.sleep(0.05)
        with service.database.reading() as connection:
            found = predictions.record(connection)
            left = connection.execute("SELECT count(*) FROM foretold").fetchone()[0]
    assert found is not None
    assert (found.studies, left) == (1, 0)
