import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.searches import wait_for
from tuner.driver.watchdog import Watchdog
from tuner.lifecycle.interruption import RAY_IS_GONE, Interruption, SearchLeft, interruptions

SIGNALS = [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]


@pytest.mark.parametrize(("number", "reason"), SIGNALS)
def test_a_signal_asks_the_search_to_end_and_the_grace_period_runs(number: signal.Signals, reason: str) -> None:
    with interruptions(grace_seconds=1000) as interruption:
        assert (interruption.is_set(), interruption.reason, interruption.seconds_left()) == (False, None, math.inf)
        signal.raise_signal(number)
        assert (interruption.is_set(), interruption.reason) == (True, reason)
        assert 0 < interruption.seconds_left() <= 1000


def test_handlers_are_as_before_after_the_block() -> None:
    before = [signal.getsignal(number) for number, _ in SIGNALS]
    with interruptions():
        assert [signal.getsignal(number) for number, _ in SIGNALS] != before
    assert [signal.getsignal(number) for number, _ in SIGNALS] == before


@pytest.mark.parametrize(("number", "reason"), SIGNALS)
def test_signals_that_others_have_taken_meanwhile_are_taken_back(number: signal.Signals, reason: str) -> None:
    taken: list[int] = []
    with interruptions() as interruption:
        signal.signal(number, lambda *_: taken.append(number))  # as Ray does when it starts
        interruption.take_signals()
        signal.raise_signal(number)
        assert (interruption.reason, taken) == (reason, [])


def test_a_search_takes_the_signals_back_before_it_waits() -> None:
    with interruptions() as interruption:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with interruption.breakable():
            signal.raise_signal(signal.SIGTERM)
        assert interruption.reason == "SIGTERM"


def test_what_never_took_signals_takes_none_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    Interruption().take_signals()
    assert signal.getsignal(signal.SIGTERM) is before


def test_only_the_first_reason_counts() -> None:
    interruption = Interruption()
    interruption.ask("the lease was lost")
    interruption.ask("Ray is gone")
    assert interruption.reason == "the lease was lost"


def test_a_grace_period_of_nothing_is_over_at_once() -> None:
    interruption = Interruption(grace_seconds=0)
    interruption.ask("SIGTERM")
    assert interruption.seconds_left() == 0


def press(interruption: Interruption) -> None:
    """Ctrl-C by a human, who is slower than a shell that passes the same one on."""
    interruption._pressed_at = -math.inf
    signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_hurries_and_a_third_raises() -> None:
    with interruptions() as interruption:
        press(interruption)
        assert not interruption.hurried
        press(interruption)
        assert interruption.hurried
        with pytest.raises(KeyboardInterrupt, match="`resume` goes on from what was saved"):
            press(interruption)


def test_one_ctrl_c_that_arrives_twice_is_one() -> None:
    with interruptions() as interruption:
        press(interruption)
        signal.raise_signal(signal.SIGINT)
        assert (interruption.reason, interruption.hurried) == ("Ctrl-C", False)


def test_sigterm_again_changes_nothing_and_ctrl_c_after_it_hurries() -> None:
    with interruptions() as interruption:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert not interruption.hurried
        press(interruption)
        assert (interruption.reason, interruption.hurried) == ("SIGTERM", True)


def test_while_nothing_is_written_a_signal_raises_at_once() -> None:
    with interruptions() as interruption:
        with (
            pytest.raises(KeyboardInterrupt, match=r"^interrupted \(SIGTERM\) before the search started; nothing"),
            interruption.at_once(),
        ):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            interruption.stop_if_asked()


def test_a_search_under_nohup_goes_on() -> None:
    program = (
        "import signal\nfrom tuner.lifecycle.interruption import interruptions\n"
        "with interruptions() as i:\n    signal.raise_signal(signal.SIGHUP)\n    print(i.is_set())\n"
    )
    finished = subprocess.run(["nohup", sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "False\n"


def test_beside_the_main_thread_signals_are_left_alone_and_others_may_ask() -> None:
    before, found = signal.getsignal(signal.SIGTERM), []

    def search() -> None:
        with interruptions() as interruption:
            found.append(signal.getsignal(signal.SIGTERM))
            interruption.break_in()
            interruption.ask("the lease was lost")
            found.append(interruption.reason)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert found == [before, "the lease was lost"]


def test_the_watchdog_breaks_into_what_waits_for_a_ray_that_is_gone() -> None:
    with interruptions() as interruption:
        with pytest.raises(SearchLeft), Watchdog(interruption, lambda: True), interruption.breakable():
            time.sleep(300)
        assert interruption.reason == RAY_IS_GONE


def test_the_watchdog_breaks_into_what_does_not_end_in_half_the_grace_period() -> None:
    with interruptions(grace_seconds=1) as interruption:
        interruption.ask("SIGTERM")
        with pytest.raises(SearchLeft), Watchdog(interruption, lambda: False), interruption.breakable():
            time.sleep(300)


STUCK = """
import re
from tuner.lifecycle.interruption import interruptions

with interruptions(grace_seconds=0.5):
    print("begun", flush=True)
    re.fullmatch("(a+)+", "a" * 60 + "b")  # for years, and no other thread runs meanwhile
"""


def test_sigterm_ends_a_driver_that_does_nothing_but_one_call() -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        driver.terminate()
        try:
            _, said = driver.communicate(timeout=30)
        finally:
            driver.kill()
    assert driver.returncode == 1
    assert b"fullmatch" in said


CONCLUDING = """
import time
from tuner.lifecycle.interruption import interruptions

with interruptions(grace_seconds=0.5) as interruption:
    print("begun", flush=True)
    while not interruption.is_set():
        time.sleep(0.01)
    time.sleep(3)  # as the report of a long search, or a store that doesn't answer
print("concluded")
"""


def test_sigterm_ends_no_driver_that_takes_longer_than_that_to_conclude() -> None:
    with subprocess.Popen([sys.executable, "-c", CONCLUDING], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        driver.terminate()
        said, _ = driver.communicate(timeout=60)
    assert (driver.returncode, said) == (0, b"concluded\n")


def test_an_exception_that_the_end_of_ray_leads_to_is_no_failure_of_the_search() -> None:
    with interruptions() as interruption, Watchdog(interruption, lambda: True):
        with pytest.raises(SearchLeft), interruption.breakable():
            raise RuntimeError("The actor died unexpectedly")
        assert interruption.reason == RAY_IS_GONE


def test_an_exception_of_the_search_stays_what_it_is() -> None:
    with interruptions() as interruption, pytest.raises(ZeroDivisionError), interruption.breakable():
        print(1 / 0)


def test_nothing_is_broken_into_outside_the_block() -> None:
    with interruptions() as interruption, Watchdog(interruption, lambda: True) as watchdog:
        wait_for(lambda: watchdog.ray_is_gone)
        for _ in range(3):
            interruption.break_in()
        os.getpid()
    assert interruption.reason == RAY_IS_GONE
