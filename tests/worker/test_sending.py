"""How a trial's messages reach the driver: in order, together where epochs are quick, and never far behind."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tuner.worker import sending
from tuner.worker.assignment import AGO
from tuner.worker.sending import Sender

SECONDS = 60.0


class Driver:
    """Takes messages, and answers when it is told to."""

    def __init__(self) -> None:
        self.got: list[list[int]] = []
        self.ages: list[float | None] = []
        self.taken, self.answer = threading.Semaphore(0), threading.Semaphore(0)
        self.answers_by_itself, self.ends_at = True, 10**9

    def take(self, messages: Sequence[dict[str, Any]]) -> None:
        self.got.append([message["epoch"] for message in messages])
        self.ages += [message.get(AGO) for message in messages]
        self.taken.release()
        if not self.answers_by_itself:
            assert self.answer.acquire(timeout=SECONDS)
        if self.got[-1][-1] >= self.ends_at:
            raise SystemExit(0)

    def wait(self) -> None:
        assert self.taken.acquire(timeout=SECONDS)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def sender(driver: Driver) -> Iterator[Sender]:
    found = Sender(driver.take)
    yield found
    found.close()


def hold(sender: Sender, *epochs: int) -> None:
    for epoch in epochs:
        sender.hold({"epoch": epoch})


def test_what_comes_while_the_driver_is_busy_is_sent_together(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "GAP_SECONDS", 0.0)
    driver.answers_by_itself = False
    hold(sender, 1)
    driver.wait()
    hold(sender, 2, 3, 4)
    driver.answer.release()
    driver.wait()
    driver.answer.release()
    sender.flush()
    assert driver.got == [[1], [2, 3, 4]]


def test_held_messages_wait_for_a_while_and_go_before_one_that_is_urgent(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "GAP_SECONDS", SECONDS)
    monkeypatch.setattr(sending, "AHEAD_SECONDS", SECONDS)
    hold(sender, 1)
    driver.wait()
    sender.flush()
    hold(sender, 2, 3)
    threading.Event().wait(0.01)
    sender.send({"epoch": 4})
    assert driver.got == [[1], [2, 3, 4]]
    told = driver.ages[1]
    assert told is not None
    assert told >= 0.01  # and the driver can tell when its epoch ended
    assert driver.ages[-1] is None
    hold(sender, 5)
    sender.flush()
    sender.flush()
    assert driver.got[-1] == [5]
    assert len(driver.got) == 3


def test_held_messages_are_sent_though_nothing_more_comes(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "GAP_SECONDS", 0.02)
    hold(sender, 1)
    driver.wait()
    hold(sender, 2)
    driver.wait()
    assert driver.got == [[1], [2]]


@pytest.mark.parametrize("then", ["hold", "send", "flush"])
def test_what_ends_the_trial_behind_its_back_is_raised_by_its_next_message(
    driver: Driver, sender: Sender, then: str
) -> None:
    driver.ends_at, driver.answers_by_itself = 1, False
    hold(sender, 1)
    driver.wait()
    hold(sender, 2)
    driver.answer.release()

    def go_on() -> None:
        while True:
            sender.flush() if then == "flush" else getattr(sender, then)({"epoch": 3})

    with pytest.raises(SystemExit):
        go_on()
    with pytest.raises(SystemExit):
        sender.send({"epoch": 4})
    assert driver.got == [[1]]


def test_a_trial_is_not_far_ahead_of_what_the_driver_has_answered(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "AHEAD_SECONDS", 0.0)
    driver.answers_by_itself = False
    hold(sender, 1)
    driver.wait()
    going_on = threading.Event()
    trial = threading.Thread(target=lambda: (hold(sender, 2), going_on.set()))
    trial.start()
    assert not going_on.wait(0.2)  # the trial waits
    driver.answer.release(2)
    trial.join(SECONDS)
    assert going_on.is_set()
    assert driver.got == [[1], [2]]


def test_only_a_trial_that_waits_for_the_driver_is_not_watched(driver: Driver) -> None:
    waits = []

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.append("begins")
        yield
        waits.append("ends")

    sender = Sender(driver.take, waiting)
    hold(sender, 1)
    driver.wait()
    assert not waits
    sender.send({"epoch": 2})
    assert waits == ["begins", "ends"]
    sender.close()


def test_a_closed_sender_leaves_no_thread(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "GAP_SECONDS", SECONDS)
    sender = Sender(driver.take)
    hold(sender, 1)
    driver.wait()
    hold(sender, 2)
    thread = sender._thread
    assert thread is not None
    sender.close()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert driver.got == [[1]]
