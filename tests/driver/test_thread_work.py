"""Work beside the start of Ray: its result, its failure, and a signal that comes before either."""

import os
import signal
import threading

import pytest

from tuner.driver.thread_work import awaited, meanwhile
from tuner.errors import DataError
from tuner.lifecycle.interruption import interruptions


def test_work_is_done_in_another_thread_and_its_result_waited_for() -> None:
    with interruptions() as interrupted:
        assert awaited(meanwhile(threading.get_ident), interrupted) != threading.get_ident()


def test_what_the_work_raises_is_raised_where_it_is_waited_for() -> None:
    def fails() -> None:
        raise DataError("no such data")

    with interruptions() as interrupted:
        work = meanwhile(fails)
        with pytest.raises(DataError, match="no such data"):
            awaited(work, interrupted)


def test_a_signal_ends_the_waiting_for_work_that_goes_on() -> None:
    over = threading.Event()
    with interruptions() as interrupted:
        work = meanwhile(over.wait)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(KeyboardInterrupt, match="before the search started"):
            awaited(work, interrupted)
    assert not work.done()
    over.set()
    assert work.result(timeout=300)
