"""Requests of workers to a real search; see tests/service/web/test_asking.py for the way there by HTTP."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ask_tell.asked import PROMOTING, study
from tests.searches import wait_for
from tuner import Budget, Failures, Search
from tuner.ask_tell.desk import Desk
from tuner.ask_tell.leases import Leases, holders
from tuner.orders.sending import send


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Office:
    """A search, its desk, and a clock that the test turns."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.clock = Clock()
        self.search = Search(study(**changes), storage=folder)
        self.open(self.search)

    def open(self, search: Search) -> None:
        self.search = search
        self.desk = Desk(search, Leases(60, self.clock))
        self.desk.watch(True)

    def told(self, verb: str, worker: str = "anne/w1", **fields: Any) -> dict[str, Any]:
        reply = self.desk.answer({"do": verb, "worker": worker, **fields})
        return dict(reply["answer"])

    def refused(self, verb: str, worker: str = "anne/w1", **fields: Any) -> dict[str, Any]:
        return dict(self.desk.answer({"do": verb, "worker": worker, **fields})["refused"])

    def ask(self, worker: str = "anne/w1") -> dict[str, Any]:
        found = self.told("ask", worker)
        assert found["outcome"] == "trial"
        return dict(found["trial"])

    def report(self, trial: str, epoch: int, loss: float = 1.0, worker: str = "anne/w1") -> str:
        return str(self.told("report", worker, trial=trial, epoch=epoch, metrics={"loss": loss})["answer"])

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.desk.look()
        self.told("heartbeat", "nobody", trial="0")  # after what looking does

    def events(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [
            (event["event"], event["trial"], event.get("epoch") or event.get("worker"))
            for event in self.search.run.events
            if event["event"] in kinds
        ]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    found = Office(tmp_path)
    yield found
    found.search.close()
    found.desk.close()


def test_a_trial_is_asked_for_reported_and_over(office: Office) -> None:
    trial = office.ask()
    assert (trial["id"], trial["number"], trial["epochs"], trial["from_epoch"], trial["attempt"]) == (
        *("00000", 0, 3, 0, 1),
    )
    assert [office.report("0", epoch) for epoch in (1, 2, 3)] == ["continue", "continue", "stop"]
    assert office.ask()["id"] == "00001"
    assert office.search.run.record.trials["00000"].status == "completed"
    assert office.search.run.record.trials["00001"].worker == "anne/w1"


def test_an_answer_that_was_lost_is_given_again(office: Office) -> None:
    first = office.ask()
    assert office.ask() == first
    assert office.report("0", 1, 0.5) == office.report("0", 1, 0.5) == "continue"
    assert office.events("epoch_reported", "trial_lost") == [("epoch_reported", "00000", 1)]
    office.report("0", 2)
    assert office.report("0", 3) == office.report("0", 3) == "stop"
    assert office.told("complete", trial="0") == office.told("complete", trial="0") == {"answer": "stop"}
    assert len(office.events("epoch_reported")) == 3


def test_each_worker_gets_a_trial_of_its_own(office: Office) -> None:
    assert [office.ask(f"anne/w{number}")["id"] for number in (1, 2, 3, 2)] == ["00000", "00001", "00002", "00001"]
    assert office.ask("bert/w1")["id"] == "00003"  # of another user


def test_a_trial_whose_lease_ran_out_is_given_to_the_next_asker(office: Office) -> None:
    office.ask()
    office.report("0", 1)
    office.pass_time(59)
    assert office.told("heartbeat", trial="0") == {"answer": "continue"}
    office.pass_time(59)
    assert office.events("trial_lost") == []
    office.pass_time(2)
    (lost,) = [event for event in office.search.run.events if event["event"] == "trial_lost"]
    assert lost["message"] == "its worker anne/w1 sent nothing for 60 s"
    again = office.ask("anne/w2")
    assert (again["id"], again["from_epoch"], again["attempt"]) == ("00000", 0, 2)
    # the first one has come back: it is told to leave the trial, and its reports change nothing
    assert office.told("heartbeat", trial="0") == {"answer": "pause"}
    assert office.report("0", 2, 9.0) == "pause"
    assert office.told("complete", trial="0") == {"answer": "stop"}
    assert office.told("fail", trial="0", error="x") == {"answer": "pause"}
    assert office.search.run.record.trials["00000"].epoch == 1
    assert office.report("0", 1, 0.25, worker="anne/w2") == "continue"
    assert office.search.run.record.trials["00000"].epochs[1].metrics == {"loss": 0.25}


def test_a_worker_that_was_started_again_begins_its_trial_anew(office: Office) -> None:
    office.ask()
    office.report("0", 1, 0.5)
    again = office.ask()
    assert (again["id"], again["from_epoch"], again["attempt"]) == ("00000", 0, 2)
    assert len(office.events("trial_lost")) == 1
    assert [office.report("0", epoch, 0.75) for epoch in (1, 2, 3)] == ["continue", "continue", "stop"]


def test_a_trial_that_is_lost_too_often_has_failed(tmp_path: Path) -> None:
    office = Office(tmp_path, failures=Failures(lost=1))
    office.ask()
    office.pass_time(61)
    assert office.ask("anne/w2")["id"] == "00000"
    office.pass_time(61)
    assert office.ask("anne/w3")["id"] == "00001"
    assert office.search.run.record.trials["00000"].status == "failed"
    assert office.told("heartbeat", "anne/w2", trial="0") == {"answer": "stop"}
    office.search.close()


def test_failures_are_handed_out_again_as_the_study_says(tmp_path: Path) -> None:
    office = Office(tmp_path, failures=Failures(error=1))
    office.ask()
    assert office.told("fail", trial="0", error="no gas", cause="error") == {"answer": "pause"}
    assert office.told("fail", trial="0", error="no gas", cause="error") == {"answer": "pause"}  # once
    assert office.ask()["attempt"] == 2
    assert office.told("fail", trial="0", error="no gas") == {"answer": "stop"}
    assert office.ask()["id"] == "00001"
    assert office.told("fail", trial="1", error="power cut", cause="lost") == {"answer": "pause"}
    assert office.ask()["id"] == "00001"
    assert office.told("fail", trial="1", error="nan", cause="diverged") == {"answer": "stop"}
    trials = office.search.run.record.trials
    assert [(trials[name].cause, trials[name].message) for name in ("00000", "00001")] == [
        *(("error", "no gas"), ("diverged", "nan")),
    ]
    office.search.close()


def test_what_cant_be_is_refused_with_its_field(office: Office) -> None:
    office.ask()
    refused = [
        office.refused("report", trial="7", epoch=1, metrics={"loss": 1}),
        office.refused("report", trial="0", epoch=0, metrics={"loss": 1}),
        office.refused("report", trial="0", epoch=1, metrics={"gain": 1}),
        office.refused("report", trial="0", epoch=1, metrics={"loss": "low"}),
        office.refused("fail", trial="0", error="x", cause="bad luck"),
        office.refused("report", trial="0", epoch=2, metrics={"loss": 1}),
        office.refused("complete", trial="0"),
    ]
    assert [(one["code"], one["field"]) for one in refused] == [
        *(("not_found", "trial"), ("refused", "epoch"), ("refused", "metrics"), ("refused", "metrics")),
        *(("refused", "cause"), ("conflict", None), ("conflict", None)),
    ]
    assert refused[0]["message"].startswith("a trial is named by its id, got '00007'; this run has 00000 to 00000")
    assert "report epoch 1 next" in refused[5]["message"]
    assert office.events("epoch_reported", "trial_ended") == []


def test_a_single_value_ends_a_trial_at_once(office: Office) -> None:
    office.ask()
    assert office.told("complete", trial="0", metrics=0.5) == {"answer": "stop"}
    assert office.search.run.record.trials["00000"].status == "completed"


def test_with_nothing_to_run_now_it_is_said_when_to_ask_again(tmp_path: Path) -> None:
    office = Office(tmp_path, budget=Budget(trials=1, max_epochs=1))
    office.ask()
    assert office.told("ask", "anne/w2") == {"outcome": "wait", "trial": None, "retry_after": 2.0}
    office.report("0", 1)
    assert office.told("ask", "anne/w2") == {"outcome": "over", "trial": None}
    assert office.told("report", trial="0", epoch=1, metrics=1.0) == {"answer": "stop"}
    office.search.close()
    assert office.search.run.status == "finished"


def test_a_pause_leaves_trials_with_their_workers_which_go_on_after_it(tmp_path: Path) -> None:
    office = Office(tmp_path)
    for number in (1, 2, 3):
        office.ask(f"anne/w{number}")
    office.report("0", 1, 0.5)
    office.pass_time(30)
    office.told("heartbeat", trial="0")
    office.told("heartbeat", "anne/w2", trial="1")
    office.pass_time(31)  # the third is lost, and waits to be handed out again
    send(office.search.run, "pause", {}, by="anne")
    while not office.search.over:
        office.desk.look()
        time.sleep(0.05)
    refused = office.refused("report", trial="0", epoch=2, metrics=1.0)
    assert (refused["code"], refused["retry_after"]) == ("conflict", 10.0)
    assert refused["message"].startswith("the search was interrupted (paused by anne)")
    assert office.refused("ask")["retry_after"] == 10.0
    had = holders(office.search.run.events)
    assert had == {"00000": "anne/w1", "00001": "anne/w2"}
    office.search.close()
    office.open(Search.resume(office.search.run.path))
    office.desk.take_back(had, 3)
    assert office.report("0", 1, 0.5) == "continue"  # whose answer was lost
    assert office.report("0", 2) == "continue"
    assert office.told("heartbeat", "anne/w2", trial="1") == {"answer": "continue"}
    assert office.told("heartbeat", "anne/w3", trial="2") == {"answer": "pause"}
    assert office.ask("anne/w3")["id"] == "00002"
    reported = [event for event in office.events("epoch_reported") if event[1] == "00000"]
    assert [epoch for _, _, epoch in reported] == [1, 2]
    office.search.close()


def test_an_ordered_end_is_told_at_the_next_word(office: Office) -> None:
    office.ask()
    send(office.search.run, "stop", {"trial": "0"}, by="anne")
    until = time.monotonic() + 60
    while office.told("heartbeat", trial="0") == {"answer": "continue"}:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert office.report("0", 1) == "stop"
    assert office.ask()["id"] == "00001"


def test_a_search_that_an_error_ends_is_not_over_for_its_workers(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.ask()
    shutil.rmtree(office.search.run.path)
    refused = office.refused("report", trial="0", epoch=1, metrics=1.0)
    assert (refused["code"], refused["retry_after"]) in (("unavailable", 5.0), ("conflict", 10.0))
    while not office.search.over:
        time.sleep(0.01)
    assert office.refused("ask", "anne/w2")["retry_after"] == 10.0  # it is started again, and goes on
    assert office.refused("report", trial="0", epoch=1, metrics=1.0)["retry_after"] == 10.0


def test_trials_whose_workers_keep_checkpoints_pause_and_come_again(tmp_path: Path) -> None:
    """The run keeps where they lie; who goes on is told, and each epoch is trained once."""
    office = Office(tmp_path, scheduler=PROMOTING, budget=Budget(trials=9, max_epochs=9))
    answers, handed = set(), []
    while (found := office.told("ask"))["outcome"] == "trial":
        trial = found["trial"]
        handed.append((trial["from_epoch"], trial["checkpoint"]))
        assert (trial["checkpoint"] is None) is (trial["from_epoch"] == 0)
        assert trial["checkpoint"] in (None, f"s3://mine/{trial['id']}/{trial['from_epoch']}")
        for epoch in range(trial["from_epoch"] + 1, trial["epochs"] + 1):
            told = {"trial": trial["id"], "epoch": epoch, "metrics": abs(trial["config"]["x"] - 0.3) + 1 / epoch}
            place = f"s3://mine/{trial['id']}/{epoch}"
            answer = office.told("report", **told, checkpoint=place)["answer"]
            assert office.told("report", **told, checkpoint=place)["answer"] == answer  # sent twice
            answers.add(answer)
            if answer != "continue":
                break
    run = office.search.run
    assert answers == {"continue", "pause", "stop"}
    assert {epoch for epoch, _ in handed} == {0, 1, 3}
    reports = office.events("epoch_reported")
    assert len(reports) == len(set(reports))
    assert run.best is not None
    kept = Path(run.path, "best/checkpoint/elsewhere.json")
    wait_for(kept.is_file)  # what follows a search is done beside its last answer
    best = json.loads(kept.read_text())
    assert best == {"checkpoint": f"s3://mine/{run.best.trial}/{run.best_epoch}"}


def test_a_lost_trial_goes_on_from_the_checkpoint_that_its_worker_told_of(tmp_path: Path) -> None:
    office = Office(tmp_path, budget=Budget(trials=2, max_epochs=5))
    trial = office.ask()["id"]
    assert office.told("report", trial=trial, epoch=1, metrics=1.0, checkpoint="/shared/a b/1")["answer"] == "continue"
    assert office.report(trial, 2) == "continue"  # of which nothing was kept
    office.pass_time(61)
    again = office.ask("bert/w2")
    assert (again["id"], again["from_epoch"], again["checkpoint"]) == (trial, 1, "/shared/a b/1")
    assert office.report(trial, 2, worker="bert/w2") == "continue"


@pytest.mark.parametrize("place", ["", 3, ["x"], "x" * 1001, "a\nb"])
def test_a_checkpoint_that_says_nothing_is_refused(office: Office, place: object) -> None:
    trial = office.ask()["id"]
    refused = office.refused("report", trial=trial, epoch=1, metrics=1.0, checkpoint=place)
    assert (refused["code"], refused["field"]) == ("refused", "checkpoint")
    assert "a checkpoint elsewhere is named by its path or address" in refused["message"]
    assert office.events("epoch_reported") == []
