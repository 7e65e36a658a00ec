import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import is_alive
from tests.searches import wait_for
from tuner.machine.child_process import CrashedError, call_apart


def raises() -> None:
    raise ValueError("no such thing")


def ends() -> None:
    os.write(2, b"the last words\n\n")
    os._exit(3)


def crashes() -> None:
    faulthandler.disable()  # pytest's, which writes a page
    os.kill(os.getpid(), signal.SIGSEGV)


def test_what_a_function_returns_comes_back() -> None:
    assert call_apart(lambda: {"pid": os.getpid() != os.getppid()}, 20) == {"pid": True}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raises, "ValueError: no such thing"),
        (ends, "its process ended with exit code 3: the last words"),
        (crashes, "its process was ended by SIGSEGV"),
    ],
)
def test_what_happens_to_a_process_is_told(function: Callable[[], None], said: str) -> None:
    with pytest.raises(CrashedError) as error:
        call_apart(function, 20)
    assert str(error.value) == said


def test_a_process_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    def hangs() -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (tmp_path / "pid").write_text(str(child.pid))
        time.sleep(600)

    with pytest.raises(CrashedError, match="it gave no answer within 3 s"):
        call_apart(hangs, 3)
    wait_for(lambda: not is_alive(int((tmp_path / "pid").read_text())), 60)  # it was sent a signal, and goes soon
