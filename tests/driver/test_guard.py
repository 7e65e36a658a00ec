"""The program that clears up after a driver, beside processes that it must leave alone."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.searches import wait_for
from tuner.driver.guard import kill, members, members_by_proc, members_by_ps

SLEEPING = ("sh", "-c", "trap '' TERM; sleep 100 & sleep 100")  # two processes of one session
GUARD = """
import sys
from tuner.driver import guard
guard.LEAVING_SECONDS = float(sys.argv[2])
guard.main(sys.argv[1])
"""


@pytest.fixture
def two_sessions() -> Iterator[tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"]]:
    first, second = (subprocess.Popen(SLEEPING, start_new_session=True) for _ in range(2))
    try:
        wait_for(lambda: len(members({first.pid})) > 1 and len(members({second.pid})) > 1)
        yield first, second
    finally:
        for each in (first, second):
            kill(members({each.pid}))
            each.wait()


def test_the_members_of_a_session_are_its_live_processes(
    two_sessions: tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"],
) -> None:
    first, second = two_sessions
    of_first, of_second = members({first.pid}), members({second.pid})
    assert first.pid in of_first
    assert second.pid in of_second
    assert not set(of_first) & set(of_second)
    assert sorted(members({first.pid, second.pid})) == sorted(of_first + of_second)
    assert members(set()) == []
    kill(of_first)
    wait_for(lambda: members({first.pid}) == [])  # the first is a zombie until it is waited for
    assert first.poll() is not None
    assert members({second.pid}) == of_second


def test_where_there_is_no_proc_ps_shows_the_same_processes(
    two_sessions: tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"],
) -> None:
    first, second = two_sessions
    of_first = members_by_ps({first.pid})
    assert sorted(of_first) == sorted(members_by_proc({first.pid}))
    kill(of_first)
    wait_for(lambda: members_by_ps({first.pid}) == [])
    assert sorted(members_by_ps({first.pid, second.pid})) == sorted(members_by_proc({second.pid}))


def test_the_end_of_the_driver_ends_its_sessions_alone_and_deletes_its_folder(
    tmp_path: Path, two_sessions: tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"]
) -> None:
    first, second = two_sessions
    (tmp_path / "ray" / "session").mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", GUARD, tmp_path / "ray", "0.1"], stdin=subprocess.PIPE) as guard:
        assert guard.stdin is not None
        guard.stdin.write(f"{first.pid}\n".encode())
        guard.stdin.flush()
        time.sleep(0.2)
        assert (guard.poll(), first.poll()) == (None, None)  # it waits as long as the driver lives
        assert (tmp_path / "ray" / "session").is_dir()
        guard.stdin.close()
        assert guard.wait(300) == 0
    assert members({first.pid}) == []
    assert len(members({second.pid})) > 1
    assert not (tmp_path / "ray").exists()
