import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import ROOT, environment
from tests.s3_server import s3_endpoint
from tuner.errors import RunFolderError
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.identity import ProcessIdentity
from tuner.storage.lease import Holder, Lease, Pace, _written, ever_held, held, holder
from tuner.storage.locations import open_folder

QUICK = Pace(renew_seconds=0.2, expire_seconds=2.0)


@pytest.fixture(scope="module")
def store() -> Iterator[Callable[[str], str]]:
    """Name of a run -> its URI on an object store."""
    with s3_endpoint("bucket") as endpoint:
        yield lambda name: f"s3://bucket/runs/{name}?endpoint_override={endpoint}&scheme=http&region=us-east-1"


@pytest.fixture(params=["disk", "object store"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path / "run")
    return str(request.getfixturevalue("store")(tmp_path.name))


class Driver:
    """A process that takes the lease; see holding.py."""

    def __init__(self, uri: str, *, take_over: bool = False, pace: Pace = QUICK, within: str = "") -> None:
        numbers = (str(pace.renew_seconds), str(pace.expire_seconds))
        command = [sys.executable, "-m", "tests.storage.holding", uri, "yes" if take_over else "no", *numbers]
        self.process = subprocess.Popen(
            [*within.split(), *command],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def go(self, at: float = 0.0) -> None:
        """Let it try at that time."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{at}\n")
        self.process.stdin.flush()

    def says(self, seconds: float = 30) -> str:
        """Its next line; fails rather than wait for ever."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], seconds)[0], "it says nothing"
        return self.process.stdout.readline().strip()

    def release(self) -> str:
        """Everything that it says until its end."""
        return self.process.communicate(timeout=30)[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def driver() -> Iterator[Callable[..., Driver]]:
    """Starts drivers; none outlives the test."""
    started: list[Driver] = []

    def start(uri: str, *, go: bool = True, **options: object) -> Driver:
        started.append(Driver(uri, **options))  # type: ignore[arg-type]
        assert started[-1].says() == "ready"
        if go:
            started[-1].go()
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def refusal(folder: Folder, **options: object) -> str:
    with pytest.raises(RunFolderError) as caught, held(folder, **options):  # type: ignore[arg-type]
        pass
    return str(caught.value)


def lease_of(folder: Folder, holder: Holder) -> None:
    """A lease as its holder left it."""
    folder.write("lease/000001.json", _written(holder))


def somebody(**identity: object) -> Holder:
    """A holder like this very process, but for what is given."""
    process = replace(ProcessIdentity.current(), **identity)  # type: ignore[arg-type]
    return Holder("of-the-test", "elsewhere", process, "2026-01-31T09:30:00+00:00")


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
    assert told.endswith(f"; end it with `kill {first.pid}`, or take the run over with --take-over")
    assert first.release() == "released\n"
    with held(open_folder(uri)) as lease:
        assert not lease.lost


def test_this_process_is_refused_a_lease_that_it_holds(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with held(folder):
        assert refusal(folder) == (
            f"a run has one driver at a time, got {folder.uri!r}, which this very process drives; "
            "wait for its end, or take the run over with --take-over"
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
    answers = [got.get(timeout=30) for _ in threads]
    winners = [lease for lease in answers if lease is not None]
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


def test_a_lease_can_be_taken_over_and_its_holder_sees_it(uri: str, driver: Callable[..., Driver]) -> None:
    first = driver(uri)
    assert first.says() == "held"
    second = driver(uri, take_over=True)
    assert first.says() == "lost"
    assert second.says() == "held"
    assert first.release() == ""
    third = driver(uri)
    assert third.says().startswith(f"refused: a run has one driver at a time, got {open_folder(uri).uri!r}")
    assert second.release() == "released\n"


def test_who_takes_over_waits_until_the_other_has_noticed(tmp_path: Path, driver: Callable[..., Driver]) -> None:
    first = driver(str(tmp_path), pace=Pace(3.0, 45.0))
    assert first.says() == "held"
    with held(LocalFolder(tmp_path), take_over=True, pace=Pace(3.0, 45.0)):
        assert select.select([first.process.stdout], [], [], 0)[0]
        assert first.says() == "lost"


def test_of_several_that_take_over_together_one_has_it_in_the_end(
    tmp_path: Path, driver: Callable[..., Driver]
) -> None:
    first = driver(str(tmp_path))
    assert first.says() == "held"
    others = [driver(str(tmp_path), take_over=True, go=False) for _ in range(3)]
    start = time.time() + 0.2
    for one in others:
        one.go(start)
    assert first.says() == "lost"
    assert {one.says().partition(":")[0] for one in others} <= {"held", "refused"}
    assert "".join(one.release() for one in others).count("released") == 1


def test_a_holder_that_was_suspended_sees_what_happened_before_it_does_anything(
    uri: str, driver: Callable[..., Driver]
) -> None:
    first = driver(uri, pace=Pace(0.5, 2.0))
    assert first.says() == "held"
    os.kill(first.pid, signal.SIGSTOP)
    assert "end it with `kill" in refusal(open_folder(uri))  # it lives
    with held(open_folder(uri), take_over=True, pace=Pace(0.5, 2.0)) as lease:
        os.kill(first.pid, signal.SIGCONT)
        assert first.says() == "lost"
        assert not lease.lost
        assert first.release() == ""
    assert holder(open_folder(uri)) is None


def test_a_suspended_holder_asks_the_storage_before_it_answers(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with held(folder, pace=Pace(renew_seconds=0.5)) as lease:
        lease._ended.set()  # its thread gets no turn
        folder.write("lease/000002.json", _written(somebody()))
        assert not lease.lost  # as it has looked a moment ago
        time.sleep(1.1)
        assert lease.lost


def test_a_storage_that_cannot_be_read_for_a_while_is_no_lost_lease(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with held(folder, pace=Pace(renew_seconds=0.1)) as lease:
        (tmp_path / "lease").rename(tmp_path / "away")
        (tmp_path / "lease").symlink_to("lease")
        with pytest.raises(RunFolderError):
            folder.files("lease")
        time.sleep(0.5)
        assert not lease.lost
        (tmp_path / "lease").unlink()
        (tmp_path / "away").rename(tmp_path / "lease")
        time.sleep(0.5)
        assert not lease.lost
    assert holder(folder) is None


def test_a_lease_is_lost_with_its_folder_which_stays_away(tmp_path: Path) -> None:
    run = LocalFolder(tmp_path / "run")
    with held(run, pace=QUICK) as lease:
        shutil.rmtree(tmp_path / "run")
        for _ in range(200):
            if lease.lost:
                break
            time.sleep(0.05)
        assert lease.lost
    assert not (tmp_path / "run").exists()


def test_a_number_that_came_free_long_ago_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two found the same dead holder; one was slow, and when it acts the other was followed by a third."""
    folder = LocalFolder(tmp_path)
    lease_of(folder, somebody(pid=2**22 + 1))
    create, third = LocalFolder.create, somebody(pid=os.getppid(), boot="0")

    def slow(self: LocalFolder, name: str, content: bytes) -> bool:
        monkeypatch.setattr(LocalFolder, "create", create)
        folder.write("lease/000003.json", _written(third))
        folder.remove("lease/000001.json")
        return create(self, name, content)

    monkeypatch.setattr(LocalFolder, "create", slow)
    keep = threading.Event()
    touching = threading.Thread(
        target=lambda: [folder.touch("lease/000003.json") for _ in iter(lambda: keep.wait(0.3), True)]
    )
    touching.start()
    try:
        assert "on 'elsewhere' drives" in refusal(folder, pace=Pace(0.3, 10.0))
    finally:
        keep.set()
        touching.join()
    assert folder.files("lease") == ["000003.json"]


# Storage that can't be written to


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    assert refusal(LocalFolder(tmp_path / "run")).startswith(
        f"a run's folder needs to be one that can be written to, got '{tmp_path}/run' ("
    )


def test_a_bucket_that_is_not_there_is_told(store: Callable[[str], str]) -> None:
    uri = store("x").replace("s3://bucket/", "s3://nobucket/")
    told = refusal(open_folder(uri))
    assert told.startswith("a run on object storage needs a store that it may write to, got 's3://nobucket/runs/x?")
    assert told.endswith("; check the bucket and the credentials")
    assert "\n" not in told


def test_a_hostile_lease_folder_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "lease").symlink_to(tmp_path / "elsewhere")
    assert holder(LocalFolder(tmp_path / "run")) is None
    assert "which is outside of it" in refusal(LocalFolder(tmp_path / "run"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
