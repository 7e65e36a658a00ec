"""A run that is looked at is read once, until something happens to it; advice, which takes seconds, is reused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.web.serving import Served, a_run, made
from tuner import Run
from tuner.history.events import EventLog
from tuner.history.run_info import read_info, write_info
from tuner.results.run import RecordedRun
from tuner.service.model import State
from tuner.service.web import viewed_runs
from tuner.service.web.viewed_runs import KEPT, Runs
from tuner.storage.lease import held


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = made(tmp_path)
    yield found
    found.service.close()


def one_event_more(run: Run) -> None:
    log = EventLog(run.folder)
    log.append("notice", message="cleaned")
    log.close()


def another_budget(run: Run) -> None:
    info, _ = read_info(run.folder)
    write_info(run.folder, {**info, "budget": {"trials": 99}})


def another_score(run: Run) -> None:
    run.folder.write("best/metrics.json", b'{"test_accuracy": 0.5}')


def told(run: RecordedRun) -> tuple[bool, object, bool]:
    return "cleaned" in run.record.notices, run.budget.get("trials"), run.scored("metrics.json") is not None


@pytest.mark.parametrize("change", [one_event_more, another_budget, another_score], ids=lambda one: one.__name__)
def test_a_run_is_read_once_until_something_happens_to_it(
    served: Served, tmp_path: Path, change: Callable[[Run], None]
) -> None:
    run = a_run(tmp_path)
    study, runs = served.study(state=State.QUEUED, run=run), Runs(served.service)
    first = runs.get(study)
    before = told(first)
    with runs.looking(study) as seen:
        assert seen is first
    change(run)
    with runs.looking(study) as seen:
        assert seen is runs.get(study) is not first
        assert told(seen) != before
    assert told(first) == before  # who looks at it still has it as it was
    assert {t.trial: t.status for t in seen.record.trials.values()} == {
        t.trial: t.status for t in run.record.trials.values()
    }


def test_the_end_of_a_driver_that_could_write_nothing_is_seen(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path, reports=2)
    info, _ = read_info(run.folder)
    write_info(run.folder, {**info, "status": "running"})
    study, runs = served.study(state=State.QUEUED, run=run), Runs(served.service)
    with held(run.folder):
        assert {trial.status for trial in runs.get(study).record.trials.values()} == {"running"}
    assert {trial.status for trial in runs.get(study).record.trials.values()} == {"interrupted"}


def test_only_the_runs_seen_last_are_kept(served: Served, tmp_path: Path) -> None:
    run, runs = a_run(tmp_path), Runs(served.service)
    studies = [served.study(state=State.QUEUED, run=run) for _ in range(KEPT + 1)]
    first, *later = [runs.get(study) for study in studies]
    assert [runs.get(study) is kept for study, kept in zip(studies[1:], later, strict=True)] == [True] * KEPT
    assert runs.get(studies[0]) is not first


def test_what_was_computed_is_reused_for_ten_times_as_long_as_it_took(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, used, asked = [100.0], [0.0], list[RecordedRun]()
    monkeypatch.setattr(viewed_runs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(viewed_runs.time, "thread_time", lambda: used[0])

    def compute(run: RecordedRun) -> str:
        asked.append(run)
        used[0] += 3.0  # seconds of the processor
        return run.status

    run = a_run(tmp_path)
    study, runs = served.study(state=State.QUEUED, run=run), Runs(served.service)
    runs.computed(study, "advice", compute)
    now[0] += 29.0
    runs.computed(study, "advice", compute)
    assert len(asked) == 1
    now[0] += 2.0
    runs.computed(study, "advice", compute)
    assert len(asked) == 2
    info, _ = read_info(run.folder)
    write_info(run.folder, {**info, "status": "failed"})
    assert runs.computed(study, "advice", compute) == "failed"  # not what was found while it ran
    assert runs.computed(study, "history", compute) == "failed"
    assert len(asked) == 4
