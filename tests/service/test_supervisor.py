"""Whole studies, from submission to their end, with drivers that are real processes and need no Ray."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.service.running import running, wait_for, wait_until
from tests.service.submissions import ANNE, BERT, CHIEF, STUDY, submission
from tuner.history.events import read_events
from tuner.service.model import Change, State
from tuner.service.service import Service

LONG = STUDY.replace("trials=4", "trials=4000")


def driver_pid(service: Service, study: int) -> int:
    """Of a driver that has begun; one that isn't tuner's leaves it to the server to write down which process it is."""
    written = service.folder.attempt(study, service.study(study).attempt) / "process.json"
    wait_for(written.exists)
    return int(json.loads(written.read_text())["pid"])


def epochs(service: Service, study: int) -> int:
    found = service.progress(study)
    return 0 if found is None else found.epochs


def wanted(service: Service, study: int) -> int | None:
    found = service.progress(study)
    return None if found is None else found.wanted


def test_a_study_is_checked_run_and_finished(tmp_path: Path) -> None:
    told: list[Change] = []
    with running(tmp_path) as service:
        service.subscribe(told.append)
        study = service.submit(submission(), ANNE).id
        found = wait_until(service, study, State.FINISHED)
        run, progress = service.run(study), service.progress(study)
        usage = service.usage(0.0)
    assert run is not None
    assert (found.run, run.status, len(run.record.trials)) == (run.path, "finished", 4)
    assert (found.name, found.devices, found.reason, found.attempt) == ("parabola", (), None, 1)
    assert found.facts["metric"] == "loss"
    assert progress is not None
    assert (progress.best, progress.epochs, progress.trials["completed"]) == (run.record.best_value, 12, 4)
    assert [(one.user, one.kind, one.state) for one in usage] == [("anne", "cpu", State.FINISHED)]
    assert usage[0].device_hours > 0
    states = list(dict.fromkeys(change.state for change in told))
    assert states == [State.CHECKING, State.QUEUED, State.STARTING, State.RUNNING, State.FINISHED]
    assert any(change.kind == "progress" for change in told)


@pytest.mark.slow
def test_a_refused_study_says_why(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        study = service.submit(submission(STUDY.replace('"x": tuner', '"x": tunre')), ANNE).id
        found = wait_until(service, study, State.REFUSED)
    assert (found.reason or "").startswith("parabola.py does not run: NameError: name 'tunre' is not defined")
    assert list((tmp_path / ".service/drivers").iterdir()) == []


@pytest.mark.slow
def test_studies_wait_for_devices_in_the_queues_order(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        first = service.submit(submission(LONG), ANNE).id
        wait_until(service, first, State.RUNNING)
        second, third = (service.submit(submission(), by).id for by in (ANNE, BERT))
        wait_until(service, second, State.QUEUED)
        wait_until(service, third, State.QUEUED)
        assert [position.study for position in service.queue()] == [third, second]  # bert has used nothing yet
        service.change(second, CHIEF, priority=5)
        assert [position.study for position in service.queue()] == [second, third]
        assert [(use.study, use.user) for use in service.devices()] == [(first, "anne")]
        service.cancel(first, ANNE)
        wait_until(service, second, State.FINISHED)
        wait_until(service, third, State.FINISHED)
        started = [service.study(study).started or 0.0 for study in (second, third)]
    assert started == sorted(started)


@pytest.mark.slow  # the real driver is paused in end_to_end/test_service.py
def test_a_search_that_runs_is_told_how_many_trials_run_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 3)
        found = service.change(study, ANNE, concurrency=2)
        assert (found.state, found.options, found.limits) == (State.RUNNING, {"concurrency": 2}, {})

        def obeyed() -> list[object]:
            run = service.run(study)
            events = [] if run is None else run.events
            return [event["arguments"] for event in events if event["event"] == "order_obeyed"]

        wait_for(obeyed)
        assert obeyed() == [{"concurrency": 2}]


def test_a_study_is_paused_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 3)
        service.pause(study, ANNE)
        paused = wait_until(service, study, State.PAUSED)
        before = epochs(service, study)
        assert (paused.reason, paused.devices) == ("paused by anne", ())
        run = service.run(study)
        assert run is not None
        assert run.info["interrupted_by"] == "paused by anne"
        wanted = len(run.record.trials) + 2
        service.change(study, ANNE, limits={"trials": wanted})
        service.resume(study, ANNE)
        found = wait_until(service, study, State.FINISHED)
        finished = service.run(study)
    assert finished is not None
    assert (finished.path, found.attempt, found.limits) == (run.path, 2, {})
    assert len(finished.record.trials) == wanted
    assert finished.record.epochs() >= before
    assert [event["event"] for event in finished.events].count("study_resumed") == 1


@pytest.mark.slow
def test_finish_ends_a_search_now_and_a_paused_one_as_soon_as_it_has_devices(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 3)
        assert service.finish(study, ANNE).state is State.ENDING
        wait_until(service, study, State.FINISHED)
        second = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, second) > 3)
        service.pause(second, ANNE)
        wait_until(service, second, State.PAUSED)
        assert service.finish(second, ANNE).state is State.QUEUED
        wait_until(service, second, State.FINISHED)
        runs = [service.run(study), service.run(second)]
    assert [run and (run.status, run.end_reason) for run in runs] == [("finished", "stop")] * 2


@pytest.mark.slow
def test_cancel_ends_the_driver_and_keeps_the_files(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 3)
        pid = driver_pid(service, study)
        assert service.cancel(study, ANNE).state is State.CANCELLED
        wait_for(lambda: service.study(study).devices == ())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        run = service.run(study)
        assert run is not None
        assert (run.status, run.record.epochs() > 3) == ("interrupted", True)
        service.delete(study, ANNE)
    assert (tmp_path / ".service/bundles" / str(study)).is_dir()  # the run's modules
    assert list((tmp_path / ".service/drivers").iterdir()) == []


def test_a_driver_that_dies_is_started_again_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.service.outcomes.WAITS", (0.0, 0.0, 0.0))
    with running(tmp_path) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 3)
        first = driver_pid(service, study)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: service.study(study).attempt == 2)
        wait_until(service, study, State.RUNNING)
        wait_for(lambda: service.study(study).deaths == 0)  # it came on
        assert driver_pid(service, study) != first
        entries = [entry for entry in service.history(study) if entry.action == "died"]
        run = service.run(study)
    assert len(entries) == 1
    assert "its driver died" in entries[0].detail["reason"]
    assert run is not None
    events = [event["event"] for event in read_events(run.folder)]
    assert (events.count("study_started"), events.count("study_resumed")) == (1, 1)


@pytest.mark.slow
def test_a_driver_that_always_dies_fails_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.service.outcomes.WAITS", (0.0, 0.0, 0.0))
    (tmp_path / "crash").touch()
    with running(tmp_path) as service:
        study = service.submit(submission(LONG), ANNE).id
        found = wait_until(service, study, State.FAILED)
        assert (found.attempt, found.deaths) == (4, 4)
        assert found.reason == "its driver died 4 times: its log ends with: Segmentation fault (core dumped)"
        assert service.driver_log(study) == b"Segmentation fault (core dumped)\n"
        assert service.driver_log(study, start=13) == b"fault (core dumped)\n"
        (tmp_path / "crash").unlink()
        service.change(study, ANNE, limits={"trials": 1})
        service.resume(study, ANNE)
        wait_until(service, study, State.FINISHED)


@pytest.mark.slow
def test_a_preemptible_study_makes_room_and_goes_on_later(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        low = service.submit(submission(LONG, preemptible=True, priority=-1), ANNE).id
        wait_for(lambda: epochs(service, low) > 3)
        high = service.submit(submission(), BERT).id
        wait_until(service, high, State.FINISHED)
        wait_until(service, low, State.RUNNING)
        actions = [entry.action for entry in reversed(service.history(low))]
    assert actions[:8] == ["submit", "checked", "starting", "running", "preempted", "paused", "starting", "running"]


@pytest.mark.parametrize(
    "ignores", [pytest.param("pass", marks=pytest.mark.slow), "signal.signal(signal.SIGTERM, signal.SIG_IGN)"]
)
def test_a_driver_that_does_not_pause_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignores: str) -> None:
    monkeypatch.setattr("tuner.service.supervisor.PATIENCE_SECONDS", 0.3)
    deaf = (sys.executable, "-c", f"import signal, time; {ignores}; print('deaf', flush=True); time.sleep(600)")
    with running(tmp_path, command=deaf) as service:
        study = service.submit(submission(), ANNE).id
        wait_for(lambda: service.driver_log(study) == b"deaf\n")
        pid = driver_pid(service, study)
        assert service.pause(study, ANNE).state is State.PAUSING
        found = wait_until(service, study, State.PAUSED)
        assert (found.devices, found.run) == ((), None)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
def test_after_another_study(tmp_path: Path) -> None:
    with running(tmp_path, cpus=2) as service:
        first = service.submit(submission(LONG), ANNE).id
        second = service.submit(submission(after=(first,)), ANNE).id
        wait_until(service, second, State.QUEUED)
        wait_for(lambda: epochs(service, first) > 3)
        assert [(one.study, one.reason) for one in service.queue()] == [(second, f"runs after study {first}")]
        service.cancel(first, ANNE)
        found = wait_until(service, second, State.FAILED)
    assert found.reason == f"it was to run after study {first}, which is cancelled; submit it again without that"


@pytest.mark.slow
def test_orders_reach_the_search_with_their_author(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        study = service.submit(submission(LONG), ANNE).id
        wait_for(lambda: epochs(service, study) > 3)
        assert service.try_(study, ANNE, {"x": 0.25}).outcome == "sent"
        assert service.note(study, ANNE, "as good as it gets").outcome == "sent"
        assert service.change(study, ANNE, limits={"trials": 3000}).state is State.RUNNING

        def tried() -> bool:
            run = service.run(study)
            return run is not None and any(trial.config == {"x": 0.25} for trial in run.record.trials.values())

        def answers() -> list[tuple[str, str]]:
            run = service.run(study)
            events = [] if run is None else run.events
            return sorted((event["verb"], event["by"]) for event in events if event["event"] == "order_obeyed")

        wait_for(tried)
        wait_for(lambda: len(answers()) == 3)
        assert answers() == [("note", "anne"), ("set", "anne"), ("try", "anne")]
        wait_for(lambda: wanted(service, study) == 3000)


@pytest.mark.slow
def test_two_studies_of_one_name_run_side_by_side(tmp_path: Path) -> None:
    with running(tmp_path, cpus=2) as service:
        both = [service.submit(submission(LONG, devices=1), by).id for by in (ANNE, BERT)]
        found = [wait_until(service, study, State.RUNNING) for study in both]
        assert [len(study.devices) for study in found] == [1, 1]
        assert found[0].run != found[1].run
        held = [device for study in found for device in study.devices]
        assert len(set(held)) == len(held)
        pids = [driver_pid(service, study) for study in both]
        affinities = [os.sched_getaffinity(pid) for pid in pids]
    assert affinities == [{device.index for device in study.devices} for study in found]


@pytest.mark.slow
def test_the_check_of_what_isnt_submitted_keeps_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        facts = service.check(submission(options={"trials": 2}), ANNE)
        assert (facts["name"], facts["trials"], facts["demand"]) == (
            "parabola",
            2,
            {"kind": "cpu", "count": 1, "least": 1, "fixed": False},
        )
        assert service.studies() == []
        assert sorted(path.name for path in service.folder.path.iterdir() if path.is_dir()) == ["bundles", "drivers"]
