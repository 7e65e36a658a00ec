"""Answers on a run that is over are kept; nothing of another state of the run is ever shown."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.service.web.serving import Served, a_run, made
from tuner import Run
from tuner.history.events import EventLog
from tuner.history.run_info import read_info, write_info
from tuner.service.model import State
from tuner.service.web import answers
from tuner.service.web.answers import Answers
from tuner.service.web.viewed_runs import Runs

NUMBER = TypeAdapter(int)


@pytest.fixture(autouse=True)
def everything_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WORTH_SECONDS", -1.0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = made(tmp_path)
    yield found
    found.service.close()


class Asked:
    """Counts how often an answer was worked out."""

    def __init__(self, served: Served, run: Run | None) -> None:
        self.service, self.times = served.service, 0
        self.study = served.study(state=State.RUNNING, run=run)
        self.anew()

    def anew(self) -> None:
        """As by another server."""
        self.answers = Answers(Runs(self.service), self.service.folder.answers)

    def work(self) -> int:
        self.times += 1
        return self.times

    def __call__(self, question: str = "how many", *, rests: bool = False) -> int:
        return self.answers.get(self.study, question, NUMBER, self.work, rests=rests)


def one_event_more(run: Run) -> None:
    log = EventLog(run.folder)
    log.append("notice", message="cleaned")
    log.close()


def another_budget(run: Run) -> None:
    info, _ = read_info(run.folder)
    write_info(run.folder, {**info, "budget": {"trials": 99}})


def another_score(run: Run) -> None:
    run.folder.write("best/metrics.json", b'{"test_accuracy": 0.5}')


def test_an_answer_is_kept_for_the_next_server(served: Served, tmp_path: Path) -> None:
    asked = Asked(served, a_run(tmp_path))
    assert (asked(), asked(), asked("another one")) == (1, 1, 2)
    asked.anew()
    assert (asked(), asked("another one")) == (1, 2)


@pytest.mark.parametrize("change", [one_event_more, another_budget, another_score], ids=lambda one: one.__name__)
@pytest.mark.parametrize("anew", [False, True])
def test_what_happens_to_the_run_later_is_seen(
    served: Served, tmp_path: Path, change: Callable[[Run], None], anew: bool
) -> None:
    run = a_run(tmp_path)
    asked = Asked(served, run)
    assert asked() == 1
    change(run)
    if anew:
        asked.anew()
    assert asked() == 2
    assert asked() == 2


def test_a_damaged_answer_is_found_again(served: Served, tmp_path: Path) -> None:
    asked = Asked(served, a_run(tmp_path))
    asked()
    (kept,) = served.service.folder.answers.iterdir()
    kept.write_bytes(b"3" + kept.read_bytes()[1:])
    assert asked() == 2
    kept.chmod(0o666)
    assert asked() == 3


def test_what_changes_while_it_is_answered_is_not_kept(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    asked = Asked(served, run)

    def work() -> int:
        one_event_more(run)
        return asked.work()

    assert asked.answers.get(asked.study, "how many", NUMBER, work) == 1
    assert list(served.service.folder.answers.iterdir()) == []
    assert asked() == 2


def test_quick_answers_are_not_kept(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WORTH_SECONDS", 1000.0)
    asked = Asked(served, a_run(tmp_path))
    assert (asked(), asked()) == (1, 2)
    assert not served.service.folder.answers.exists()


def test_a_search_that_goes_on_is_asked_anew_and_a_heavy_question_rests(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, used = [100.0], [0.0]
    monkeypatch.setattr(answers.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(answers.time, "thread_time", lambda: used[0])
    asked = Asked(served, None)

    def heavy() -> int:
        used[0] += 3.0  # seconds of the processor
        return asked.work()

    assert (asked(), asked()) == (1, 2)

    def advice() -> int:
        return asked.answers.get(asked.study, "advice", NUMBER, heavy, rests=True)

    assert (advice(), advice()) == (3, 3)
    now[0] += 29.0
    assert advice() == 3
    now[0] += 2.0
    assert advice() == 4
