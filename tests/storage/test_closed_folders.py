"""Nothing leads out of a run's folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.folders import KINDS, whole
from tuner.errors import RunFolderError
from tuner.storage.folder import Folder, LocalFolder

OUTSIDE = ["../outside", "..", "tune/../../outside", "/etc", "", ".", "\0"]
VERBS: dict[str, Callable[[Folder, str], object]] = {
    "read": lambda folder, name: folder.read(name),
    "read_from": lambda folder, name: folder.read_from(name, 0),
    "write": lambda folder, name: folder.write(name, b"spoilt"),
    "write_text": lambda folder, name: folder.write_text(name, "spoilt"),
    "create": lambda folder, name: folder.create(name, b"spoilt"),
    "touch": lambda folder, name: folder.touch(name),
    "modified": lambda folder, name: folder.modified(name),
    "remove": lambda folder, name: folder.remove(name),
    "delete": lambda folder, name: folder.delete(name),
    "rename": lambda folder, name: folder.rename("tune", name),
    "rename from": lambda folder, name: folder.rename(name, "best"),
    "child": lambda folder, name: folder.child(name),
}


def hostile(path: Path) -> Path:
    """A run folder beside another folder, with symbolic links to it and to a file in it."""
    (path / "outside" / "deep").mkdir(parents=True)
    (path / "outside" / "kept.txt").write_text("kept")
    (path / "outside" / "deep" / "kept.txt").write_text("kept")
    (path / "run" / "tune" / "00001").mkdir(parents=True)
    (path / "run" / "run.json").write_text("{}")
    (path / "run" / "checkpoints").symlink_to(path / "outside")
    (path / "run" / "tune" / "link").symlink_to("../../outside/deep")
    (path / "run" / "tune" / "circle").symlink_to("circle")
    (path / "run" / "tune" / "00001" / "weights").symlink_to(path / "outside" / "kept.txt")
    return path / "run"


@KINDS
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_out_of_the_folder_is_refused(
    tmp_path: Path, kind: Callable[[Path], Folder], verb: str, name: str
) -> None:
    run = hostile(tmp_path)
    with pytest.raises(RunFolderError, match="the files of a run are inside its folder, got "):
        VERBS[verb](kind(run), name)
    assert whole(tmp_path / "outside") == {"kept.txt": "kept", "deep/kept.txt": "kept"}
    assert (run / "run.json").read_text() == "{}"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "name",
    ["checkpoints", "checkpoints/deep", "checkpoints/kept.txt", "tune/link", "tune/00001/weights", "tune/circle"],
)
def test_a_symbolic_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path, verb: str, name: str) -> None:
    run = hostile(tmp_path)
    with pytest.raises(RunFolderError, match="which is outside of it; remove it, and don't trust the folder"):
        VERBS[verb](LocalFolder(run), name)
    assert whole(tmp_path / "outside") == {"kept.txt": "kept", "deep/kept.txt": "kept"}
    assert (run / "tune").is_dir()


@pytest.mark.parametrize("name", ["tune", "tune/00001", "checkpoints", "../outside"])
def test_what_is_fetched_holds_no_links_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunFolderError, match="is outside of it"):
        LocalFolder(hostile(tmp_path)).fetch(name, tmp_path / "copy")


def test_appending_through_a_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is outside of it"):
        LocalFolder(hostile(tmp_path)).append_to("checkpoints/kept.txt")
    assert whole(tmp_path / "outside")["kept.txt"] == "kept"


def test_a_folder_inside_a_runs_is_as_closed_as_the_run(tmp_path: Path) -> None:
    tune = LocalFolder(hostile(tmp_path)).child("tune")
    with pytest.raises(RunFolderError, match="is outside of it"):
        tune.child("link")
    assert tune.folders() == ["00001"]
    assert LocalFolder(tmp_path / "run").folders() == ["tune"]


def test_links_inside_a_folder_work_and_a_run_may_be_reached_through_one(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    run = hostile(tmp_path)
    (run / "tune" / "again").symlink_to("00001")
    (storage / "linked").symlink_to(run)
    assert LocalFolder(storage).folders() == ["linked"]
    folder = LocalFolder(storage).child("linked")
    folder.write("tune/again/epoch", b"3")
    assert (run / "tune" / "00001" / "epoch").read_bytes() == b"3"
    folder.delete("tune/00001")
    assert not (run / "tune" / "00001").exists()
    assert whole(tmp_path / "outside") == {"kept.txt": "kept", "deep/kept.txt": "kept"}
