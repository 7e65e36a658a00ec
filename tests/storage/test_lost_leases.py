"""Leases that are lost: taken over, suspended, deleted, or on storage that can't be written to."""

import ctypes
import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.leases import QUICK, Driver, lease_of, refusal, somebody
from tuner.errors import RunFolderError
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import Pace, _written, held, holder
from tuner.storage.locations import open_folder


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


def test_a_lease_that_was_released_is_not_lost_however_late_one_asks(tmp_path: Path) -> None:
    pace = Pace(renew_seconds=0.1)
    with held(LocalFolder(tmp_path), pace=pace) as lease:
        pass
    with held(LocalFolder(tmp_path), pace=pace):
        time.sleep(0.3)
        assert not lease.lost


def test_a_storage_that_cannot_be_read_for_a_while_is_no_lost_lease(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    with held(folder, pace=Pace(renew_seconds=0.1)) as lease:
        (tmp_path / "away").symlink_to("lease")  # in the place of the lease it leads to itself
        _exchange(tmp_path / "lease", tmp_path / "away")
        with pytest.raises(RunFolderError):
            folder.files("lease")
        time.sleep(0.5)
        assert not lease.lost
        _exchange(tmp_path / "lease", tmp_path / "away")
        time.sleep(0.5)
        assert not lease.lost
    assert holder(folder) is None


def _exchange(first: Path, second: Path) -> None:
    """Both get the other's name at once, so that at no moment one of the names is missing."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange):
        raise OSError(ctypes.get_errno(), "renameat2")


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


@pytest.mark.parametrize("where", ["renamed", "deleted"])
def test_a_folder_that_is_gone_was_taken_over_by_nobody(tmp_path: Path, where: str) -> None:
    run = LocalFolder(tmp_path / "run")
    with held(run) as lease:
        lease.look()
        lease.check()
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        if where == "deleted":
            shutil.rmtree(tmp_path / "elsewhere")
        lease.check()  # nothing has looked yet
        lease.look()
        with pytest.raises(RunFolderError) as refused:
            lease.check()
        assert str(refused.value) == (
            f"a run's folder must stay where it is while the search runs, got '{tmp_path}/run', which was renamed or "
            "deleted; if you find it elsewhere, go on with: python -m tuner resume FOLDER"
        )
    assert not (tmp_path / "run").exists()


def test_who_took_a_run_over_is_followed(tmp_path: Path) -> None:
    run = LocalFolder(tmp_path)
    with held(run) as lease:
        lease_of(run, somebody())
        (tmp_path / "lease" / "000001.json").rename(tmp_path / "lease" / "000002.json")
        lease.look()
        with pytest.raises(RunFolderError, match=r"^another process has taken over the run .* tuner show .* --watch$"):
            lease.check()


@pytest.mark.parametrize("number", ["9" * 18, "9" * 40])
def test_a_lease_of_any_number_is_followed_by_the_next(tmp_path: Path, number: str) -> None:
    run = LocalFolder(tmp_path)
    lease_of(run, somebody(pid=2**22 + 1))
    (tmp_path / "lease" / "000001.json").rename(tmp_path / "lease" / f"{number}.json")
    with held(run) as lease:
        assert run.files("lease") == [f"{int(number) + 1}.json"]
        lease.look()
        assert not lease.lost


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
