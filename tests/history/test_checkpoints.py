import json
import os
from pathlib import Path

import pytest

from tests.loop.power import SyncedFiles
from tuner.errors import TrialError
from tuner.history.checkpoints import CheckpointStore, checkpoint_path, copied
from tuner.storage.folder import LocalFolder


def fill(text: str) -> "object":
    def write(folder: Path) -> None:
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_text(text)
        (folder / "manifest.json").write_text("the user's own")

    return write


def kept(tmp_path: Path) -> CheckpointStore:
    store = CheckpointStore(LocalFolder(tmp_path))
    for epoch in (1, 12, 3):
        store.write("00003", epoch, fill(f"epoch {epoch}"))  # type: ignore[arg-type]
    return store


def test_a_checkpoint_is_found_again_as_it_was_written(tmp_path: Path) -> None:
    store = kept(tmp_path)
    assert (store.epochs("00003"), store.epochs("00004"), store.trials()) == ([1, 3, 12], [], ["00003"])
    found = store.fetch("00003", 12, tmp_path / "copy")
    assert (found / "deep" / "weights").read_text() == "epoch 12"
    assert (found / "manifest.json").read_text() == "the user's own"


def test_a_newer_one_of_the_same_epoch_replaces_it(tmp_path: Path) -> None:
    store = kept(tmp_path)
    store.write("00003", 3, fill("again"))  # type: ignore[arg-type]
    assert (store.fetch("00003", 3, tmp_path / "copy") / "deep" / "weights").read_text() == "again"
    assert sorted(path.name for path in (tmp_path / "checkpoints" / "00003").iterdir()) == [
        "000001",
        "000003",
        "000012",
    ]


def test_one_that_fails_while_it_is_written_leaves_nothing(tmp_path: Path) -> None:
    store = kept(tmp_path)

    def half(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        store.write("00003", 3, half)
    assert (store.fetch("00003", 3, tmp_path / "copy") / "deep" / "weights").read_text() == "epoch 3"
    assert len(list((tmp_path / "checkpoints" / "00003").iterdir())) == 3


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed", "added", "manifest gone", "manifest damaged"])
def test_a_damaged_one_is_refused(tmp_path: Path, damage: str) -> None:
    store = kept(tmp_path)
    folder = tmp_path / checkpoint_path("00003", 3)
    file = folder / "files" / "deep" / "weights"
    if damage == "flipped":
        file.write_text("epoch 4")
    elif damage == "cut":
        os.truncate(file, 3)
    elif damage == "removed":
        file.unlink()
    elif damage == "added":
        (folder / "files" / "more").write_text("")
    elif damage == "manifest gone":
        (folder / "manifest.json").unlink()
    else:
        (folder / "manifest.json").write_text('{"files": 3')
    with pytest.raises(TrialError, match="a checkpoint must be complete, got checkpoints/00003/000003"):
        store.fetch("00003", 3, tmp_path / "copy")
    assert store.has("00003", 3) == (damage != "manifest gone")


def test_what_a_dead_worker_left_is_swept(tmp_path: Path) -> None:
    store = kept(tmp_path)
    (tmp_path / "checkpoints" / "00003" / ".unfinished-123-ab" / "files").mkdir(parents=True)
    (tmp_path / "checkpoints" / "00003" / "000007").mkdir()
    store.sweep("00003")
    assert sorted(path.name for path in (tmp_path / "checkpoints" / "00003").iterdir()) == [
        "000001",
        "000003",
        "000012",
    ]


def test_a_trials_id_names_no_other_place(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    store = CheckpointStore(LocalFolder(tmp_path / "run"))
    for trial in ("..", "../../outside", "/", str(outside), "a/b", ""):
        with pytest.raises(ValueError, match="a trial's id has letters, digits and _ only"):
            store.delete(trial, 1)
    assert outside.is_dir()


def test_its_size_is_that_of_its_files_and_0_where_it_is_not_there(tmp_path: Path) -> None:
    store = CheckpointStore(LocalFolder(tmp_path))
    store.write("00000", 1, lambda folder: (folder / "weights").write_bytes(bytes(5000)) and None)
    folder = tmp_path / "checkpoints" / "00000" / "000001"
    assert store.size("00000", 1) == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert store.size("00000", 2) == 0
    (folder / "manifest.json").write_text("[]")
    assert store.size("00000", 1) == 0


def looped(folder: Path) -> Path:
    (folder / "a").mkdir(parents=True)
    (folder / "b").mkdir()
    (folder / "a" / "weights").write_bytes(bytes(1000))
    return folder


@pytest.mark.parametrize(
    ("links", "named"),
    [
        ({"a/above": ".."}, "a/above"),
        ({"a/self": "."}, "a/self"),
        ({"a/other": "../b", "b/other": "../a"}, "other/other"),
        ({"a/root": "/"}, "a/root"),
    ],
)
def test_links_in_a_circle_are_named_once_and_copied_nowhere(tmp_path: Path, links: dict[str, str], named: str) -> None:
    source = looped(tmp_path / "source")
    for name, target in links.items():
        (source / name).symlink_to(target)
    store = CheckpointStore(LocalFolder(tmp_path / "run"))
    with pytest.raises(OSError, match=r"^a link must not lead to a folder that it is in, got '.*'; remove it$") as told:
        store.write("00000", 1, copied(source))
    assert f"{named}'; remove it" in str(told.value)
    assert str(told.value).count("source/") == 1
    assert not list((tmp_path / "run").rglob("weights"))


def test_a_file_that_cannot_be_copied_is_named_once(tmp_path: Path) -> None:
    source = looped(tmp_path / "source")
    (source / "a" / "nowhere").symlink_to("missing")
    (source / "a" / "self").symlink_to("self")
    os.mkfifo(source / "b" / "pipe")
    with pytest.raises(OSError, match=r"^[^/]*/[^/]+(/[^/]+)* is a named pipe, and 2 more$"):
        CheckpointStore(LocalFolder(tmp_path / "run")).write("00000", 1, copied(source))


def test_what_is_linked_from_elsewhere_is_copied(tmp_path: Path) -> None:
    source = looped(tmp_path / "source")
    (tmp_path / "weights").write_text("elsewhere")
    (source / "b" / "linked").symlink_to(tmp_path / "weights")
    (source / "again").symlink_to("a")
    store = CheckpointStore(LocalFolder(tmp_path / "run"))
    store.write("00000", 1, copied(source))
    found = store.fetch("00000", 1, tmp_path / "copy")
    assert (found / "b" / "linked").read_text() == "elsewhere"
    assert (found / "again" / "weights").read_bytes() == bytes(1000)


def test_reports_are_told_by_complete_ones_alone_and_older_ones_have_none(tmp_path: Path) -> None:
    store = kept(tmp_path)
    store.write("00003", 4, fill("more"), {3: {"loss": 0.5, "names": ("a", "b")}, 4: {"loss": 0.25}})  # type: ignore[arg-type]
    assert store.reports("00003", 4) == {3: {"loss": 0.5, "names": ["a", "b"]}, 4: {"loss": 0.25}}
    manifest = tmp_path / checkpoint_path("00003", 12) / "manifest.json"
    told = json.loads(manifest.read_text())
    del told["reports"]
    manifest.write_text(json.dumps(told))
    assert store.reports("00003", 12) == {}
    manifest.write_text(json.dumps(told | {"reports": [1]}))
    assert store.reports("00003", 12) is None
    (tmp_path / checkpoint_path("00003", 4) / "files" / "manifest.json").unlink()
    assert (store.reports("00003", 4), store.reports("00003", 99)) == (None, None)


def test_a_checkpoint_is_there_after_a_power_cut(tmp_path: Path) -> None:
    synced = SyncedFiles(tmp_path)
    with synced.watching():
        store = kept(tmp_path)
    synced.cut()
    assert (store.epochs("00003"), store.reports("00003", 12)) == ([1, 3, 12], {})
