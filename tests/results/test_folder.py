import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tuner.errors import RunFolderError
from tuner.results.folder import Folder, LocalFolder, ObjectFolder, open_folder


def local(path: Path) -> Folder:
    return LocalFolder(path)


def store(path: Path) -> Folder:
    """An object store whose bucket is a folder: pyarrow's own file systems, without a network."""
    bucket = SubTreeFileSystem(str(path), LocalFileSystem())
    return ObjectFolder("s3://bucket/", bucket, "")


def fill(path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "b/deep/3.txt", "a/0.txt", "top.txt"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)


KINDS = pytest.mark.parametrize("kind", [local, store])


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
