"""What goes wrong with one study holds up no other; its owner reads why, and it is tried again."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.results.simulated import simulated
from tests.service.running import end_drivers, wait_for
from tests.service.submissions import ANNE, BERT, submission
from tuner.service import troubles
from tuner.service.database import studies
from tuner.service.executors import LocalProcesses, Look, Task
from tuner.service.model import Demand, Device, State
from tuner.service.service import Service
from tuner.service.supervisor import LOG_END_BYTES

CPUS = (Device("cpu", 0), Device("cpu", 1))
FOREVER = ("sh", "-c", "exec sleep 600")


class Stumbles(LocalProcesses):
    """Real drivers, of which some calls fail for the study `bad`, as an error in tuner would."""

    def __init__(self, bad: int, *calls: str) -> None:
        super().__init__(FOREVER)
        self.bad, self.calls = bad, set(calls)

    def _meet(self, call: str, folder: Path) -> None:
        if call in self.calls and folder.name.startswith(f"{self.bad}-"):
            raise RuntimeError(f"nobody foresaw {call}")

    def start(self, task: Task, folder: Path) -> None:
        self._meet("start", folder)
        super().start(task, folder)

    def look(self, folder: Path) -> Look:
        self._meet("look", folder)
        return super().look(folder)

    def log(self, folder: Path, most: int) -> bytes:
        self._meet("log", folder)
        return super().log(folder, most)


@contextmanager
def queued(storage: Path, executor: LocalProcesses, count: int = 2) -> Iterator[Service]:
    """A service with so many studies that wait; nothing happens but by `step`."""
    service = Service(storage, devices=CPUS, executor=executor)
    for _ in range(count):
        study = service.submit(submission(), ANNE).id
        with service.database.changing() as connection:
            studies.change(connection, study, State.CHECKING, State.QUEUED, 1.0, demand=Demand("cpu", 1, 1))
    try:
        yield service
    finally:
        end_drivers(storage)
        service.close()


def step(service: Service) -> None:
    """One pass, whose plan is made anew."""
    service._supervisor._plan_at = service._supervisor._rest_until = 0.0
    service._supervisor.step()


def actions(service: Service, study: int) -> list[str]:
    return [entry.action for entry in reversed(service.history(study))]


def passed(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """The clock of troubles, and how it goes on."""
    now = [1000.0]
    monkeypatch.setattr(troubles.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def test_an_error_that_nobody_foresaw_holds_up_no_other_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drivers = Stumbles(1, "look")
    with queued(tmp_path, drivers, count=1) as service:
        step(service)
        wait = passed(monkeypatch)
        service.submit(submission(), BERT)
        with service.database.changing() as connection:
            studies.change(connection, 2, State.CHECKING, State.QUEUED, 1.0, demand=Demand("cpu", 1, 1))
        for _ in range(3):
            step(service)
        assert service.study(2).state is State.STARTING
        found = service.study(1)
        assert found.state is State.STARTING
        told = "the server failed to look after its driver and tries again by itself: RuntimeError: nobody foresaw look"
        assert found.reason == told
        assert actions(service, 1) == ["submit", "starting", "trouble"]
        for _ in range(3):
            wait(100.0)
            step(service)
        assert actions(service, 1).count("trouble") == 1  # said once, though it fails again and again
        assert sum(record.levelno == logging.ERROR for record in caplog.records) == 1
        drivers.calls.clear()
        wait(100.0)
        for _ in range(2):
            step(service)
        assert service.study(1).reason is None


def test_what_fails_is_tried_ever_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with queued(tmp_path, LocalProcesses(FOREVER), count=1) as service:
        wait, tries = passed(monkeypatch), []

        def fail() -> None:
            tries.append(troubles.time.monotonic() - 1000.0)
            raise KeyError("odd")

        found = troubles.Troubles(service.database, lambda *_: None)
        for _ in range(200):
            found.guarded(1, "do it", fail)
            wait(1.0)
        assert tries == [0, 1, 6, 36, 96, 156]
        assert found.rests(1, "do it")
        assert not found.rests(1, "do something else")


def test_a_run_that_cannot_be_read_is_still_paused_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with queued(tmp_path, LocalProcesses(FOREVER), count=1) as service:
        step(service)
        run = tmp_path / "run"
        simulated(run)
        (tmp_path / ".service/drivers/1-1/begun.json").write_text(json.dumps({"run": str(run)}))
        monkeypatch.setattr("tuner.service.search_progress.ahead_of", lambda run: 1 / 0)
        step(service)
        found = service.study(1)
        assert found.state is State.RUNNING
        assert "failed to read its run and tries again by itself: ZeroDivisionError" in (found.reason or "")
        service.cancel(1, ANNE)
        wait_for(lambda: step(service) or service.study(1).devices == ())


def test_a_driver_that_cannot_be_started_dies_with_its_reason(tmp_path: Path) -> None:
    with queued(tmp_path, Stumbles(1, "start")) as service:
        step(service)
        step(service)
        bad, good = service.study(1), service.study(2)
        assert good.state is State.STARTING
        assert (bad.state, bad.deaths, bad.devices) == (State.QUEUED, 1, ())
        assert bad.reason == (
            "its driver died: its log ends with: it could not be started: RuntimeError: nobody foresaw start"
        )


def test_a_program_that_is_not_there_is_no_driver_that_is_waited_for(tmp_path: Path) -> None:
    with queued(tmp_path, LocalProcesses((str(tmp_path / "nowhere"),)), count=1) as service:
        step(service)
        step(service)
        found = service.study(1)
        assert (found.state, found.deaths) == (State.QUEUED, 1)
        assert "it could not be started: FileNotFoundError" in (found.reason or "")


def test_a_driver_whose_end_cannot_be_read_leaves_its_devices_and_says_why(tmp_path: Path) -> None:
    drivers = Stumbles(1, "log")
    with queued(tmp_path, drivers, count=1) as service:
        step(service)
        drivers.kill(service.folder.attempt(1, 1))
        wait_for(lambda: step(service) or service.study(1).state is not State.STARTING)
        found = service.study(1)
        assert (found.state, found.devices) == (State.FAILED, ())
        assert found.reason == "what its driver left can't be read: RuntimeError: nobody foresaw log"
        assert service.resume(1, ANNE).state is State.QUEUED


def test_a_run_folder_whose_name_no_database_takes_is_none(tmp_path: Path) -> None:
    with queued(tmp_path, LocalProcesses(FOREVER)) as service:
        step(service)
        (tmp_path / ".service/drivers/1-1/begun.json").write_text('{"run": "\\ud800"}')
        step(service)
        assert (service.study(1).state, service.study(1).run) == (State.STARTING, None)


def test_of_a_long_log_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    with queued(tmp_path, LocalProcesses(FOREVER), count=1) as service:
        step(service)
        folder = service.folder.attempt(1, 1)
        with (folder / "log").open("wb") as log:
            log.truncate(2**40)  # more than any memory: a hole in the file
            log.seek(2**40 - 4)
            log.write(b"end\n")
        assert service.driver_log(1, 2**40 - 4, 100) == b"end\n"
        assert service.driver_log(1, 0, 10) == bytes(10)
        assert LocalProcesses().log(folder, LOG_END_BYTES) == b"end\n".rjust(LOG_END_BYTES, b"\0")
        (folder / "log").unlink()
        os.mkfifo(folder / "log")
        assert service.driver_log(1) == b""  # a pipe would hold its reader


def test_a_study_that_cannot_be_checked_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path, devices=CPUS)
    bad = [service.submit(submission(), ANNE).id for _ in range(2)]
    good = service.submit(submission(), ANNE).id
    looked: list[int] = []

    def facts_of_check(study: object, folder: object, limits: object) -> None:
        looked.append(number := study.id)  # type: ignore[attr-defined]
        if number in bad:
            raise OSError("no such bundle")
        service._checks.close()

    monkeypatch.setattr("tuner.service.checking.submissions.facts_of_check", facts_of_check)
    service._checks._work()  # as one of its threads does
    assert looked == [*bad, good]
    assert service.study(bad[0]).reason == (
        "the server failed to check it and tries again by itself: OSError: no such bundle"
    )
    service.close()
