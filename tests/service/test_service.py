from pathlib import Path

import pytest

from tests.results.simulated import simulated
from tests.service.submissions import ANNE, BERT, CHIEF, GUEST, submission
from tuner.service.database import studies
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Change, Demand, Device, Limits, State, User, place_of
from tuner.service.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def bring(service: Service, study: int, *states: State) -> None:
    for state in states:
        with service.database.changing() as connection:
            studies.change(connection, study, studies.get(connection, study).state, state, 1.0)


def test_a_submission_becomes_a_study_with_its_files(service: Service, tmp_path: Path) -> None:
    found = service.submit(submission(files={"models/net.py": b"x = 1\n"}, priority=-2), ANNE)
    assert (found.id, found.user, found.state, found.priority) == (1, "anne", State.CHECKING, -2)
    bundle = tmp_path / ".service/bundles/1"
    assert (bundle / "models/net.py").read_bytes() == b"x = 1\n"
    assert (bundle / "parabola.py").stat().st_mode & 0o222 == 0
    assert bundle.stat().st_mode & 0o222 == 0
    assert sorted(path.name for path in bundle.parent.iterdir()) == ["1"]
    assert service.study(1) == found


def test_the_same_key_is_one_submission(service: Service) -> None:
    first = service.submit(submission(), ANNE, key="k")
    assert service.submit(submission(), ANNE, key="k").id == first.id
    assert service.submit(submission(), BERT, key="k").id != first.id
    with pytest.raises(ServiceError, match="a key belongs to one submission") as refused:
        service.submit(submission(priority=-1), ANNE, key="k")
    assert refused.value.code is Code.CONFLICT
    assert len(service.studies()) == 2


def test_pages_go_from_the_newest_to_the_oldest_without_a_gap(service: Service) -> None:
    for _ in range(7):
        service.submit(submission(), ANNE)
    seen: list[int] = []
    while found := service.studies(limit=3, before=seen[-1] if seen else None):
        seen += [study.id for study in found]
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    assert [study.id for study in service.studies(user="bert")] == []
    assert len(service.studies(state=State.CHECKING)) == 7
    assert len(service.studies(state=(State.RUNNING, State.QUEUED))) == 0


@pytest.mark.parametrize("cursor", ["x", "-1", "", str(2**53 + 1), "9" * 5000, "²"])
def test_a_cursor_of_ones_own_is_refused(cursor: str) -> None:
    with pytest.raises(ServiceError, match="a cursor is what the page before gave"):
        place_of(cursor)


def test_only_the_owner_and_admins_steer_a_study(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    for stranger in (BERT, GUEST, User(1, "anne", ANNE.role, disabled=True)):
        with pytest.raises(ServiceError) as refused:
            service.cancel(study, stranger)
        assert refused.value.code is Code.FORBIDDEN
    assert service.cancel(study, CHIEF).state is State.CANCELLED
    assert service.cancel(study, ANNE).state is State.CANCELLED


def test_priorities_above_0_are_for_admins(service: Service) -> None:
    with pytest.raises(ServiceError, match="a priority above 0 needs the role admin, got 1"):
        service.submit(submission(priority=1), ANNE)
    study = service.submit(submission(), ANNE).id
    with pytest.raises(ServiceError, match="needs the role admin"):
        service.change(study, ANNE, priority=10)
    assert service.change(study, CHIEF, priority=10).priority == 10
    with pytest.raises(ServiceError, match="a priority is a whole number from -10 to 10, got 11"):
        service.change(study, CHIEF, priority=11)


def test_pause_and_resume_lead_through_their_states(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    with pytest.raises(ServiceError, match="which is checking; pause one that waits or runs"):
        service.pause(study, ANNE)
    bring(service, study, State.QUEUED)
    assert service.pause(study, ANNE).state is State.PAUSED
    assert service.study(study).reason == "paused by anne"
    assert service.pause(study, ANNE).state is State.PAUSED
    assert service.resume(study, ANNE).state is State.QUEUED
    with pytest.raises(ServiceError, match="queued and has no trial yet; cancel it"):
        service.finish(study, ANNE)
    bring(service, study, State.STARTING)
    assert service.pause(study, ANNE).state is State.PAUSING
    with pytest.raises(ServiceError, match="which is pausing"):
        service.resume(study, ANNE)


def test_a_change_names_the_state_that_it_leaves(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    with service.database.changing() as connection, pytest.raises(ServiceError, match="study 1 has to be running"):
        studies.change(connection, study, State.RUNNING, State.FINISHED, 1.0)
    with service.database.changing() as connection, pytest.raises(ServiceError, match="checking to running"):
        studies.change(connection, study, State.CHECKING, State.RUNNING, 1.0)
    assert service.study(study).state is State.CHECKING


def test_the_queue_has_an_end_for_each_user_and_for_all(tmp_path: Path) -> None:
    service = Service(tmp_path, limits=Limits(queued_per_user=2, queued=3))
    for _ in range(2):
        service.submit(submission(), ANNE)
    with pytest.raises(ServiceError, match="at most 2 studies of 'anne'") as refused:
        service.submit(submission(), ANNE)
    assert refused.value.code is Code.TOO_MANY
    assert refused.value.retry_after == 60
    service.submit(submission(), BERT)
    with pytest.raises(ServiceError, match="at most 3 studies of all users"):
        service.submit(submission(), CHIEF)
    assert sorted(path.name for path in service.folder.bundles.iterdir()) == ["1", "2", "3"]
    service.cancel(1, ANNE)
    assert service.submit(submission(), ANNE).id == 4


def test_a_full_disk_takes_no_study_and_says_so(tmp_path: Path) -> None:
    service = Service(tmp_path, limits=Limits(free_bytes=10**18))
    with pytest.raises(ServiceError, match="a study needs room on the server's disk, got none that is free in") as full:
        service.submit(submission(), ANNE)
    assert full.value.code is Code.FULL
    assert list(service.folder.bundles.iterdir()) == []


def test_after_takes_studies_that_can_still_finish(service: Service) -> None:
    first = service.submit(submission(), ANNE).id
    second = service.submit(submission(after=(first, first)), ANNE)
    assert second.after == (first,)
    with pytest.raises(ServiceError, match="a study is named by its number, got 99"):
        service.submit(submission(after=(99,)), ANNE)
    service.cancel(first, ANNE)
    with pytest.raises(ServiceError, match="after needs studies that can still finish, got 1, which is cancelled"):
        service.submit(submission(after=(first,)), ANNE)


def test_options_are_those_of_a_run(service: Service) -> None:
    study = service.submit(submission(options={"trials": 3, "concurrency": 2, "fixed": {"x": 0.5}}), ANNE)
    assert study.options == {"trials": 3, "concurrency": 2, "fixed": {"x": 0.5}}
    with pytest.raises(ServiceError, match="did you mean 'trials'"):
        service.submit(submission(options={"trails": 3}), ANNE)
    with pytest.raises(ServiceError, match="values that JSON has"):
        service.submit(submission(options={"fixed": {"x": float("nan")}}), ANNE)
    with pytest.raises(ServiceError, match="an option needs to be one of `tuner run`'s, got 'address'"):
        service.submit(submission(options={"address": "auto"}), ANNE)


def test_limits_of_a_study_that_waits_are_kept_for_its_driver(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    assert service.change(study, ANNE, limits={"trials": 9}).limits == {"trials": 9}
    assert service.change(study, ANNE, limits={"hours": 1.5}).limits == {"trials": 9, "hours": 1.5}
    with pytest.raises(ServiceError, match="trials needs"):
        service.change(study, ANNE, limits={"trials": -1})
    with pytest.raises(ServiceError, match="did you mean"):
        service.change(study, ANNE, limits={"trails": 1})
    with pytest.raises(ServiceError, match="a change needs a priority, limits or concurrency, got none"):
        service.change(study, ANNE)


def test_trials_at_once_of_a_study_that_waits_are_kept_with_the_devices_for_them(service: Service) -> None:
    service._devices = tuple(Device("cpu", index) for index in range(4))
    study = service.submit(submission(options={"concurrency": 1}), ANNE).id
    assert service.change(study, ANNE, concurrency=3).options == {"concurrency": 3}  # which its check will see
    assert service.study(study).demand == Demand("cpu", 1, 1)
    told = {**service.check(submission(), ANNE), "missing": []}
    told.pop("demand")
    with service.database.changing() as connection:
        studies.update(connection, study, facts=told)
    assert service.change(study, ANNE, concurrency=2).demand == Demand("cpu", 2, 1)
    assert service.history(study)[0].detail == {"concurrency": 2}
    with pytest.raises(ServiceError, match="concurrency"):
        service.change(study, ANNE, concurrency=0)
    with pytest.raises(ServiceError, match="changing a study"):
        service.change(study, BERT, concurrency=1)


def test_a_finished_study_goes_on_with_higher_limits(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    bring(service, study, State.QUEUED, State.STARTING, State.RUNNING, State.FINISHED)
    with service.database.changing() as connection:
        progress = {"trials": {"completed": 5, "failed": 3}, "epochs": 20}
        studies.update(connection, study, run="somewhere", progress=progress)
    for limits, had in (({"trials": 8}, "8"), ({"total_epochs": 20, "trials": 99}, "20")):
        with pytest.raises(ServiceError, match=f"counts the whole run and must be above the {had} that it has, got"):
            service.change(study, ANNE, limits=limits)
    assert service.study(study).state is State.FINISHED
    assert service.change(study, ANNE, limits={"trials": 9}).state is State.QUEUED
    with service.database.changing() as connection:
        studies.update(connection, study, progress=progress | {"trials": {"completed": 7, "interrupted": 1}})
    assert service.change(study, ANNE, limits={"trials": 8}).limits == {"trials": 8}  # the interrupted one is left


def test_orders_need_a_run(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    with pytest.raises(ServiceError, match="'try' needs a study that has begun, got one that is checking") as refused:
        service.try_(study, ANNE, {"x": 0.1})
    assert refused.value.code is Code.CONFLICT
    assert service.run(study) is None


@pytest.mark.parametrize(
    ("last", "fix"),
    [
        (State.FINISHED, "`tuner set @1 --trials N` goes on with it"),
        (State.PAUSED, "`tuner resume @1` goes on with it"),
        (State.FAILED, "`tuner resume @1` goes on with it"),
    ],
)
def test_an_order_to_a_search_that_rests_says_how_the_service_goes_on(
    service: Service, tmp_path: Path, last: State, fix: str
) -> None:
    study = service.submit(submission(), ANNE).id
    run = simulated(tmp_path / "parabola" / "1")
    way = (State.PAUSING, last) if last is State.PAUSED else (last,)
    bring(service, study, State.QUEUED, State.STARTING, State.RUNNING, *way)
    with service.database.changing() as connection:
        studies.update(connection, study, run=run.path)
    answer = service.try_(study, ANNE, {"lr": 0.01})
    told = f"study 1 is {last}: the order waits, and is carried out first once its search goes on; {fix}"
    assert (answer.outcome, answer.message) == ("waiting", told)
    with pytest.raises(ServiceError, match=f"^'stop' needs a study that runs, got study 1, which is {last}; {fix}$"):
        service.stop_trial(study, ANNE, 3)


def test_an_order_to_a_study_whose_driver_starts_waits_for_it(service: Service, tmp_path: Path) -> None:
    """As of one that goes on: it has a run, and nobody works on that yet."""
    study = service.submit(submission(), ANNE).id
    bring(service, study, State.QUEUED, State.STARTING)
    with service.database.changing() as connection:
        run = simulated(tmp_path / "parabola" / "1").path
        studies.update(connection, study, run=run, devices=(Device("cpu", 0),))
    answer = service.try_(study, ANNE, {"lr": 0.01})
    told = "study 1 is starting: the order waits, and is carried out once its search runs"
    assert (answer.outcome, answer.message) == ("waiting", told)


def test_a_cancelled_study_takes_no_order(service: Service, tmp_path: Path) -> None:
    study = service.submit(submission(), ANNE).id
    with service.database.changing() as connection:
        studies.update(connection, study, run=simulated(tmp_path / "parabola" / "1").path)
    service.cancel(study, ANNE)
    with pytest.raises(ServiceError, match=r"^'try' needs a study that runs, got .* cancelled; submit it again$"):
        service.try_(study, ANNE, {"lr": 0.01})
    assert not list((tmp_path / "parabola/1").glob("inbox/*"))


def test_who_is_subscribed_is_told_until_they_leave(service: Service) -> None:
    told: list[Change] = []
    leave = service.subscribe(told.append)
    study = service.submit(submission(), ANNE).id
    service.change(study, ANNE, priority=-1)
    service.cancel(study, ANNE)
    service.delete(study, ANNE)
    leave()
    service.submit(submission(), ANNE)
    assert [(change.kind, change.state) for change in told] == [
        ("state", State.CHECKING),
        ("priority", State.CHECKING),
        ("state", State.CANCELLED),
        ("deleted", State.CANCELLED),
    ]


def test_a_deleted_study_is_gone_and_its_number_is_not_used_again(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    with pytest.raises(ServiceError, match="delete needs a study that is over, got one that is checking"):
        service.delete(study, ANNE)
    service.cancel(study, ANNE)
    service.delete(study, ANNE)
    with pytest.raises(ServiceError, match="a study is named by its number"):
        service.study(study)
    assert list(service.folder.bundles.iterdir()) == []
    assert service.submit(submission(), ANNE).id == 2


def test_every_change_is_written_with_its_author(service: Service) -> None:
    study = service.submit(submission(), ANNE).id
    service.change(study, CHIEF, priority=3)
    service.cancel(study, CHIEF)
    entries = service.history(study)
    assert [(entry.user, entry.action) for entry in entries] == [
        ("chief", "cancel"),
        ("chief", "priority"),
        ("anne", "submit"),
    ]
    assert entries[1].detail == {"before": 0, "after": 3}
    assert service.history(limit=2) == entries[:2]
    assert service.history(before=entries[1].id) == entries[2:]
