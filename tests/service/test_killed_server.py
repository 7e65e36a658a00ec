"""A server that is killed in mid-run, and what the next one finds: drivers, events, the lock."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.commands import start, tuner
from tests.service import server
from tests.service.running import end_drivers, wait_for
from tests.service.submissions import ANNE, STUDY, submission
from tests.service.test_external import free_port
from tests.service.viewers import Viewer
from tuner import find_runs
from tuner.errors import StudyError
from tuner.history.events import read_all, read_events
from tuner.service.access import Access
from tuner.service.client import connect
from tuner.service.data_folder import DataFolder
from tuner.service.database import audit, studies
from tuner.service.model import State
from tuner.service.service import Service
from tuner.storage.folder import LocalFolder
from tuner.storage.identity import ProcessIdentity

LONG = STUDY.replace("trials=4", "trials=4000")


@contextmanager
def serving(storage: Path, where: int | str | None = None, cpus: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A server process that is killed at the end, where it lives until then; for `where` see `tests.service.server`."""
    command = [sys.executable, server.__file__, str(storage), str(cpus), *([str(where)] if where else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_drivers(tmp_path)


def access_of(looking: Service) -> str:
    """The token of an admin."""
    access = Access(looking.database)
    chief = access.accept(str(access.first_secret()), "four words are enough", "chief", "here")
    return access.create_token(chief, "viewers")[1]


def driver_of(looking: Service, study: int) -> int:
    folder = looking.folder.attempt(study, looking.study(study).attempt)
    return int(json.loads((folder / "process.json").read_text())["pid"])


def begun(looking: Service, study: int) -> bool:
    run = looking.run(study)
    return looking.study(study).state is State.RUNNING and run is not None and run.record.epochs() > 2


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_drivers_outlive_a_killed_server_and_are_adopted_by_the_next(storage: Path, kills: int) -> None:
    """And viewers get every event once, those included that happened while there was no server."""
    looking = Service(storage)  # which is never started: it reads and submits
    token = access_of(looking)
    study = looking.submit(submission(LONG), ANNE).id
    port = free_port()
    url, pids = f"http://127.0.0.1:{port}/api/v1", []
    with ExitStack() as stack:
        viewers = [stack.enter_context(Viewer(f"{url}/studies/{study}/events", token)) for _ in range(3)]
        changes = stack.enter_context(Viewer(f"{url}/events", token))
        for _ in range(kills):
            with serving(storage, port) as process:
                wait_for(lambda: begun(looking, study))
                pids.append(driver_of(looking, study))
                wait_for(lambda: all(viewer.connections for viewer in (*viewers, changes)))
                process.send_signal(signal.SIGKILL)
                process.wait()
            os.kill(pids[-1], 0)  # it lives
        with serving(storage, port):
            looking.finish(study, ANNE)
            wait_for(lambda: looking.study(study).state is State.FINISHED)
            whole = list(read_all(LocalFolder(str(looking.study(study).run))).events)
            wait_for(lambda: all(len(viewer.seen) >= len(whole) for viewer in viewers))
            with looking.database.reading() as connection:
                newest = str(audit.newest(connection))
            wait_for(lambda: changes.seen[-1][0] == newest)
        assert all(viewer.events == whole for viewer in viewers)
        numbers = [int(place) for place, _ in changes.seen]
        assert numbers == sorted(set(numbers))
        with looking.database.reading() as connection:
            stored = [each.id for each in audit.changes(connection, numbers[0] - 1, None, 1000)]
        assert numbers == stored
    found = looking.study(study)
    assert (len(set(pids)), found.attempt, found.deaths) == (1, 1, 0)
    (run,) = find_runs(storage)
    events = list(read_events(run.folder))
    reports = [(event["trial"], event["epoch"]) for event in events if event["event"] == "epoch_reported"]
    assert len(reports) == len(set(reports))
    assert [event["event"] for event in events].count("study_started") == 1
    assert run.damages == []


def test_who_waits_for_a_study_outlasts_a_restart_and_says_so(storage: Path, tmp_path_factory: Any) -> None:
    """`submit --wait`, `logs -f`, `wait()` and a stream of events, none of them told anything of patience."""
    home = tmp_path_factory.mktemp("home")
    (home / "parabola.py").write_text(LONG)
    looking, port = Service(storage), free_port()
    url, token = f"http://127.0.0.1:{port}", access_of(looking)
    told = {"TUNER_SERVER": url, "TUNER_TOKEN": token, "XDG_CONFIG_HOME": str(home)}
    events: list[Any] = []
    with ExitStack() as stack:
        with serving(storage, port) as process:
            submitting = stack.enter_context(start("submit", "parabola.py", "--wait", folder=home, **told))
            wait_for(lambda: any(looking.studies(state=State.RUNNING)) and begun(looking, 1))
            log = looking.folder.attempt(1, 1) / "log"
            log.write_text("a driver's line\n")
            following = stack.enter_context(start("logs", "@1", "-f", folder=home, **told))
            study = connect(url, token).study(1)
            threads = [Thread(target=each, daemon=True) for each in (study.wait, lambda: events.extend(study.events()))]
            for thread in threads:
                thread.start()
            assert following.stdout is not None
            assert following.stdout.readline() == "a driver's line\n"
            wait_for(lambda: len(events) > 1)
            process.kill()
            process.wait()
        said = [_line_with("asking again for", one) for one in (submitting, following)]
        with serving(storage, port):
            looking.finish(1, ANNE)
            (out, err), (_, more) = submitting.communicate(timeout=300), following.communicate(timeout=300)
            for thread in threads:
                thread.join(300)
    assert (submitting.returncode, following.returncode) == (0, 0), err + more
    assert out.endswith("is finished\n")
    assert said[0].startswith(f"a service needs to be reached, got no answer from {url} (")  # refused, or cut off
    assert f"{url} answers again" in err
    assert f"{url} answers again" in more
    assert study.state == "finished"
    assert events == list(read_all(LocalFolder(str(looking.study(1).run))).events)


def _line_with(text: str, process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if text in line)


def test_patience_ends_and_a_wrong_address_needs_none(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    for patience, words in (((), "check its address"), (("--patience", "0.01"), "asking again for 0.01 minutes")):
        found = tuner("queue", *patience, "--server", address, folder=tmp_path, TUNER_TOKEN="none")
        assert (found.code, words in found.err) == (2, True), found.err


@pytest.mark.slow
def test_server_and_driver_killed_together_go_on_at_once_after_a_reboot(storage: Path) -> None:
    looking = Service(storage)
    study = looking.submit(submission(LONG), ANNE).id
    with serving(storage) as process:
        wait_for(lambda: begun(looking, study))
        process.kill()
        process.wait()
    driver = driver_of(looking, study)
    os.kill(driver, signal.SIGKILL)
    file = looking.folder.attempt(study, 1) / "process.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"boot": "another", "pid": os.getpid()}))
    with serving(storage):
        wait_for(lambda: looking.study(study).attempt == 2 and begun(looking, study))
        looking.cancel(study, ANNE)
        wait_for(lambda: looking.study(study).devices == ())
    assert looking.study(study).deaths == 0  # it was not the driver's fault
    run = looking.run(study)
    assert run is not None
    assert [event["event"] for event in run.events].count("study_resumed") == 1


def test_a_driver_that_nobody_saw_start_is_given_up_and_does_nothing_then(tmp_path: Path) -> None:
    from tuner.service.executors import LocalProcesses

    folder = tmp_path / "1-1"
    folder.mkdir()
    (folder / "task.json").write_text(json.dumps({"study": "nowhere.py", "cpus": None}))
    now = (folder / "task.json").stat().st_mtime
    assert LocalProcesses(clock=lambda: now + 1).look(folder).state == "starting"
    assert LocalProcesses(clock=lambda: now + 60).look(folder).state == "gone"
    assert LocalProcesses(clock=lambda: now + 1).look(folder).state == "gone"
    assert LocalProcesses(clock=lambda: now + 1).look(tmp_path / "never").state == "gone"


def test_a_stranger_with_the_drivers_number_is_neither_adopted_nor_killed(tmp_path: Path) -> None:
    from tuner.service.executors import LocalProcesses

    folder = tmp_path / "1-1"
    folder.mkdir()
    (folder / "task.json").touch()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        mine = ProcessIdentity.of(stranger.pid)
        earlier = {**vars(mine), "start": (mine.start or 0) - 1}
        (folder / "process.json").write_text(json.dumps(earlier))
        executor = LocalProcesses()
        assert executor.look(folder).state == "gone"
        executor.kill(folder)
        executor.interrupt(folder)
        assert stranger.poll() is None
        (folder / "process.json").write_text(json.dumps(vars(mine)))
        assert executor.look(folder).state == "starting"
        executor.kill(folder)
        assert stranger.wait() == -signal.SIGKILL


def test_a_second_server_is_refused_and_told_who_holds_the_storage(storage: Path) -> None:
    with serving(storage) as process:
        with pytest.raises(StudyError, match=rf"has one server at a time, got .*, which process {process.pid} on '"):
            Service(storage).start()
        process.kill()
        process.wait()
        folder = DataFolder(storage)
        folder.lock()  # the lock went with the process
        folder.unlock()


def test_the_services_own_folder_is_no_run(storage: Path) -> None:
    service = Service(storage)
    study = service.submit(submission(files={"run.json": b'{"format": 2}'}), ANNE).id
    with service.database.reading() as connection:
        assert studies.get(connection, study).state is State.CHECKING
    assert find_runs(storage) == []
    service.folder.drivers.joinpath("run.json").write_text('{"format": 2}')
    assert find_runs(storage) == []
