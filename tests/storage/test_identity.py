import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import environment
from tuner.storage.identity import ProcessIdentity

CURRENT = "from tuner.storage.identity import ProcessIdentity; print(ProcessIdentity.current())"


def test_this_process_lives_and_another_with_its_number_does_not() -> None:
    current = ProcessIdentity.current()
    assert (current.pid, current.lives()) == (os.getpid(), True)
    assert current.start is not None
    assert replace(current, start=current.start + 1).lives() is False


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**70])
def test_a_number_that_no_process_has_is_a_dead_ones(pid: int) -> None:
    assert replace(ProcessIdentity.current(), pid=pid).lives() is False


@pytest.mark.parametrize("field", ["boot", "namespace", "start"])
def test_of_a_process_elsewhere_or_half_known_it_cannot_be_told_whether_it_lives(field: str) -> None:
    current = ProcessIdentity.current()
    assert replace(current, **{field: None}).lives() is None
    if field != "start":
        assert replace(current, **{field: "another"}).lives() is None


def test_a_program_may_have_any_name() -> None:
    renamed = subprocess.Popen(
        [sys.executable, "-c", "open('/proc/self/comm', 'w').write(') Z 1 2 (')\nprint(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert renamed.stdout is not None
        renamed.stdout.readline()
        start = int(Path(f"/proc/{renamed.pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert replace(ProcessIdentity.current(), pid=renamed.pid, start=start).lives() is True
    finally:
        renamed.kill()
        renamed.communicate()


@pytest.mark.parametrize("own_proc", [True, False])
def test_a_process_in_a_container_knows_itself_only_by_its_own_proc(own_proc: bool) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", *(["--mount-proc"] if own_proc else [])]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("needs a system that lets users make PID namespaces")
    command = [*unshare, sys.executable, "-c", CURRENT]
    told = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    if own_proc:
        assert told.startswith(f"ProcessIdentity(pid=1, boot={ProcessIdentity.current().boot!r}, namespace='pid:[")
    else:
        assert told == "ProcessIdentity(pid=1, boot=None, namespace=None, start=None)\n"
