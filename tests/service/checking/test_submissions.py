import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.running import running, wait_for
from tests.service.submissions import ANNE, BERT, CHIEF, STUDY, submission
from tuner.service.checking import submissions
from tuner.service.checking.submissions import Checks
from tuner.service.data_folder import DataFolder
from tuner.service.database import Database, studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Limits, State


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


SLOW = f"import time\ntime.sleep(2)\n{STUDY}"


def test_users_are_checked_in_turn_and_one_users_studies_by_priority(tmp_path: Path) -> None:
    """However many studies one user has submitted before, and however long each takes to load."""
    with running(tmp_path) as service:
        many = [service.submit(submission(SLOW), ANNE).id for _ in range(12)]
        alone = service.submit(submission(), BERT).id
        wait_for(lambda: service.study(alone).state is not State.CHECKING)
        assert sum(service.study(study).state is State.CHECKING for study in many) >= 6
        lower = [service.submit(submission(SLOW), CHIEF).id for _ in range(5)]
        higher = service.submit(submission(priority=10), CHIEF).id
        wait_for(lambda: service.study(higher).state is not State.CHECKING)
        assert sum(service.study(study).state is State.CHECKING for study in lower) >= 2
        assert sum(service.study(study).state is State.CHECKING for study in many) >= 2


def test_a_users_checks_that_wait_have_a_limit(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with running(tmp_path, limits=Limits(checks_per_user=3)) as service:
        service._checks.close()  # so that all of them wait
        for _ in range(3):
            service.submit(submission(), ANNE)
        with pytest.raises(ServiceError) as refused:
            service.submit(submission(), ANNE)
        assert (refused.value.code, str(refused.value)) == (
            Code.TOO_MANY,
            "the queue holds at most 3 studies of 'anne' that aren't checked yet, got one more; "
            "submit it once some have passed, or cancel some",
        )
        service.submit(submission(), BERT)
        with service.database.reading() as connection:
            assert studies.count(connection, [State.CHECKING]) == 4
        assert len(list(folder.bundles.iterdir())) == 4


def test_one_user_cannot_have_all_checks_that_users_wait_for(tmp_path: Path) -> None:
    with running(tmp_path) as service, ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(service.check, submission(SLOW), ANNE) for _ in range(2)]
        wait_for(lambda: service._checked_for[ANNE.id] == 2)
        with pytest.raises(ServiceError, match="at most 2 checks of one user are done at once, got one more of 'anne'"):
            service.check(submission(), ANNE)
        assert service.check(submission(), BERT)["name"] == "parabola"
        assert [each.result()["name"] for each in slow] == ["parabola", "parabola"]
        assert service.check(submission(), ANNE)["name"] == "parabola"
