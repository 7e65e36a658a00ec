"""Searches of the real loop, told to a real server."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.lifecycle.receiver import Receiver, receiving
from tests.loop.simulation import build, drive, events_of, study
from tests.searches import wait_for
from tuner import Budget
from tuner.history.run_info import FORMAT, write_info
from tuner.lifecycle.notifier import Notifier
from tuner.lifecycle.targets import given_targets
from tuner.storage.folder import LocalFolder


def notifier(folder: Path, *targets: str, seconds: float = 0.0) -> Notifier:
    return Notifier(given_targets(targets), LocalFolder(folder), study(), between_seconds=seconds)


def searched(folder: Path, told: Notifier, values: list[float], **info: Any) -> None:
    """One trial with these values, its end included."""
    loop = build(study(budget=Budget(trials=1, max_epochs=len(values))), folder, listeners=[told])
    told.notice = loop.notice
    drive(loop, lambda config, epoch: values[epoch - 1])
    loop.end(info.get("interrupted_by"))
    loop.close()
    ended(folder, told, **info)


def ended(folder: Path, told: Notifier, **info: Any) -> None:
    """Tell the end of the run in the folder."""
    base = {"format": FORMAT, "study": "x", "metric": "loss", "mode": "min", "status": "finished", "started": "2026"}
    write_info(LocalFolder(folder), {**base, "end_reason": "trials", **info})
    told.end()


def kinds(server: Receiver) -> list[tuple[str, float]]:
    return [(message["event"], message["value"]) for message in server.messages]


def test_new_bests_and_the_end_are_told(tmp_path: Path) -> None:
    with receiving() as server:
        told = notifier(tmp_path, server.url)
        loop = build(study(budget=Budget(trials=1, max_epochs=3)), tmp_path, listeners=[told])
        action = loop.next_action()
        assert action is not None
        for epoch, value in enumerate([0.5, 0.7, 0.25], 1):
            loop.report(action.trial, epoch, {"loss": value})
            server.wait_for([1, 1, 2][epoch - 1])
        assert kinds(server) == [("new_best", 0.5), ("new_best", 0.25)]
        best = server.messages[-1]
        assert best["message"].startswith("simulated: new best loss 0.25 (trial 00000, epoch 3: x=")
        assert best["text"] == best["message"]
        assert (best["run"], best["study"], best["metric"]) == (str(tmp_path), "simulated", "loss")
        told.close()


def test_of_new_bests_in_a_short_time_the_newest_is_told_and_the_end_takes_its_place(tmp_path: Path) -> None:
    with receiving() as server:
        told = notifier(tmp_path, server.url, seconds=1e6)
        searched(tmp_path, told, [0.5, 0.4, 0.3, 0.2, 0.1])
        events = kinds(server)
    assert events[-1] == ("ended", pytest.approx(0.15))
    assert len(events) <= 2
    assert server.messages[-1]["message"].startswith(
        "simulated: ended after 1 trial, as every trial was run; best loss 0.15 over epochs 4 to 5 (trial"
    )
    assert server.messages[-1]["trials"]["completed"] == 1


def test_a_slow_server_holds_nothing_up_and_gets_the_newest_best(tmp_path: Path) -> None:
    with receiving() as server:
        server.go_on.clear()
        told = notifier(tmp_path, server.url)
        loop = build(study(budget=Budget(trials=1, max_epochs=9)), tmp_path, listeners=[told])

        def value(config: object, epoch: int) -> float:
            assert epoch == 1 or server.asked.wait(60)  # about the first epoch, before the second
            return 1 / epoch

        drive(loop, value)  # comes to its end although nothing is answered
        assert loop.finished
        server.go_on.set()
        server.wait_for(2)
        told.close()
    assert [message["value"] for message in server.messages] == [1, 1 / 9]


def test_failure_gives_one_notice_and_the_search_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = notifier(tmp_path, "exit 7", "exit 8")
    loop = build(study(budget=Budget(trials=1, max_epochs=9)), tmp_path, listeners=[told])
    told.notice = loop.notice
    action = loop.next_action()
    assert action is not None
    for epoch in range(1, 10):
        loop.report(action.trial, epoch, {"loss": 1 / epoch})
        if epoch == 1:
            wait_for(lambda: told._problem is not None)
    told.close()
    assert loop.next_action() is None
    assert loop.finished
    assert loop.record.notices == [
        "a message could not be delivered: the command 'exit …' ended with exit code 7; the next ones are still tried"
    ]
    ended(tmp_path, told)
    assert caplog.messages == []  # as the notice has said it


def test_a_failure_of_the_last_message_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = notifier(tmp_path, "exit 7", seconds=1e6)
    searched(tmp_path, told, [float("nan")])
    assert caplog.messages == [
        "a message could not be delivered: the command 'exit …' ended with exit code 7; the next ones are still tried"
    ]


@pytest.mark.parametrize(
    ("info", "event", "message"),
    [
        ({"status": "failed"}, "failed", "simulated: no trial of 1 succeeded"),
        (
            {"status": "interrupted", "end_reason": "SIGTERM", "interrupted_by": "SIGTERM"},
            "interrupted",
            "simulated: interrupted (SIGTERM) after 1 trial; go on with: python -m tuner resume ",
        ),
        (
            {"status": "interrupted", "end_reason": "error", "interrupted_by": "OSError: disk full"},
            "failed",
            "simulated: cut off by an error: OSError: disk full after 1 trial; go on with: ",
        ),
    ],
)
def test_how_a_search_ended_is_told(tmp_path: Path, info: dict[str, str], event: str, message: str) -> None:
    with receiving() as server:
        searched(tmp_path, notifier(tmp_path, server.url), [float("nan")], **info)
    (told,) = server.messages
    assert told["event"] == event
    assert told["message"].startswith(message)
    assert told["value"] is None


def test_what_earlier_drivers_found_is_no_new_best(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=1, max_epochs=1)), tmp_path)
    drive(loop, lambda config, epoch: 0.5)
    told = Notifier([], LocalFolder(tmp_path), study(), events_of(tmp_path))
    assert told._best == 0.5
    told.close()


def test_a_best_that_fails_or_runs_again_makes_no_other_one_new(tmp_path: Path) -> None:
    with receiving() as server:
        told = notifier(tmp_path, server.url)
        loop = build(study(budget=Budget(trials=3, max_epochs=9)), tmp_path, concurrency=3, listeners=[told])
        best, second, third = (start.trial for _ in range(3) if (start := loop.next_action()) is not None)
        for number, (trial, value) in enumerate([(second, 0.5), (best, 0.25)], 1):
            loop.report(trial, 1, {"loss": value})
            server.wait_for(number)
        loop.failed(best, "error", "KeyError: 'lr'")
        loop.report(third, 1, {"loss": 0.8})  # the best is the second one's 0.5 again
        time.sleep(0.2)
        loop.retry([best])
        loop.report(third, 2, {"loss": 0.7})  # and 0.25 again
        time.sleep(0.2)
        loop.report(second, 2, {"loss": 0.125})
        server.wait_for(3)
        told.close()
        assert kinds(server) == [("new_best", 0.5), ("new_best", 0.25), ("new_best", 0.125)]
