import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tests.commands import environment
from tests.s3_server import s3_endpoint
from tests.storage.folders import KINDS, fill, whole
from tests.storage.stores import works_for_everything
from tuner.errors import RunFolderError
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.locations import check_writable, fetched_file, open_folder
from tuner.storage.object_folder import ObjectFolder


@KINDS
def test_files_and_folders_are_listed_by_name_one_level_deep(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    fill(tmp_path)
    folder = kind(tmp_path)
    assert folder.files() == ["top.txt"]
    assert folder.files("b") == ["1.txt", "2.txt"]
    assert folder.folders() == ["a", "b"]
    assert folder.child("b").folders() == ["deep"]
    assert folder.files("nowhere") == []
    assert folder.child("nowhere").folders() == []


@KINDS
def test_a_file_is_there_or_not_and_reading_a_missing_one_says_so(
    tmp_path: Path, kind: Callable[[Path], Folder]
) -> None:
    fill(tmp_path)
    folder = kind(tmp_path)
    assert [folder.exists(name) for name in ("top.txt", "b/1.txt", "b", "b/9.txt", "x/1.txt")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert folder.read("b/deep/3.txt") == b"b/deep/3.txt"
    with pytest.raises(FileNotFoundError):
        folder.read("b/9.txt")


@KINDS
def test_writing_replaces_a_file_as_a_whole(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    folder = kind(tmp_path)
    folder.write("run.json", b"a long first content")
    folder.write("run.json", b"short")
    assert (tmp_path / "run.json").read_bytes() == b"short"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@KINDS
def test_deleting_takes_a_folder_with_all_in_it_and_nothing_else(
    tmp_path: Path, kind: Callable[[Path], Folder]
) -> None:
    fill(tmp_path)
    folder = kind(tmp_path)
    folder.delete("b")
    folder.delete("b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "top.txt"]


@KINDS
def test_fetching_gives_a_local_folder_with_the_files(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    fill(tmp_path / "far")
    fetched = kind(tmp_path / "far").fetch("b", tmp_path / "near" / "copy")
    assert {str(path.relative_to(fetched)) for path in fetched.rglob("*.txt")} == {"1.txt", "2.txt", "deep/3.txt"}
    assert (fetched / "deep" / "3.txt").read_text() == "b/deep/3.txt"


def test_a_local_folder_is_fetched_without_a_copy(tmp_path: Path) -> None:
    fill(tmp_path)
    assert LocalFolder(tmp_path).fetch("b", tmp_path / "copy") == tmp_path / "b"
    assert not (tmp_path / "copy").exists()


def test_a_local_write_makes_the_folders_above_it(tmp_path: Path) -> None:
    LocalFolder(tmp_path).write("best/deep/metrics.json", b"{}")
    assert (tmp_path / "best" / "deep" / "metrics.json").read_bytes() == b"{}"


def test_a_local_file_is_as_readable_as_any_that_the_user_writes(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        LocalFolder(tmp_path).write("run.json", b"{}")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == 0o640


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(OSError, match=r"run\.json"):
        LocalFolder(tmp_path).write("run.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_appending_adds_to_what_is_there(tmp_path: Path) -> None:
    for line in (b"one\n", b"two\n"):
        with LocalFolder(tmp_path).append_to("events/1.jsonl") as file:
            file.write(line)
    assert (tmp_path / "events" / "1.jsonl").read_bytes() == b"one\ntwo\n"


def test_a_location_is_a_path_or_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_folder("runs").uri == str(tmp_path / "runs")
    assert open_folder(Path("runs")).uri == str(tmp_path / "runs")
    assert open_folder(f"file://{tmp_path}/runs").uri == str(tmp_path / "runs")
    assert open_folder("~/runs").uri == str(Path.home() / "runs")
    assert open_folder("runs/digits/2026").name == "2026"


def test_a_uri_keeps_its_query_in_the_folders_below_it(tmp_path: Path) -> None:
    folder = ObjectFolder("s3://bucket/runs?region=eu/", LocalFileSystem(), str(tmp_path))
    child = folder.child("digits").child("2026")
    assert (child.uri, child.name) == ("s3://bucket/runs/digits/2026?region=eu", "2026")
    child_path = tmp_path / "digits" / "2026"
    child_path.mkdir(parents=True)
    child.write("run.json", b"{}")
    assert (child_path / "run.json").read_bytes() == b"{}"


def test_a_uri_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RunFolderError) as caught:
        open_folder("nowhere://bucket/runs")
    assert str(caught.value).startswith(
        "storage needs a folder or a URI such as s3://bucket/prefix, got 'nowhere://bucket/runs'; "
    )


# Nothing leads out of a run's folder


# Whole or absent


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, replace, done = os.fsync, Path.replace, []
    monkeypatch.setattr(
        os, "fsync", lambda handle: (done.append(str(Path(f"/proc/self/fd/{handle}").readlink())), sync(handle))
    )
    monkeypatch.setattr(Path, "replace", lambda *names: (done.append("named"), replace(*names))[1])
    LocalFolder(tmp_path).write("best/deep/metrics.json", b"{}")
    assert done[:2] == [str(tmp_path), str(tmp_path / "best")]  # that have new folders in them
    assert done[2].startswith(str(tmp_path / "best" / "deep" / ".metrics.json."))
    assert done[3:] == ["named", str(tmp_path / "best" / "deep")]


@KINDS
def test_text_without_utf8_is_written_as_escapes(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    kind(tmp_path).write_text("trials.csv", "größe,\udcff\n")
    assert (tmp_path / "trials.csv").read_text() == "größe,\\udcff\n"


@KINDS
def test_a_folder_is_renamed_in_place_of_another(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    fill(tmp_path)
    folder = kind(tmp_path)
    folder.rename("b", "c")
    assert whole(tmp_path) == {"a/0.txt": "a/0.txt", "top.txt": "top.txt"} | {
        f"c/{name}": f"b/{name}" for name in ("1.txt", "2.txt", "deep/3.txt")
    }
    folder.rename("c", "a")
    assert whole(tmp_path) == {"top.txt": "top.txt"} | {
        f"a/{name}": f"b/{name}" for name in ("1.txt", "2.txt", "deep/3.txt")
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "top.txt"]


@KINDS
def test_a_folder_that_is_not_there_takes_no_ones_place(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    fill(tmp_path)
    with pytest.raises(FileNotFoundError):
        kind(tmp_path).rename("nowhere", "a")
    assert (tmp_path / "a" / "0.txt").read_text() == "a/0.txt"


def test_a_rename_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    before = whole(tmp_path)
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if self.name == "b":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space"):
        LocalFolder(tmp_path).rename("b", "a")
    assert whole(tmp_path) == before


def test_of_many_that_create_a_file_one_does(tmp_path: Path) -> None:
    folder, together, created = LocalFolder(tmp_path), threading.Barrier(8), []

    def create(content: bytes) -> None:
        together.wait()
        created.append((folder.create("lease/1.json", content), content))

    threads = [threading.Thread(target=create, args=(b"%d" % k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [content for yes, content in created if yes] == [folder.read("lease/1.json")]
    assert folder.files("lease") == ["1.json"]


def test_a_file_is_created_where_the_disk_has_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*names: object) -> None:
        raise OSError(1, "Operation not permitted")  # as FAT says it

    monkeypatch.setattr(os, "link", no_links)
    folder = LocalFolder(tmp_path)
    assert (folder.create("one", b"1"), folder.create("one", b"2")) == (True, False)
    assert (folder.read("one"), folder.files()) == (b"1", ["one"])


def test_a_touch_moves_the_time_and_never_makes_a_file(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("one", b"1")
    os.utime(tmp_path / "one", (5, 5))
    assert folder.modified("one") == 5
    folder.touch("one")
    assert abs(folder.modified("one") - time.time()) < 600
    with pytest.raises(FileNotFoundError):
        folder.touch("two")
    assert folder.files() == ["one"]


# A real object store


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_endpoint("bucket") as address:
        yield address


@pytest.mark.parametrize("base", ["s3://bucket", "s3://bucket/", "s3://bucket/my runs/größe", "s3://bucket/a%20b/"])
def test_an_object_store_at_another_endpoint_works_for_everything(endpoint: str, tmp_path: Path, base: str) -> None:
    works_for_everything(f"{base}?endpoint_override={endpoint}&scheme=http", tmp_path)


def test_an_object_is_created_once(endpoint: str) -> None:
    folder = open_folder(f"s3://bucket/created?endpoint_override={endpoint}&scheme=http")
    assert (folder.create("one", b"1"), folder.create("one", b"2"), folder.read("one")) == (True, False, b"1")
    assert folder.create("one", b"1")  # a request that was repeated on its way
    assert abs(folder.modified("one") - time.time()) < 600
    folder.touch("one")
    assert folder.read("one") == b"1"
    for missing in (folder.modified, folder.touch, folder.read):
        with pytest.raises(FileNotFoundError):
            missing("two")


def test_an_object_that_grows_while_it_is_read_is_whole(endpoint: str) -> None:
    uri = f"s3://bucket/growing?endpoint_override={endpoint}&scheme=http"
    open_folder(uri).write("run.json", b"{0}")
    ended = threading.Event()

    def grow() -> None:
        for digits in range(1, 2000):
            open_folder(uri).write("run.json", b"{%s}" % (b"0" * digits))
            if ended.wait(0.02):
                break

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        read = [open_folder(uri).read("run.json") for _ in range(100)]
    finally:
        ended.set()
        growing.join()
    assert {(content[:1], content[-1:]) for content in read} == {(b"{", b"}")}


def test_where_no_write_is_conditional_the_last_of_those_that_come_together_wins(tmp_path: Path) -> None:
    bucket = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    folder = ObjectFolder("hdfs://cluster/runs", bucket, "")  # which obstore doesn't know
    assert (folder.create("one", b"1"), folder.create("one", b"2"), folder.read("one")) == (True, False, b"1")


# Storage that can't be written to


@KINDS
def test_a_check_of_storage_leaves_nothing_behind(tmp_path: Path, kind: Callable[[Path], Folder]) -> None:
    check_writable(kind(tmp_path))
    assert list(tmp_path.iterdir()) == []


def unwritable(folder: Folder) -> str:
    with pytest.raises(RunFolderError) as caught:
        check_writable(folder)
    return str(caught.value)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    for where in (tmp_path / "runs", tmp_path / "runs" / "digits"):
        assert unwritable(LocalFolder(where)).startswith(
            f"--storage needs a folder that can be written to, got '{where}' ("
        )


def test_a_bucket_that_is_not_there_is_refused(endpoint: str) -> None:
    uri = f"s3://nobucket/runs?endpoint_override={endpoint}&scheme=http"
    told = unwritable(open_folder(uri))
    assert told.startswith(f"--storage needs a folder that can be written to, got '{uri}' (")
    assert "The specified bucket does not exist" in told


MOUNTS = {
    "read-only": ("mount -t tmpfs -o ro none {}", "(Read-only file system); choose another"),
    "full": ("mount -t tmpfs -o size=32k none {}", "(No space left on device); free some of it or choose another"),
}


@pytest.mark.parametrize(("mount", "told"), MOUNTS.values(), ids=MOUNTS)
def test_a_disk_that_takes_nothing_is_refused(tmp_path: Path, mount: str, told: str) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mounting = mount.format(tmp_path)
    if shutil.which("unshare") is None or subprocess.run([*unshare, mounting], check=False).returncode:
        pytest.skip("needs a system that lets users mount")
    check = (
        "from tuner.storage.folder import *; from tuner.storage.locations import *; "
        f"check_writable(LocalFolder({str(tmp_path)!r}))"
    )
    script = f'{mounting} && "$0" -c "$1"; ls -A {tmp_path}'
    command = [*unshare, script, sys.executable, check]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"tuner.errors.RunFolderError: --storage needs a folder that can be written to, got '{tmp_path}' {told}"
    )
    assert done.stdout == ""


@pytest.mark.parametrize("path", ["circle", "~nobody-of-that-name/runs", "a\0b"])
def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(RunFolderError, match="a folder needs a valid path, got "):
        open_folder(path)


def test_an_endpoint_of_the_environment_without_tls_has_conditional_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_endpoint("bucket") as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        folder = open_folder("s3://bucket/by the environment")
        assert [folder.create("one", b"1"), folder.create("one", b"2")] == [True, False]
        assert folder.read("one") == b"1"


@pytest.mark.parametrize("odd", ["pipe", "folder", "link to a pipe"])
@pytest.mark.parametrize("verb", ["read", "read_from", "read_at_most", "modified", "append_to", "fetched_file"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, odd: str, verb: str) -> None:
    folder, path = LocalFolder(tmp_path), tmp_path / "odd"
    if odd == "folder":
        path.mkdir()
    elif odd == "pipe":
        os.mkfifo(path)
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    verbs: dict[str, Callable[[], object]] = {
        "read": lambda: folder.read("odd"),
        "read_from": lambda: folder.read_from("odd", 0),
        "read_at_most": lambda: folder.read_at_most("odd", 10),
        "modified": lambda: folder.modified("odd"),
        "append_to": lambda: folder.append_to("odd"),
        "fetched_file": lambda: fetched_file(folder, "odd", tmp_path),
    }
    with pytest.raises((OSError, RunFolderError)):
        verbs[verb]()


def test_a_folder_with_a_pipe_in_it_is_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    os.mkfifo(tmp_path / "best" / "pipe")
    with pytest.raises(RunFolderError, match=r"^a run has files and folders only, got '.*/best/pipe'; remove it$"):
        LocalFolder(tmp_path).fetch("best", tmp_path / "copy")


def test_a_file_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"the beginning")
    os.truncate(tmp_path / "huge", 2**40)
    folder = LocalFolder(tmp_path)
    with pytest.raises(OSError, match="File too large"):
        folder.read("huge")
    assert folder.read_from("huge", 2**40 - 5) == bytes(5)
    assert folder.read_at_most("huge", 13) == b"the beginning"
