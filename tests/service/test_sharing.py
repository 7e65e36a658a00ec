"""Devices that change hands while studies run, with drivers that are real processes and need no Ray."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.service.running import end_drivers, running, wait_for, wait_until
from tests.service.submissions import ANNE, BERT, STUDY, submission
from tests.service.test_killed_server import serving
from tests.service.test_supervisor import driver_pid, epochs
from tuner.history.records import TrialRecord
from tuner.lifecycle.allotment import Allotment, NoPins
from tuner.service.access import Access
from tuner.service.allotments import allotment_of, given_back, tell
from tuner.service.database import audit
from tuner.service.errors import ServiceError
from tuner.service.model import Device, Role, State
from tuner.service.service import Service
from tuner.storage.folder import LocalFolder

LONG = STUDY.replace("trials=4", "trials=4000")
CPUS = sorted(os.sched_getaffinity(0))[:2]

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def held(service: Service, study: int) -> int:
    return len(service.study(study).devices)


def on_cpus(pid: int) -> set[int]:
    return os.sched_getaffinity(pid)


def whole(service: Service, study: int) -> bool:
    """Whether no trial was ended in the middle, no epoch is missing, and none was trained twice."""
    run = service.run(study)
    assert run is not None
    events = [(event["trial"], event["epoch"]) for event in run.events if event["event"] == "epoch_reported"]
    return len(events) == len(set(events)) and all(map(_whole, run.record.trials.values()))


def _whole(trial: TrialRecord) -> bool:
    return trial.status == "completed" and [*trial.epochs] == [1, 2, 3]


def owners(service: Service) -> list[int]:
    """The study of each device, each of which the server has given once."""
    with service.database.reading() as connection:
        rows = connection.execute("SELECT id, devices FROM studies WHERE devices != '[]'").fetchall()
    given = [(tuple(device), row["id"]) for row in rows for device in json.loads(row["devices"])]
    assert len(dict(given)) == len(given)
    return [study for _, study in given]


def test_a_second_user_gets_a_share_and_gives_it_back(tmp_path: Path) -> None:
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(STUDY.replace("trials=4", "trials=150")), ANNE).id
        wait_until(service, first, State.RUNNING)
        assert held(service, first) == 2
        second = service.submit(submission(options={"trials": 6}), BERT).id
        wait_until(service, second, State.RUNNING)
        assert (held(service, first), held(service, second), service.study(first).attempt) == (1, 1, 1)
        pids = [driver_pid(service, study) for study in (first, second)]
        assert on_cpus(pids[0]) | on_cpus(pids[1]) == set(CPUS)
        assert on_cpus(pids[0]).isdisjoint(on_cpus(pids[1]))
        wait_until(service, second, State.FINISHED)
        wait_for(lambda: held(service, first) == 2)
        wait_for(lambda: on_cpus(pids[0]) == set(CPUS))
        wait_until(service, first, State.FINISHED)
        assert whole(service, first)
        assert service.study(first).attempt == 1
        with service.database.reading() as connection:
            told = [entry.action for entry in audit.entries(connection, study=first, before=None, limit=50)]
            used = connection.execute("SELECT devices FROM usage WHERE study = ? ORDER BY started", (first,)).fetchall()
    assert [each["devices"] for each in used] == [2, 1, 2]
    assert [action for action in reversed(told) if "devices" in action] == ["gives devices back", "gets devices"]


def test_studies_of_one_user_share_too_and_the_queue_says_what_they_wait_for(tmp_path: Path) -> None:
    slow = LONG.replace("max_epochs=3", "max_epochs=300").replace("range(3)", "range(300)")
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(slow), ANNE).id
        wait_until(service, first, State.RUNNING)
        second = service.submit(submission(), ANNE).id
        wait_until(service, second, State.QUEUED)
        (position,) = service.queue()
        assert position.reason == (
            "first in line: it needs 1 CPU, and none is free; study 1 gives 1 CPU back as its trials end"
        )
        before = epochs(service, first)
        wait_for(lambda: epochs(service, first) > before + 60)
        assert (held(service, first), service.study(second).state) == (2, State.QUEUED)  # no trial has ended
        service.cancel(first, ANNE)
        wait_until(service, second, State.FINISHED)


def test_one_trial_that_needs_all_devices_keeps_them(tmp_path: Path) -> None:
    both = LONG.replace("trial=train,", "trial=train, resources=tuner.Resources(cpus=2),")
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(both.replace("trials=4000", "trials=8")), ANNE).id
        wait_until(service, first, State.RUNNING)
        second = service.submit(submission(), BERT).id
        wait_until(service, second, State.RUNNING)
        assert service.study(first).state is State.FINISHED
        assert whole(service, first)


def test_two_users_who_wait_both_get_a_share_in_turn(tmp_path: Path) -> None:
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(LONG), ANNE).id
        wait_until(service, first, State.RUNNING)
        others = [service.submit(submission(), by).id for by in (BERT, BERT)]
        for study in others:
            wait_until(service, study, State.FINISHED)
        wait_for(lambda: held(service, first) == 2)
        assert (service.study(first).attempt, service.study(first).deaths) == (1, 0)


def test_a_study_keeps_no_device_for_trials_that_it_does_not_have_any_more(tmp_path: Path) -> None:
    slow = (
        STUDY.replace("trials=4", "trials=3").replace("max_epochs=3", "max_epochs=80").replace("range(3)", "range(80)")
    )
    with running(tmp_path, cpus=2) as service:
        study = service.submit(submission(slow), ANNE).id
        wait_until(service, study, State.RUNNING)
        assert held(service, study) == 2
        wait_for(lambda: held(service, study) == 1)
        progress = service.progress(study)
        assert progress is not None
        assert (progress.trials["completed"], progress.trials["running"]) == (2, 1)
        wait_until(service, study, State.FINISHED)


def test_a_driver_that_dies_while_it_gives_devices_back_loses_none(tmp_path: Path) -> None:
    slow = LONG.replace("max_epochs=3", "max_epochs=300").replace("range(3)", "range(300)")
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(slow), ANNE).id
        wait_until(service, first, State.RUNNING)
        second = service.submit(submission(LONG), BERT).id
        wait_until(service, second, State.QUEUED)
        folder = service.folder.attempt(first, 1)
        wait_for((folder / "allotment.json").exists)
        os.kill(driver_pid(service, first), signal.SIGKILL)
        wait_until(service, second, State.RUNNING)
        wait_for(lambda: sorted(owners(service)) in ([second, second], [first, second]))
        wait_for(lambda: service.study(first).attempt == 2 and held(service, first) == 1, seconds=600)
        assert sorted(owners(service)) == [first, second]


def test_a_study_that_ends_while_it_should_give_devices_back_leaves_them_all(tmp_path: Path) -> None:
    slow = (
        STUDY.replace("trials=4", "trials=2").replace("max_epochs=3", "max_epochs=60").replace("range(3)", "range(60)")
    )
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(slow), ANNE).id
        wait_until(service, first, State.RUNNING)
        second = service.submit(submission(LONG), BERT).id
        wait_until(service, second, State.RUNNING)
        assert service.study(first).state in (State.FINISHED, State.RUNNING)
        wait_until(service, first, State.FINISHED)
        wait_for(lambda: owners(service) == [second, second])


def test_a_study_whose_concurrency_is_raised_gets_devices_for_it(tmp_path: Path) -> None:
    with running(tmp_path, cpus=2) as service:
        study = service.submit(submission(LONG, options={"concurrency": 1}), ANNE).id
        wait_until(service, study, State.RUNNING)
        wait_for((service.folder.attempt(study, 1) / "held.json").exists)
        assert held(service, study) == 1
        service.change(study, ANNE, concurrency=2)
        wait_for(lambda: held(service, study) == 2)
        wait_for(lambda: (found := service.followed(study)) and len(found.running) == 2)


def test_a_driver_that_concludes_keeps_what_it_has_and_leaves_what_it_has_not_taken(tmp_path: Path) -> None:
    task = {"kind": "cpu", "each": 1, "most": 3, "expected": 3, "devices": ["7", "8"]}
    (tmp_path / "task.json").write_text(json.dumps({"allotment": task}))
    assert allotment_of(tmp_path) is None  # it has not begun
    driver = Allotment(LocalFolder(tmp_path), **task)
    driver.pins = NoPins()
    driver.look(2)
    told = allotment_of(tmp_path)
    assert told is not None
    assert (told.over, told.at_once) == (False, 2)
    has = tuple(Device("cpu", number) for number in (7, 8, 9))
    tell(tmp_path, told, has, keep=3)
    driver.close()
    told = allotment_of(tmp_path)
    assert told is not None
    assert (told.over, given_back(told, has)) == (True, has[2:])


def test_a_study_that_concludes_neither_gets_devices_nor_is_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(LONG), ANNE).id
        wait_until(service, first, State.RUNNING)
        held_file = service.folder.attempt(first, 1) / "held.json"
        wait_for(held_file.exists)
        held_file.write_text(json.dumps({**json.loads(held_file.read_text()), "over": True}))
        second = service.submit(submission(), BERT).id
        wait_until(service, second, State.QUEUED)
        assert service.queue()[0].reason == "first in line: it needs 1 CPU, and none is free"
        service.cancel(first, ANNE)
        wait_until(service, second, State.FINISHED)


def test_a_cap_that_is_lowered_while_its_user_runs_counts_between_trials(tmp_path: Path) -> None:
    with running(tmp_path, cpus=2) as service:
        access = Access(service.database)
        chief = access.accept(str(access.first_secret()), "four words are enough", "chief", "here")
        anne = access.add_user(chief, "anne", Role.SUBMITTER)[0]
        study = service.submit(submission(LONG), anne).id
        wait_until(service, study, State.RUNNING)
        assert held(service, study) == 2
        access.change_user(chief, "anne", caps={"most_devices": 1})
        wait_for(lambda: held(service, study) == 1)
        waits = service.submit(submission(), anne).id
        wait_until(service, waits, State.QUEUED)
        assert [position.reason for position in service.queue()] == [
            "anne may have 1 CPU at once; an admin changes this: tuner user cap anne --devices N"
        ]
        access.change_user(chief, "anne", caps={"most_devices": None})
        wait_until(service, waits, State.FINISHED)
        wait_for(lambda: held(service, study) == 2)
        with pytest.raises(ServiceError, match="changing a user needs the role admin"):
            access.change_user(anne, "anne", caps={"most_devices": None})


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_server_killed_at_any_moment_of_a_hand_over_gives_each_device_once(tmp_path: Path, kills: int) -> None:
    looking = Service(tmp_path)  # which is never started: it reads and submits
    try:
        first = looking.submit(submission(LONG), ANNE).id
        for _ in range(kills):
            with serving(tmp_path, cpus=2) as process:
                wait_for(lambda: held(looking, first) == 2)
                looking.submit(submission(options={"trials": 3}), BERT)
                wait_for(lambda: held(looking, first) == 1, every=0.001)  # the moment of the hand-over
                process.kill()
                process.wait()
            owners(looking)
            with serving(tmp_path, cpus=2):
                wait_for(lambda: {one.state for one in looking.studies(user="bert")} == {State.FINISHED})
                wait_for(lambda: owners(looking) == [first, first])
        found = looking.study(first)
        assert (found.attempt, found.deaths, found.state) == (1, 0, State.RUNNING)
    finally:
        looking.close()
        end_drivers(tmp_path)
