"""How a trial's messages reach the driver: in order, together where epochs are quick, and never far behind."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tuner.worker import messages
from tuner.worker.messages import Message, Sender

SECONDS = 60.0


class Driver:
    """Takes messages, and answers when it is told to."""

    def __init__(self) -> None:
        self.got: list[list[int]] = []
        self.ages: list[float] = []
        self.taken, self.answer = threading.Semaphore(0), threading.Semaphore(0)
        self.answers_by_itself, self.ends_at = True, 10**9

    def take(self, messages: Sequence[Message]) -> None:
        self.got.append([int(message.text) for message in messages])
        self.ages += [message.ago for message in messages]
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
        sender.hold(str(epoch))


def test_what_comes_while_the_driver_is_busy_is_sent_together(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "GAP_SECONDS", 0.0)
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
    monkeypatch.setattr(messages, "GAP_SECONDS", SECONDS)
    monkeypatch.setattr(messages, "AHEAD_SECONDS", SECONDS)
    hold(sender, 1)
    driver.wait()
    sender.flush()
    hold(sender, 2, 3)
    threading.Event().wait(0.01)
    sender.send("4")
    assert driver.got == [[1], [2, 3, 4]]
    assert driver.ages[1] >= 0.01  # and the driver can tell when its epoch ended
    hold(sender, 5)
    sender.flush()
    sender.flush()
    assert driver.got[-1] == [5]
    assert len(driver.got) == 3


def test_held_messages_are_sent_though_nothing_more_comes(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "GAP_SECONDS", 0.02)
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
            sender.flush() if then == "flush" else getattr(sender, then)("3")

    with pytest.raises(SystemExit):
        go_on()
    with pytest.raises(SystemExit):
        sender.send("4")
    assert driver.got == [[1]]


def test_a_trial_whose_last_messages_ended_it_hears_of_that_though_nothing_is_left_to_send(
    driver: Driver, sender: Sender
) -> None:
    driver.ends_at, driver.answers_by_itself = 1, False
    hold(sender, 1)
    driver.wait()
    driver.answer.release()
    thread = sender._thread
    assert thread is not None
    thread.join(SECONDS)
    with pytest.raises(SystemExit):
        sender.flush()


def test_what_fails_in_sending_is_raised_once_so_that_it_can_be_told(driver: Driver) -> None:
    fails = True

    def take(messages: Sequence[Message]) -> None:
        driver.take(messages)
        if fails:
            raise OSError("no way")

    sender = Sender(take)
    hold(sender, 1)
    driver.wait()
    thread = sender._thread
    assert thread is not None
    thread.join(SECONDS)
    fails = False
    with pytest.raises(OSError, match="no way"):
        hold(sender, 2)
    sender.send("3")
    assert driver.got == [[1], [3]]
    sender.close()


def test_no_more_is_held_than_a_driver_takes_in_a_moment(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MOST_HELD", 3)
    monkeypatch.setattr(messages, "GAP_SECONDS", SECONDS)
    hold(sender, 1)
    driver.wait()
    sender.flush()
    hold(sender, 2, 3, 4, 5)
    assert driver.got == [[1], [2, 3, 4, 5]]


def test_a_trial_is_not_far_ahead_of_what_the_driver_has_answered(
    driver: Driver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "AHEAD_SECONDS", 0.0)
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
    sender.send("2")
    assert waits == ["begins", "ends"]
    sender.close()


def test_a_closed_sender_leaves_no_thread(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "GAP_SECONDS", SECONDS)
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
