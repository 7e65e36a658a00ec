"""How many bytes a folder holds, on a disk and in an object store; and what a full disk says."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from tuner.storage.folder import LocalFolder
from tuner.storage.locations import no_space, open_folder
from tuner.storage.sizes import disk_of, path_bytes


def test_all_files_count_but_for_what_is_left_out(uri: str) -> None:
    folder = open_folder(uri)
    for name, size in (("a", 10), ("b/c", 200), ("b/d/e", 3000), ("tune/f", 40_000)):
        folder.write(name, bytes(size))
    assert folder.held_bytes() == 43_210
    assert folder.held_bytes("b") == 3_200
    assert folder.held_bytes(without=("tune", "a")) == 3_200
    assert folder.held_bytes("nowhere") == 0


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(10_000))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    (tmp_path / "run" / "round").symlink_to(tmp_path / "run")
    assert path_bytes(tmp_path / "run") < 1000
    assert LocalFolder(tmp_path).held_bytes("run") < 1000


def test_the_disk_of_what_is_not_there_yet_is_that_above_it(tmp_path: Path) -> None:
    disk = disk_of(tmp_path / "not" / "there")
    assert disk is not None
    assert disk.total == shutil.disk_usage(tmp_path).total
    assert 0 < disk.free <= disk.total


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), True),
        (shutil.Error([("a", "b", f"[Errno 28] {os.strerror(errno.ENOSPC)}: 'b'")]), True),
        (OSError("model.safetensors: Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), False),
        (None, False),
    ],
)
def test_a_full_disk_is_known_by_number_or_words(error: BaseException | None, full: bool) -> None:
    assert no_space(error) is full
