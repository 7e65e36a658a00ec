"""Which processes the guard of a search ends: the live ones of its sessions, with /proc or without."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tuner.driver.guard import members_by_proc, members_by_ps

PARENT = """
import subprocess, sys
ended = subprocess.Popen(["true"])  # never waited for: a zombie
child = subprocess.Popen(["sleep", "600"])
while open(f"/proc/{ended.pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
    pass
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.parametrize("members", [members_by_proc, members_by_ps])
def test_members_are_the_live_processes_of_the_sessions(members: Callable[[set[int]], list[int]]) -> None:
    leader = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert leader.stdout is not None
    try:
        child = int(leader.stdout.readline())
        assert sorted(members({leader.pid})) == sorted([leader.pid, child])
        assert os.getpid() not in members({leader.pid})
        assert set(members({leader.pid, os.getsid(0)})) >= {leader.pid, child, os.getpid()}
    finally:
        os.killpg(leader.pid, 9)
        leader.stdout.read()  # ends when nobody can write there any more
        leader.wait()
    assert members({leader.pid}) == []
