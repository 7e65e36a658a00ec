import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.leases import QUICK, Driver, lease_of, refusal, somebody
from tuner.errors import RunFolderError
from tuner.storage.folder import LocalFolder
from tuner.storage.identity import ProcessIdentity
from tuner.storage.lease import Holder, Lease, Pace, _written, ever_held, held, holder
from tuner.storage.locations import open_folder

# One holder at a time


def test_a_new_run_has_no_holder_until_its_lease_is_taken_and_none_after_its_release(uri: str) -> None:
    folder = open_folder(uri)
    assert (holder(folder), ever_held(folder)) == (None, False)
    with held(folder) as lease:
        found = holder(folder)
        assert found is not None
        assert (found.pid, found.id, lease.lost) == (os.getpid(), lease.holder.id, False)
    assert (holder(folder), ever_held(folder)) == (None, True)


def test_who_released_it_takes_it_again(uri: str) -> None:
    folder = open_folder(uri)
    for _ in range(3):
        with held(folder) as lease:
            assert not lease.lost
    assert len(folder.files("lease")) == 1


def test_an_exception_releases_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), held(LocalFolder(tmp_path)):
        raise ZeroDivisionError
    assert holder(LocalFolder(tmp_path)) is None
    assert [thread.name for thread in threading.enumerate() if thread.name == "tuner-lease"] == []


def test_a_second_driver_is_refused_at_once_by_the_name_of_the_first(uri: str, driver: Callable[..., Driver]) -> None:
    first = driver(uri, pace=Pace())
    assert first.says() == "held"
    told = refusal(open_folder(uri))
    assert f"a run has one driver at a time, got {open_folder(uri).uri!r}, which process {first.pid} on " in told
    assert told.endswith(
        f"; end it with `kill {first.pid}`, or take the run over with --take-over (in Python take_over=True)"
    )
    assert first.release() == "released\n"
    with held(open_folder(uri)) as lease:
        assert not lease.lost


def test_this_process_is_refused_a_lease_that_it_holds(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with held(folder):
        assert refusal(folder) == (
            f"a run has one driver at a time, got {folder.uri!r}, which this very process drives; "
            "wait for its end, or take the run over with --take-over (in Python take_over=True)"
        )


@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_of_drivers_that_start_together_one_runs(uri: str, driver: Callable[..., Driver], apart: float) -> None:
    drivers = [driver(uri, go=False) for _ in range(3)]
    start = time.time() + 0.2
    for k, one in enumerate(drivers):
        one.go(start + k * apart)
    said = sorted(one.says().partition(":")[0] for one in drivers)
    assert said == ["held", "refused", "refused"]


def test_of_many_that_come_in_the_same_instant_one_gets_it(uri: str) -> None:
    folder = open_folder(uri)
    lease_of(folder, somebody(pid=2**22 + 1))  # left by a dead one, as that makes it harder
    got: queue.Queue[Lease | None] = queue.Queue()
    together, done = threading.Barrier(8), threading.Event()

    def take() -> None:
        together.wait()
        try:
            with held(folder) as lease:
                got.put(lease)
                done.wait()
        except RunFolderError:
            got.put(None)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    answers = [got.get(timeout=300) for _ in threads]
    winners = [lease for lease in answers if lease is not None]
    if not Path(uri).is_absolute():  # moto looks for an object and then writes it: two may do so, and one then sees it
        for lease in winners:
            lease.look()
        winners = [lease for lease in winners if not lease.lost]
    lost = [lease.lost for lease in winners]
    done.set()
    for thread in threads:
        thread.join()
    assert lost == [False]


# Holders that died


def test_a_killed_holder_is_followed_at_once(uri: str, driver: Callable[..., Driver]) -> None:
    first = driver(uri, pace=Pace())
    assert first.says() == "held"
    first.kill()
    folder = open_folder(uri)
    assert holder(folder) is None
    with held(folder, pace=Pace(expire_seconds=3600)) as lease:
        assert not lease.lost


def test_a_killed_holder_that_nobody_has_waited_for_is_dead_too(tmp_path: Path, driver: Callable[..., Driver]) -> None:
    first = driver(str(tmp_path))
    assert first.says() == "held"
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie from here on
    assert holder(LocalFolder(tmp_path)) is None


def test_another_process_with_the_holders_number_is_not_the_holder(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    lease_of(folder, somebody(pid=os.getppid(), start=-1))  # it lives, and started at another time
    assert holder(folder) is None
    with held(folder, pace=Pace(expire_seconds=3600)) as lease:
        assert not lease.lost


def test_a_lease_of_this_process_that_it_does_not_know_is_free(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    lease_of(folder, somebody())  # its release failed, or the process was replaced by exec
    assert holder(folder) is None
    with held(folder, pace=Pace(expire_seconds=3600)) as lease:
        assert not lease.lost


# Holders of which this machine can't tell

ELSEWHERE = {
    "another boot": {"boot": "0"},
    "another container": {"namespace": "pid:[1]"},
    "no /proc": {"boot": None, "namespace": None, "start": None},
}


@pytest.mark.parametrize("identity", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["alive", "dead"])
def test_of_a_holder_elsewhere_its_number_says_nothing(tmp_path: Path, identity: dict[str, str], pid: int) -> None:
    assert somebody(pid=pid, **identity).lives() is None


def test_a_lease_from_elsewhere_runs_out(uri: str, capfd: pytest.CaptureFixture[str]) -> None:
    folder = open_folder(uri)
    lease_of(folder, somebody(boot="0"))
    assert holder(folder) is not None
    with held(folder, pace=QUICK) as lease:
        assert not lease.lost


def test_who_waits_is_told_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = LocalFolder(tmp_path)
    lease_of(folder, somebody(boot="0", pid=77))
    with held(folder, pace=QUICK):
        pass
    assert caplog.messages == [
        f"{folder.uri}: waiting up to 2 s to see whether process 77 on 'elsewhere' still drives the run"
    ]


def test_a_lease_that_ran_out_long_ago_is_taken_without_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = LocalFolder(tmp_path)
    lease_of(folder, somebody(boot="0"))
    os.utime(tmp_path / "lease" / "000001.json", (time.time() - 60, time.time() - 60))
    assert holder(folder) is None
    with held(folder) as lease:
        assert not lease.lost
    assert caplog.messages == []


def test_a_lease_that_is_renewed_elsewhere_is_refused(uri: str) -> None:
    folder = open_folder(uri)
    lease_of(folder, somebody(boot="0", pid=77))
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(0.5):
            folder.touch("lease/000001.json")

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        told = refusal(folder, pace=Pace(0.5, 10.0))
    finally:
        ended.set()
        renewing.join()
    assert "which process 77 on 'elsewhere' drives since 2026-01-31T09:30:00+00:00; end it there with `kill 77`" in told


def test_a_renewal_in_another_container_is_seen(tmp_path: Path, driver: Callable[..., Driver]) -> None:
    unshare = "unshare --user --map-root-user --pid --fork --kill-child --mount-proc"
    if shutil.which("unshare") is None or subprocess.run([*unshare.split(), "true"], check=False).returncode:
        pytest.skip("needs a system that lets users make PID namespaces")
    first = driver(str(tmp_path), within=unshare)
    assert first.says() == "held"
    found = holder(LocalFolder(tmp_path))
    assert found is not None
    assert (found.pid, found.lives()) == (1, None)
    assert "which process 1 on " in refusal(LocalFolder(tmp_path), pace=Pace(0.2, 10.0))
    first.kill()
    with held(LocalFolder(tmp_path), pace=QUICK) as lease:
        assert not lease.lost


def test_the_name_of_the_host_decides_nothing(tmp_path: Path, driver: Callable[..., Driver]) -> None:
    first = driver(str(tmp_path))
    assert first.says() == "held"
    file = tmp_path / "lease" / "000001.json"
    lease_of(LocalFolder(tmp_path), replace(_holder_in(file), host="renamed"))
    assert f"which process {first.pid} on 'renamed' drives" in refusal(LocalFolder(tmp_path))
    first.kill()
    lease_of(LocalFolder(tmp_path), replace(_holder_in(file), host="renamed"))
    assert holder(LocalFolder(tmp_path)) is None


def _holder_in(file: Path) -> Holder:
    told = json.loads(file.read_text())
    return Holder(**{**told, "process": ProcessIdentity(**told["process"])})


DAMAGED = [b"", b"{", b"[]", b"\xff\xfe", b'{"process": 5}', b'{"id": 1, "host": 2, "process": {}, "since": 3}']
DAMAGED.append(_written(somebody()).replace(b"2026-01-31T", b"\\u001b[2J"))


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_lease_is_nobodys_once_it_has_run_out(tmp_path: Path, content: bytes) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("lease/000001.json", content)
    assert holder(folder) is None
    with held(folder, pace=Pace(0.1, 0.3)) as lease:
        assert not lease.lost
    assert folder.files("lease") == ["000002.json"]


def test_other_files_beside_the_lease_are_left_alone(tmp_path: Path) -> None:
    for name in ("lease/.000001.json.abc", "lease/notes.txt", "lease/-00001.json", "lease/00000x.json"):
        LocalFolder(tmp_path).write(name, b"")
    before = LocalFolder(tmp_path).files("lease")
    with held(LocalFolder(tmp_path)):
        assert set(LocalFolder(tmp_path).files("lease")) == {*before, "000001.json"}


# Leases that are lost


# Storage that can't be written to
